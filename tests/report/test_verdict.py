import dataclasses

import pytest

from mindgap.core import Advice, Finding
from mindgap.core.result import Interval, Result
from mindgap.core.stats import proportion_interval
from mindgap.diagnoses import LeakedSamples, OverFitting
from mindgap.diagnoses.diagnose import Checked
from mindgap.ops.evidence.curves import turning_point
from mindgap.report.parts import Card, Facts
from mindgap.report.verdict.verdict import FIRST_STEPS, KINDS, judge, samples_needed
from mindgap.report.wording import SPACE

CHECKED = (
    Checked(name="over-fitting", summary="Look for a gap.", outcome="nothing"),
    Checked(name="missing-class", summary="Look for a class.", outcome="not applicable"),
)


def facts(train=0.0, test=0.1, samples=1000, **changes):
    common = {
        "name": "net",
        "task": "classification",
        "loss": "cross_entropy",
        "train_samples": 5000,
    }
    numbers = {"parameters": 10, "train_loss": 0.1, "test_loss": 0.2, "baseline": 0.9}
    return Facts(
        **{
            **common,
            **numbers,
            "train_error": train,
            "test_error": test,
            "test_samples": samples,
            **changes,
        }
    )


def gap(known):
    if known.test_error is None:
        return Result(
            name="gap", family="measure", value=None, status="undefined", reason="needs test data"
        )
    ends = proportion_interval(round(known.test_error * known.test_samples), known.test_samples)
    interval = Interval(low=ends.low - known.train_error, high=ends.high - known.train_error)
    return Result(
        name="gap", family="measure", value=known.test_error - known.train_error, interval=interval
    )


def verdict(known, cards=(), findings=(), checked=CHECKED):
    return judge(known, gap(known), cards, findings, checked)


def finding(name="leaked-samples", severity="wrong", **more):
    return Finding(name=name, sentence="Half of it is known.", severity=severity, **more)


def said(found):
    return " ".join([found.headline, *found.sentences]).replace(SPACE, " ")


def bound(
    value,
    *,
    name="tail",
    valid=True,
    vacuous=False,
    reason="",
    basis="held-out errors",
    risk_of="",
    hypotheses=1,
    **terms,
):
    parts = {"empirical": value / 2, "complexity": value / 2, "ceiling": 1.0, **terms}
    flags = {"valid": valid, "vacuous": vacuous, "reason": reason}
    parameters = {"delta": 0.05, "hypotheses": hypotheses}
    provenance = {"parameters": parameters, "basis": basis} | (
        {"risk_of": risk_of} if risk_of else {}
    )
    result = Result(
        name=name, family="bound", value=value, terms=parts, provenance=provenance, **flags
    )
    return Card(result=result, title=name.capitalize(), summary="")


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        (facts(0.0, 0.2), "fine"),  # whether a gap is too large is what diagnoses say
        (facts(0.05, 0.055, samples=20_000), "fine"),
        (facts(0.2, 0.05), "fine"),
        (facts(0.0, 0.01, samples=300), "undecided"),
        (facts(0.0, 0.05, samples=20), "undecided"),
        (facts(0.0, None, samples=0, test_loss=None), "no test data"),
    ],
)
def test_kinds_of_healthy_subjects(known, kind):
    found = verdict(known)
    assert (found.kind, found.label, found.tone) == (kind, *KINDS[kind][:2])
    assert [advice.text for advice in found.advice] == list(FIRST_STEPS[kind])
    assert 1 <= len(found.sentences) <= 5


def test_every_kind_has_a_first_step():
    assert set(FIRST_STEPS) == set(KINDS)


def test_a_healthy_subject_gets_a_plain_headline():
    found = verdict(facts(0.01, 0.012, samples=20_000))
    assert found.headline.replace(SPACE, " ") == (
        "Nothing wrong found in 1 check: 1.2 % wrong on unseen data, 1 % wrong on its training "
        "data."
    )
    assert found.tone == "good"


def test_without_checks_nothing_is_called_healthy():
    found = verdict(facts(0.0, 0.01), checked=())
    assert (found.kind, found.tone) == ("not checked", "neutral")
    assert found.headline.startswith("Nothing was checked")


