"""Choosing the largest weight and the neighbors: on held-out training samples, in batches, equal to one by one."""

from __future__ import annotations

import sys

import pytest
import torch
from cases import inputs, labels, mlp_classes, mlp_regression, multilabel
from torch import nn
from torch.nn import functional as F

from mindgap.core.errors import InputError, MissingExtraError
from mindgap.core.subject import Subject
from mindgap.jobs.head import search
from mindgap.jobs.head.search import search_head
from mindgap.jobs.head.trials import head_trials
from mindgap.ops.convex.heads import solve_heads
from mindgap.ops.variance.by_k import VarianceByK
from mindgap.ops.variance.local import local_variance
from mindgap.remedies.weighting.variance_weighting import VarianceWeighting


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_variance_of_every_k_equals_its_own_search(decimals: int | None, task: str) -> None:
    x = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    x = x if decimals is None else x.round(decimals=decimals)
    y = {"classification": labels(x), "regression": x.sum(1), "multilabel": (x > 0).float()}[task]
    by_k = VarianceByK(x, y, 30, task=task)
    for k in (2, 3, 7, 20, 30):
        torch.testing.assert_close(
            by_k(k), local_variance(x, y, k=k, task=task).variance, rtol=1e-12, atol=1e-14
        )
    with pytest.raises(InputError, match="from 2 to 30"):
        by_k(31)


def test_scores_equal_heads_solved_one_by_one() -> None:
    subject = mlp_classes(torch.float64)
    found = search_head(subject, max_weights=(3.0, 30.0), ks=(4, 9), l2=1e-3, seed=2)
    assert found.settings == ((3.0, 4), (30.0, 4), (3.0, 9), (30.0, 9))
    trial = head_trials(subject, 0.2, 9, l2=1e-3, seed=2)
    assert (len(trial.features), len(trial.held_features)) == (38, 10)
    for (m, k), loss, error in zip(found.settings, found.loss, found.error, strict=True):
        v = local_variance(trial.features, trial.target, k=k).variance
        head = solve_heads(
            "softmax", trial.features, trial.target, 1 + (m - 1) * v / v.max(), outputs=3, l2=1e-3
        )
        outputs = head.outputs(trial.held_features)[0]
        assert float(loss) == pytest.approx(
            float(F.cross_entropy(outputs, trial.held_target)), rel=1e-5
        )
        assert float(error) == float((outputs.argmax(1) != trial.held_target).double().mean())
    assert bool(found.converged.all())
    assert bool((found.loss_error > 0).all())


@pytest.mark.parametrize("case", [mlp_classes, mlp_regression, multilabel])
def test_chooses_the_smallest_score(case: object) -> None:
    found = search_head(case(torch.float32), max_weights=(2.0, 10.0, 50.0), ks=(3, 8), l2=1e-3)
    assert float(found.error[found.chosen]) == float(found.error.min())
    assert found.remedy == VarianceWeighting(max_weight=found.best[0], k=found.best[1])
    columns, lines, table = found.map("loss")
    assert (columns, lines, table.shape) == ([2.0, 10.0, 50.0], [3, 8], (2, 3))
    assert float(table[lines.index(found.best[1]), columns.index(found.best[0])]) == float(
        found.loss[found.chosen]
    )
    assert len(found.table().rows) == 7
    by_loss = search_head(
        case(torch.float32), max_weights=(2.0, 10.0, 50.0), ks=(3, 8), l2=1e-3, by="loss"
    )
    assert float(by_loss.loss[by_loss.chosen]) == float(by_loss.loss.min())


def test_test_data_do_not_matter_and_the_model_stays() -> None:
    one = mlp_classes(torch.float32)
    t = inputs(torch.float32, seed=8)
    two = Subject(one.model, one.loss, one.train, (t, labels(t)))
    before = [p.clone() for p in one.model.parameters()]
    left, right = (search_head(s, max_weights=(4.0, 40.0), ks=(3, 6)) for s in (one, two))
    assert torch.equal(left.loss, right.loss)
    assert all(torch.equal(a, b) for a, b in zip(before, one.model.parameters(), strict=True))


