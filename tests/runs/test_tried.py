"""The number of models that were compared, counted from a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest
import torch
from torch import nn

from mindgap import Subject, examine
from mindgap.core import InputError, Record, Study, Table, Trial, binomial_tail_inverse, option
from mindgap.core.registry import REGISTRY
from mindgap.runs import SerialExecutor, Store, sweep, tried
from mindgap.runs.tried import Guarantee


class CountedRuns(Study):
    r"""Trials with and without curves.

    Formula: $n$

    Reading: One of them fails.

    Assumes: Nothing.
    """

    cites = ("kawaguchi2017generalization",)
    method = ("K2",)
    count: int = option(6, help="number of trials", low=1)

    def trials(self) -> Sequence[Trial]:
        return [Trial(parameters={"number": k}) for k in range(self.count)]

    def run(self, trial: Trial) -> Record:
        if trial["number"] == 0:
            raise ValueError("this one fails")
        if trial["number"] == 1:
            return {"history": [{"epoch": 1}, {"epoch": 2}, {"epoch": 3}]}
        return {"evaluations": 10} if trial["number"] == 2 else {"error": 0.1}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        return Table(title="none", columns=("n",), rows=((len(records),),))

    def tiny(self) -> Self:
        return self


REGISTRY["study"].pop(CountedRuns.name)  # no part of the catalog


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "runs.sqlite"
    sweep(CountedRuns(), store=path, executor=SerialExecutor(), progress=False)
    return path


def test_every_evaluated_epoch_is_a_model(stored: Path) -> None:
    found = tried(stored)
    assert (found.trials, found.models) == (5, 3 + 10 + 1 + 1 + 1)
    with Store(stored) as store:
        assert tried(store, CountedRuns.name) == found
        with pytest.raises(InputError, match="finished trial"):
            tried(store, "another-study")


def test_the_guarantee_is_for_all_models(stored: Path) -> None:
    found = tried(stored).guarantee(errors=20, samples=1000)
    assert found.fixed == binomial_tail_inverse(20, 1000, 0.05 / 16)
    assert isinstance(found, Guarantee)
    assert found.fixed < found.adaptive
    assert "You tried 16 models on these 1,000 held-out samples" in str(found)


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a file"):
        tried(tmp_path / "none.sqlite")
    assert not list(tmp_path.iterdir())


def test_examine_counts_the_store(stored: Path) -> None:
    x = torch.linspace(-1, 1, 400)[:, None]
    data = [(x[k::2], (x[k::2, 0] > 0).long()) for k in (0, 1)]
    model = nn.Linear(1, 2)
    subject = Subject(model, "cross_entropy", *data)
    report = examine(
        subject, measures=(), bounds=["binomial-tail"], diagnoses=["reused-test-data"], store=stored
    )
    assert report.bounds[0].result.provenance["parameters"]["hypotheses"] == 16
    assert any("16 models" in finding.sentence for finding in report.findings)
    assert subject.judged == 1