def test_without_test_data_most_checks_do_not_apply():
    known = facts(0.0, None, samples=0, test_loss=None)
    assert "Without test data most checks do not apply: 1 of 2 could be made" in said(
        verdict(known)
    )


def test_the_first_finding_is_the_verdict():
    own = finding(
        sentences=("They are equal.",), advice=(Advice(text="Split again.", code="x = 1"),)
    )
    found = verdict(facts(0.0, 0.2), findings=[own, finding("over-fitting")])
    assert (found.kind, found.label, found.tone) == ("leaked-samples", "Leaked samples", "bad")
    assert found.headline == own.sentence
    assert found.sentences[0] == "They are equal."
    assert "20 percentage points" in said(found)
    assert found.advice == own.advice


@pytest.mark.parametrize(("severity", "tone"), [("wrong", "bad"), ("suspect", "warn")])
def test_the_tone_is_the_severity(severity, tone):
    assert verdict(facts(), findings=[finding(severity=severity)]).tone == tone


@pytest.mark.parametrize("more", [{"severity": "note"}, {"explained_by": "input-shift"}])
def test_a_note_or_a_symptom_is_no_verdict(more):
    assert verdict(facts(0.0, 0.2), findings=[finding("dead-units", **more)]).kind == "fine"


def test_the_gap_is_said_with_its_interval():
    text = said(verdict(facts(0.0, 0.2)))
    assert "20 % wrong on unseen data, 0 % wrong on its training data" in text
    assert (
        "20 percentage points, with 95 % confidence between 17.5 and 22.7 (from 1,000 test samples)"
        in text
    )


def test_no_guarantee_below_a_finding_that_voids_it():
    cards, voiding = [bound(0.041)], finding("leaked-samples", voids=True)
    assert "below 4.1 %" in said(verdict(facts(0.0, 0.02), cards, [finding("over-fitting")]))
    assert "guarantee" not in said(verdict(facts(0.0, 0.02), cards, [voiding]))
    assert "confidence the error" not in said(verdict(facts(0.0, 0.02), cards, [voiding]))


def test_what_voids_a_guarantee_says_so_unless_it_is_a_note():
    assert LeakedSamples().finding("Known.", "wrong").voids
    assert not LeakedSamples().finding("Known by chance.", "note").voids
    assert not OverFitting().finding("A gap.", "wrong").voids


def test_reused_test_data_leave_the_guarantee_for_that_many_models():
    reused = [finding("reused-test-data")]
    for_one, for_many = bound(0.041, name="one"), bound(0.06, name="many", hypotheses=50)
    assert "confidence the error" not in said(verdict(facts(0.0, 0.02), [for_one], reused))
    text = said(verdict(facts(0.0, 0.02), [for_one, for_many], reused))
    assert "below 6 % (bound: Many), even if it is the best of 50 models on these test" in text


def test_a_bound_for_one_model_is_none_if_several_were_compared():
    for_one, for_many = bound(0.041, name="one"), bound(0.06, name="many", hypotheses=2)
    assert "below 6 %" in said(verdict(facts(0.0, 0.02), [for_one, for_many]))


def test_numbers_that_nobody_knows_are_not_told():
    known = facts(float("nan"), float("nan"), train_loss=float("nan"))
    nothing = Result(name="gap", family="measure", value=None, status="undefined", reason="NaN")
    found = judge(known, nothing, (), [finding("not-finite")], CHECKED)
    assert found.sentences == ()


def test_an_undecided_gap_says_how_many_samples_would_settle_it():
    known = facts(0.0, 0.05, samples=20)
    needed = samples_needed(known, gap(known))
    assert f"{needed - 20:,} more test samples ({needed:,} in all)" in said(verdict(known))
    more = facts(0.0, 0.05, samples=needed)
    assert (gap(more).interval.high - gap(more).interval.low) / 2 <= 0.055


def test_choosing_among_bases_costs_confidence():
    cards = [bound(0.5, name="loose"), bound(0.041, name="tight", basis="another")]
    assert "With 90 % confidence the error on unseen data is below 4.1 %" in said(
        verdict(facts(0.0, 0.02), cards)
    )