def test_validation_data_of_ones_own() -> None:
    subject, t = mlp_classes(torch.float32), inputs(torch.float32, seed=8)
    found = search_head(subject, max_weights=(4.0,), ks=(3,), validation=(t, labels(t)))
    head = solve_heads(
        "softmax",
        subject.features(),
        subject.targets(),
        1
        + 3 * (v := local_variance(subject.features(), subject.targets(), k=3).variance) / v.max(),
    )
    other = Subject(subject.model, subject.loss, (t, labels(t)))
    loss = F.cross_entropy(head.outputs(other.features())[0], labels(t))
    assert float(found.loss[0]) == pytest.approx(float(loss), rel=1e-5)
    assert found.samples == 48


def test_random_draws_lie_between_the_ends_and_depend_on_the_seed() -> None:
    subject = mlp_classes(torch.float32)
    first, again, other = (
        search_head(subject, max_weights=(2.0, 50.0), ks=(3, 12), method="random", trials=9, seed=s)
        for s in (1, 1, 2)
    )
    assert first.settings == again.settings != other.settings
    assert all(2 <= m <= 50 and 3 <= k <= 12 for m, k in first.settings)
    assert bool(torch.isnan(first.map()[2]).any())


class Trial:
    def __init__(self, number: int) -> None:
        self.number = number

    def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:
        assert (name, log) == ("max_weight", True)
        return low + (high - low) * (self.number % 4) / 3

    def suggest_int(self, name: str, low: int, high: int) -> int:
        assert name == "k"
        return low + self.number % (high - low + 1)


class Sampler:
    """Asks and tells as an Optuna study does."""

    def __init__(self) -> None:
        self.asked, self.told = 0, {}

    def ask(self) -> Trial:
        self.asked += 1
        return Trial(self.asked - 1)

    def tell(self, trial: Trial, value: float) -> None:
        self.told[trial.number] = value


def test_asks_and_tells_a_study() -> None:
    study = Sampler()
    found = search_head(
        mlp_classes(torch.float32),
        max_weights=(2.0, 32.0),
        ks=(3, 7),
        method="optuna",
        trials=11,
        study=study,
        by="loss",
    )
    assert len(found.settings) == study.asked == 11
    assert [study.told[k] for k in range(11)] == found.loss.tolist()


def test_optuna_itself_searches_and_goes_on() -> None:
    optuna = pytest.importorskip("optuna", reason="the extra mindgap[search] is not installed")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    subject = mlp_classes(torch.float32)
    first, second = (
        search_head(
            subject, max_weights=(2.0, 32.0), ks=(3, 7), method="optuna", trials=12, by="loss"
        )
        for _ in range(2)
    )
    assert first.settings == second.settings  # the sampler has our seed
    assert all(2 <= m <= 32 and 3 <= k <= 7 for m, k in first.settings)
    assert first.loss[first.chosen] == first.loss.min()
    study = optuna.create_study(direction="minimize", sampler=optuna.samplers.RandomSampler(seed=1))
    for trials in (3, 4):
        search_head(
            subject, max_weights=(2.0, 32.0), ks=(3, 7), method="optuna", trials=trials, study=study
        )
    assert len(study.trials) == 7
    assert all(trial.value is not None for trial in study.trials)


def test_a_missing_optuna_is_said_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr(search, "head_trials", lambda *_, **__: pytest.fail("the work began"))
    with pytest.raises(MissingExtraError, match=r"mindgap\[search\]"):
        search_head(mlp_classes(torch.float32), ks=(3, 7), method="optuna")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_weights": (0.5,)}, "max_weights must be a number of at least 1"),
        ({"ks": (1,)}, "ks must be an integer of at least 2"),
        ({"ks": (60,)}, "k must be an integer from 2 to 38"),
        ({"ks": ()}, "must each have an entry"),
        ({"validation": 0.0, "ks": (3,)}, "leave samples on both sides"),
    ],
)
def test_says_what_is_wrong(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        search_head(mlp_classes(torch.float32), **settings)


def test_few_samples_get_fewer_neighbors_by_default() -> None:
    inputs = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    data = inputs, (inputs[:, 0] > 0).long()
    subject = Subject(nn.Linear(3, 2), "cross_entropy", data)
    found = search_head(subject, max_weights=(2.0,))
    assert [k for _, k in found.settings] == [5, 10, 20]
    with pytest.raises(InputError, match="k must be an integer from 2 to 24"):
        search_head(subject, max_weights=(2.0,), ks=(5, 60))
