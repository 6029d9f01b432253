"""Which bounds see random labels: the verdicts, on made-up values."""

import pytest
import torch

from mindgap.core import Bound, Subject, Terms, Trial, catalog
from mindgap.data import digits
from mindgap.studies.darc import random_labels
from mindgap.studies.darc.random_labels import PROBLEMS, Pairs, evaluated, pairs_of, verdict


def rows(values: list[float | None], limit: float = 0.9) -> list[dict[str, object]]:
    return [
        {
            "value": value,
            "empirical": 0.0,
            "vacuous": None if value is None else value >= limit,
            "valid": True,
            "reason": "" if value is not None else "too large",
            "held_out": False,
        }
        for value in values
    ]


@pytest.mark.parametrize(
    ("true", "random", "wanted"),
    [
        ([0.1, 0.2, 0.15], [0.95, 1.0, 0.97], "sees it, and is not vacuous for true labels"),
        ([10.0, 11.0, 10.5], [50.0, 52.0, 51.0], "sees it, but is vacuous for both"),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], "blind: the same vacuous value for both"),
        ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5], "blind: the same for both"),
        ([5.0, 9.0, 1.0], [6.0, 3.0, 9.0], "blind: no significant difference"),
        ([50.0, 52.0, 51.0], [10.0, 11.0, 10.5], "misled: smaller for random labels"),
        ([0.1, None, 0.1], [0.9, 0.9, 0.9], "undefined"),
        ([0.1, 0.1, 0.12], [0.88, 0.88, 0.95], "sees it in part"),
    ],
)
def test_verdicts(true: list[float], random: list[float], wanted: str) -> None:
    pairs = Pairs("some", PROBLEMS[0].name, 0.0, rows(true), rows(random))
    assert verdict(pairs, pairs.p_value) == wanted


def test_takes_the_first_network_on_which_a_bound_is_defined() -> None:
    records = [
        (
            Trial(parameters={"problem": problem.name, "labels": kind}, seed=seed),
            {"bounds": {"some": rows([None if problem is PROBLEMS[0] else 1.0])[0]}},
        )
        for problem in PROBLEMS
        for kind in ("true", "random")
        for seed in range(2)
    ]
    assert pairs_of("some", records).problem == PROBLEMS[1].name
    nowhere = pairs_of("some", records[:4])
    assert nowhere.reason == f"on {PROBLEMS[0].name}, too large"
    assert not nowhere.defined


def test_a_new_bound_appears_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silly(Bound, abstract=True):
        needs = frozenset()
        name = "silly"

        def formula(self) -> Terms:
            return Terms(empirical=0.25, complexity=0.5)

        def evidence(self, subject: Subject) -> dict[str, float]:
            return {}

    every = {**catalog("bound"), "silly": Silly}
    monkeypatch.setattr(random_labels, "catalog", lambda _: every)
    study = random_labels.RandomLabels(seeds=2, scale=0.002)
    records = [(trial, study.run(trial)) for trial in study.trials()[-4:]]
    assert records[0][1]["bounds"]["silly"]["value"] == 0.75
    assert "silly" in [row[0] for row in study.summarize(records).rows]


def test_random_labels_are_random_in_both_splits() -> None:
    data = digits().subset(500, seed=0)
    trial = Trial(parameters={"problem": PROBLEMS[0].name, "labels": "random"}, seed=0)
    drawn = random_labels._labeled(data, trial)
    for old, new in ((data.targets, drawn.targets), (data.test[1], drawn.test[1])):
        assert 0.85 < float((old != new).double().mean()) < 0.95
    assert torch.equal(drawn.inputs, data.inputs)


def test_a_refusal_is_told() -> None:
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    subject = Subject(torch.nn.Linear(2, 2), "cross_entropy", (x, (x[:, 0] > 0).long()))
    found = evaluated("binomial-tail", subject)
    assert found["value"] is None
    assert found["reason"] == "needs test data"
