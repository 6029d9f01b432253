"""The order of findings, the correction for many tests, and the remedies that are advised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from mindgap.core import Advice, Diagnosis, Finding, Recipe, Results, Subject, catalog
from mindgap.core.spec import REGISTRY
from mindgap.diagnoses.diagnose import FAMILY, _advised, diagnose
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


@pytest.fixture
def shelf() -> Iterator[None]:
    """Diagnoses that a test defines are gone after it."""
    kept = catalog("diagnosis")
    yield
    REGISTRY["diagnosis"].clear()
    REGISTRY["diagnosis"].update(kept)


def subject() -> Subject:
    x = torch.linspace(-1, 1, 40)[:, None]
    return Subject(nn.Linear(1, 1), "mse", (x[::2], x[::2]), (x[1::2], x[1::2]))


def diagnosis(name: str, at: str, outcome: Any, **attributes: Any) -> Diagnosis:
    """A diagnosis that always gives the same outcome: a severity and a p-value, or an exception."""

    def look(self: Diagnosis, subject: Subject, results: Results) -> Finding | None:
        if isinstance(outcome, Exception):
            raise outcome
        severity, p_value, proposed = (*outcome, "")[:3] if outcome else ("note", None, "")
        return outcome and self.finding(
            f"{name}.", severity, p_value=p_value, explained_by=proposed
        )

    def plant(cls: type, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        raise AssertionError

    body = {"stage": at, "look": look, "plant": classmethod(plant), **attributes}
    return type(name, (Diagnosis,), {"__doc__": f"Look for {name}.", **body})()


def names(*specs: Diagnosis, **settings: Any) -> list[str]:
    return [finding.name for finding in diagnose(subject(), diagnoses=specs, **settings).findings]


@pytest.mark.usefixtures("shelf")
class TestOrder:
    def test_severity_comes_before_stage_and_stage_before_p_value(self) -> None:
        late = diagnosis("Late", "over-fitting", ("wrong", 1e-30))
        early = diagnosis("Early", "split", ("wrong", 1e-9))
        noted = diagnosis("Noted", "values", ("note", None), exact=True)
        assert names(noted, late, early) == ["early", "late", "noted"]

    def test_symptoms_follow_their_cause(self) -> None:
        symptom = diagnosis("Symptom", "collapse", ("wrong", 1e-30))
        cause = diagnosis(
            "Cause", "split", ("wrong", 1e-9), explains=frozenset({"symptom", "other"})
        )
        other = diagnosis("Other", "split", ("wrong", 1e-30))
        found = diagnose(subject(), diagnoses=[symptom, cause, other]).findings
        # "other" is as severe and of the same stage, but it is explained, so it is no verdict.
        assert [(f.name, f.explained_by) for f in found] == [
            ("cause", ""),
            ("symptom", "cause"),
            ("other", "cause"),
        ]

    def test_a_note_explains_nothing(self) -> None:
        note = diagnosis("Note", "split", ("note", None), explains=frozenset({"symptom"}))
        symptom = diagnosis("Symptom", "over-fitting", ("wrong", 1e-9))
        assert names(note, symptom) == ["symptom", "note"]

    def test_what_chance_may_give_explains_nothing_that_is_sure(self) -> None:
        sure = diagnosis("Sure", "confidence", ("wrong", 1e-30))
        for p_value, first in [(0.2, "sure"), (0.02, "weak")]:
            weak = diagnosis("Weak", "fit", ("wrong", p_value), explains=frozenset({"sure"}))
            assert names(weak, sure)[0] == first

    def test_two_that_explain_each_other_leave_one_verdict(self) -> None:
        first = diagnosis("First", "split", ("wrong", 1e-9), explains=frozenset({"second"}))
        second = diagnosis("Second", "leak", ("wrong", 1e-9), explains=frozenset({"first"}))
        found = diagnose(subject(), diagnoses=[first, second]).findings
        assert [(f.name, f.explained_by) for f in found] == [("first", ""), ("second", "first")]

    def test_a_cause_that_a_finding_proposes_counts_if_it_is_found(self) -> None:
        early = diagnosis(
            "Early", "collapse", ("wrong", 1e-9, "late"), explains=frozenset({"late"})
        )
        late = diagnosis("Late", "fit", ("wrong", 1e-9, "early"))
        found = diagnose(subject(), diagnoses=[early, late]).findings
        assert [(f.name, f.explained_by) for f in found] == [("late", ""), ("early", "late")]
        for other in (diagnosis("Other", "fit", ("wrong", 1e-9)), None):
            specs = [early] if other is None else [early, other]
            assert diagnose(subject(), diagnoses=specs).findings[0].explained_by == ""
        mild = diagnosis("Late", "fit", ("suspect", 1e-9))
        assert names(early, mild) == ["early", "late"]


@pytest.mark.usefixtures("shelf")
class TestCorrection:
    def test_tests_that_found_nothing_count(self) -> None:
        silent = [diagnosis(f"Silent{chr(65 + k)}", "split", None) for k in range(9)]
        found = diagnosis("Found", "split", ("wrong", 1e-4))
        assert diagnose(subject(), diagnoses=[found]).findings[0].p_value == pytest.approx(1e-4)
        finding = diagnose(subject(), diagnoses=[found, *silent]).findings[0]
        assert finding.p_value == pytest.approx(1e-3)
        assert finding.confidence == pytest.approx(0.999)

    def test_what_does_not_survive_becomes_a_suspicion(self) -> None:
        silent = [diagnosis(f"Silent{chr(65 + k)}", "split", None) for k in range(9)]
        weak = diagnosis("Weak", "split", ("wrong", FAMILY / 5))
        assert diagnose(subject(), diagnoses=[weak]).findings[0].severity == "wrong"
        assert diagnose(subject(), diagnoses=[weak, *silent]).findings[0].severity == "suspect"

    def test_exact_checks_are_not_counted_and_not_corrected(self) -> None:
        exact = [diagnosis(f"Exact{chr(65 + k)}", "split", None, exact=True) for k in range(9)]
        sure = diagnosis("Sure", "split", ("wrong", None), exact=True)
        tested = diagnosis("Tested", "split", ("wrong", 1e-4))
        found = diagnose(subject(), diagnoses=[sure, tested, *exact]).findings
        assert {f.name: f.p_value for f in found} == {
            "sure": None,
            "tested": pytest.approx(1e-4),
        }


@pytest.mark.usefixtures("shelf")
class TestWhatIsTold:
    def test_a_broken_diagnosis_does_not_cost_the_others(self) -> None:
        broken = diagnosis("Broken", "split", ZeroDivisionError("by zero"))
        found = diagnose(
            subject(), diagnoses=[broken, diagnosis("Found", "split", ("wrong", 1e-9))]
        )
        assert [f.name for f in found.findings] == ["found"]
        row = next(row for row in found.checked if row.name == "broken")
        assert (row.outcome, row.reason) == ("failed", "ZeroDivisionError: by zero")

    def test_what_needs_more_says_so(self) -> None:
        picky = diagnosis("Picky", "split", None, needs=frozenset({"classification"}))
        row = diagnose(subject(), diagnoses=[picky]).checked[0]
        assert row.outcome == "not applicable"
        assert "classification" in row.reason

    def test_nothing_wrong_is_said_plainly(self) -> None:
        silent = diagnosis("Silent", "split", None)
        assert str(diagnose(subject(), diagnoses=[silent])) == "Nothing wrong found in 1 checks."

    def test_remedies_that_treat_the_symptom_and_are_not_in_use(self) -> None:
        fits = diagnosis("Fits", "over-fitting", ("wrong", 1e-9), symptom="over-fitting")
        plain = diagnose(subject(), diagnoses=[fits]).findings[0].advice
        assert "weight-decay" in [advice.remedy for advice in plain]
        used = diagnose(subject(), diagnoses=[fits], in_use=["weight-decay"]).findings[0].advice
        assert "weight-decay" not in [advice.remedy for advice in used]

    def test_explained_findings_advise_nothing_more(self) -> None:
        cause = diagnosis("Cause", "split", ("wrong", 1e-9), explains=frozenset({"fits"}))
        fits = diagnosis("Fits", "over-fitting", ("wrong", 1e-9), symptom="over-fitting")
        assert not diagnose(subject(), diagnoses=[cause, fits]).findings[1].advice

    def test_after_weights_that_are_no_numbers_nothing_else_is_tested(self) -> None:
        broken = subject()
        with torch.no_grad():
            broken.model.weight.fill_(float("inf"))
        other = diagnosis("Other", "split", ("wrong", 1e-9))
        found = diagnose(broken, diagnoses=["not-finite", other])
        assert [f.name for f in found.findings] == ["not-finite"]
        assert found.checked[1].reason == "needs finite weights and outputs"


def test_remedies_that_do_not_fit_are_not_advised() -> None:
    """Label smoothing treats wrong labels, but a regression has no classes to smooth."""
    x = torch.linspace(-1, 1, 40)[:, None]
    regression = Subject(torch.nn.Linear(1, 1), "mse", (x, x))
    classes = Subject(torch.nn.Linear(1, 2), "cross_entropy", (x, (x[:, 0] > 0).long()))
    finding = Finding(name="any", sentence="So.", severity="wrong", symptom="wrong labels")
    for subject, advised in ((regression, False), (classes, True)):
        names = {advice.remedy for advice in _advised(finding, subject, ()).advice}
        assert ("label-smoothing" in names) == advised
        assert "self-paced" in names


def test_a_model_without_weights_gets_no_remedy_of_training() -> None:
    x = torch.linspace(-1, 1, 40)[:, None]
    forest = Subject(nn.Softmax(1), "cross_entropy", (x.repeat(1, 2), (x[:, 0] > 0).long()))
    own = (Advice(text="Collect more."), Advice(text="Shrink.", remedy="weight-decay"))
    finding = Finding(
        name="any", sentence="So.", severity="wrong", symptom="wrong labels", advice=own
    )
    assert _advised(finding, forest, ()).advice == own[:1]


def test_what_fit_returned_is_diagnosed_as_its_subject() -> None:
    fitted = fit(healthy_recipe("table").replace(epochs=1))
    wanted = ["under-trained", "over-fitting"]
    found, same = (diagnose(one, diagnoses=wanted) for one in (fitted, fitted.subject()))
    assert [row.sentence for row in found.findings] == [row.sentence for row in same.findings]
    assert [row.outcome for row in found.checked] == [row.outcome for row in same.checked]
