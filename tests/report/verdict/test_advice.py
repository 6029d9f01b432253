"""Advice ranks the remedies that treat the symptoms of a case; the specific ones come first."""

from __future__ import annotations

import pytest

from mindgap.report.verdict.advice import FIRST_STEPS, MOST, advise
from mindgap.report.verdict.diagnosis import KINDS


def remedies(kind: str, *found: str) -> list[str]:
    return [advice.remedy for advice in advise(kind, found) if advice.remedy]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_case_has_a_first_step(kind: str) -> None:
    found = advise(kind)
    assert found[0].text == FIRST_STEPS[kind.removeprefix("mild ")][0]
    assert len(found) <= MOST


@pytest.mark.parametrize(
    ("kind", "symptoms", "first"),
    [
        ("over-fitting", (), "weight-averaging"),
        ("over-fitting", ("late over-fitting",), "early-stopping"),
        ("over-fitting", ("sharp minimum",), "weight-averaging"),
        ("under-fitting", (), "annealing"),
        ("under-fitting", ("wrong labels",), "variance-weighting"),
        ("fine", ("wrong labels",), "label-smoothing"),
        ("diverged", (), "gradient-clipping"),
    ],
)
def test_the_case_decides_which_remedy_comes_first(
    kind: str, symptoms: tuple[str, ...], first: str
) -> None:
    assert remedies(kind, *symptoms)[0] == first


def test_among_equals_the_cheaper_remedy_comes_first() -> None:
    assert remedies("fine", "sharp minimum") == ["weight-averaging", "perturbed", "sam"]


def test_a_suggestion_names_the_symptoms_that_it_is_against() -> None:
    late = advise("over-fitting", ["late over-fitting"])
    assert late[1].text.endswith("Against over-fitting and late over-fitting.")
    assert late[2].text.endswith("Against over-fitting.")


@pytest.mark.parametrize("kind", ["leak", "undecided", "no test data", "easier test data", "fine"])
def test_no_remedy_without_a_symptom(kind: str) -> None:
    assert remedies(kind) == []
