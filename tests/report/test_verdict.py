import dataclasses

import pytest

from mindgap.core.registry import catalog
from mindgap.core.result import Interval, Result
from mindgap.core.stats import proportion_interval
from mindgap.report.parts import Card, Facts
from mindgap.report.verdict.diagnosis import KINDS
from mindgap.report.verdict.facts import turning_point
from mindgap.report.verdict.verdict import HEADLINES, judge, samples_needed
from mindgap.report.wording import SPACE


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


def verdict(known, cards=(), curves=()):
    return judge(known, gap(known), cards, curves)


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
    **terms,
):
    parts = {"empirical": value / 2, "complexity": value / 2, "ceiling": 1.0, **terms}
    flags = {"valid": valid, "vacuous": vacuous, "reason": reason}
    provenance = {"parameters": {"delta": 0.05}, "basis": basis} | (
        {"risk_of": risk_of} if risk_of else {}
    )
    result = Result(
        name=name, family="bound", value=value, terms=parts, provenance=provenance, **flags
    )
    return Card(result=result, title=name.capitalize(), summary="")


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        (facts(0.0, 0.2), "over-fitting"),
        (facts(0.01, 0.045), "mild over-fitting"),
        (facts(0.0, 0.01, samples=300), "undecided"),
        (facts(0.05, 0.055, samples=20_000), "fine"),
        (facts(0.0, 0.05, samples=20), "undecided"),
        (facts(0.5, 0.5), "under-fitting"),
        (facts(0.5, 0.8), "over-fitting"),
        (facts(0.2, 0.05), "easier test data"),
        (facts(0.0, 0.0, overlap=1.0), "leak"),
        (facts(0.0, 0.0, samples=20_000, overlap=0.05), "fine"),
        (facts(0.0, None, samples=0, test_loss=None), "no test data"),
        (facts(0.6, None, samples=0, test_loss=None), "under-fitting"),
        (facts(0.0, 0.2, stopped="diverged: the loss became nan"), "diverged"),
    ],
)
def test_kinds(known, kind):
    found = verdict(known)
    assert (found.kind, found.label, found.tone) == (kind, *KINDS[kind])
    assert found.advice
    assert 1 <= len(found.sentences) <= 5


def test_every_kind_has_a_headline():
    assert set(HEADLINES) == set(KINDS)


def test_the_gap_is_said_with_its_interval():
    text = said(verdict(facts(0.0, 0.2)))
    assert "20 % wrong on unseen data, but 0 % wrong on its training data" in text
    assert (
        "20 percentage points, with 95 % confidence between 17.5 and 22.7 (from 1,000 test samples)"
        in text
    )


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


def test_a_leak_silences_the_bounds():
    text = said(verdict(facts(0.0, 0.0, overlap=1.0), [bound(0.01)]))
    assert (
        "100 % of the test samples also appear, with the same target, in the training data" in text
    )
    assert "confidence the error" not in text


def test_a_high_train_error_stands_beside_the_best_constant_answer():
    text = said(verdict(facts(0.5, 0.5)))
    assert (
        "wrong on 50 % of the training samples, the majority-class baseline is wrong on 90 %"
        in text
    )


def test_a_regression_speaks_of_losses():
    known = facts(0.1, 0.5, task="regression", baseline=1.0)
    spread = Result(name="gap", family="measure", value=0.4, interval=Interval(low=0.3, high=0.5))
    text = said(judge(known, spread, (), ()))
    assert "loss 0.5 on unseen data, but loss 0.1 on its training data" in text
    assert "%" not in text.replace("95 %", "")


def test_a_single_test_sample_has_no_interval():
    known = facts(0.1, 0.5, samples=1, task="regression", baseline=1.0)
    endless = Result(
        name="gap",
        family="measure",
        value=0.4,
        interval=Interval(low=-float("inf"), high=float("inf")),
    )
    found = judge(known, endless, (), ())
    assert found.kind == "undecided"
    assert "too few for an interval" in said(found)


def rows(train, test, name="test_loss"):
    pairs = zip(train, test, strict=True)
    return tuple({"epoch": k + 1.0, "train_loss": a, name: b} for k, (a, b) in enumerate(pairs))


def test_a_loss_that_rose_again_is_a_look_and_not_a_choice():
    curves = rows([3, 2, 1, 0.5], [3, 1, 1.5, 2])
    found = verdict(facts(0.0, 0.2), curves=curves)
    assert "The test loss was lowest in epoch 2 (1) and has risen to 2 since" in said(found)
    assert "not a choice" in said(found)
    assert any(advice.remedy == "early-stopping" for advice in found.advice)


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


def test_remedies_come_from_the_catalog():
    remedies = {advice.remedy for advice in verdict(facts(0.0, 0.3)).advice} - {""}
    assert remedies
    assert remedies <= set(catalog("remedy"))
    assert not {advice.remedy for advice in verdict(facts(0.0, 0.0, overlap=1.0)).advice} - {""}


def test_a_failed_measure_is_mentioned():
    failed = Result(
        name="odd",
        family="measure",
        value=None,
        status="undefined",
        reason="failed with ValueError: x",
    )
    card = Card(result=failed, title="Odd", summary="")
    assert "One quantity could not be computed because of an error (Odd)" in said(
        verdict(facts(), [card])
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