def test_the_tightest_bound_that_holds_is_named():
    cards = [
        bound(0.5, name="loose"),
        bound(0.041, name="tight"),
        bound(0.01, name="broken", valid=False, reason="no"),
    ]
    text = said(verdict(facts(0.0, 0.02), cards))
    assert "With 95 % confidence the error on unseen data is below 4.1 % (bound: Tight)" in text
    assert "Broken" not in text


def test_a_bound_on_a_loss_is_not_called_an_error_rate():
    assert "the loss on unseen data is below 1.5 (bound: Tail)" in said(
        verdict(facts(), [bound(1.5, ceiling=7.0)])
    )


def test_without_a_guarantee_the_commonest_reason_is_given():
    cards = [
        bound(2.0, vacuous=True),
        bound(3.0, vacuous=True),
        bound(0.1, valid=False, reason="a leak"),
    ]
    assert "No bound gives a guarantee here. For 2 of 3 the reason is: it is vacuous." in said(
        verdict(facts(), cards)
    )


def test_a_regression_speaks_of_losses():
    known = facts(0.1, 0.5, task="regression", baseline=1.0)
    spread = Result(name="gap", family="measure", value=0.4, interval=Interval(low=0.3, high=0.5))
    text = said(judge(known, spread, (), (), CHECKED))
    assert "loss 0.5 on unseen data, loss 0.1 on its training data" in text
    assert "%" not in text.replace("95 %", "")


def test_a_single_test_sample_has_no_interval():
    known = facts(0.1, 0.5, samples=1, task="regression", baseline=1.0)
    endless = Result(
        name="gap",
        family="measure",
        value=0.4,
        interval=Interval(low=-float("inf"), high=float("inf")),
    )
    found = judge(known, endless, (), (), CHECKED)
    assert found.kind == "undecided"
    assert "too few for an interval" in said(found)


def rows(train, test, name="test_loss"):
    pairs = zip(train, test, strict=True)
    return tuple({"epoch": k + 1.0, "train_loss": a, name: b} for k, (a, b) in enumerate(pairs))


@pytest.mark.parametrize(
    "curves",
    [
        (),
        rows([3, 2, 1], [3, 2, 1]),
        rows([3, 2, 1], [3, 1, 1.04]),
        rows([3, 2, 2.5], [3, 1, 2]),
        ({"epoch": 1.0, "running_loss": 1.0},) * 3,
    ],
)
def test_no_turning_point(curves):
    assert turning_point(curves) is None


def test_the_validation_loss_goes_before_the_test_loss():
    curves = tuple(
        {**row, "test_loss": 1.0} for row in rows([3, 2, 1], [3, 1, 2], "validation_loss")
    )
    assert turning_point(curves).which == "validation"


def test_a_failed_measure_is_mentioned():
    failed = Result(
        name="odd",
        family="measure",
        value=None,
        status="undefined",
        reason="failed with ValueError: x",
    )
    card = Card(result=failed, title="Odd", summary="")
    assert "One quantity or check could not be computed because of an error (Odd)" in said(
        verdict(facts(), [card])
    )
    broken = Checked(name="dead-units", summary="", outcome="failed", reason="failed")
    assert "2 quantities or checks could not be computed because of an error (Odd, Dead units)" in (
        said(verdict(facts(), [card], checked=[*CHECKED, broken]))
    )
    quiet = dataclasses.replace(card, result=dataclasses.replace(failed, reason="needs test data"))
    assert "could not be computed" not in said(verdict(facts(), [quiet]))


def test_a_bound_on_a_noisy_model_is_no_guarantee_for_this_one():
    noisy = bound(0.01, name="noisy", basis="noise", risk_of="the model with noise on its weights")
    found = verdict(facts(0.0, 0.1), [noisy, bound(0.2)])
    assert "below 20 %" in said(found)
    assert "95 % confidence" in said(found)  # the noisy one takes no share of it
    alone = said(verdict(facts(0.0, 0.1), [noisy]))
    assert (
        "No bound gives a guarantee here. For 1 of 1 the reason is: it is about the model with "
        "noise" in alone
    )
