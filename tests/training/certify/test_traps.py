"""Traps of validity: each makes false certificates without its guard, and none with it."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mindgap
from mindgap import Recipe, certify
from mindgap.core import kl_inverse
from mindgap.core.errors import InputError
from mindgap.core.split import as_split
from mindgap.ops.pac_bayes.bounds import catoni, mixture, monte_carlo
from mindgap.ops.pac_bayes.per_sample_draws import expected_losses
from mindgap.ops.pac_bayes.posterior import stochastic_model
from mindgap.training.certify.checks import standardized
from mindgap.training.certify.settings import needed_draws
from mindgap.training.certify.transform import standardize


class TestStopping:
    """How many draws judge the weights may not depend on what they show."""

    RISK, DELTA, RUNS = 0.05, 0.05, 2000

    def test_draws_that_stop_when_they_look_good_fail_too_often(self) -> None:
        source, steps = np.random.default_rng(0), np.arange(1, 10_001)
        failed = []
        for _ in range(10):
            wrong = (source.random((self.RUNS // 10, len(steps))) < self.RISK).cumsum(1)
            mean = np.clip(wrong, 0.5, steps - 0.5) / steps
            excess = mean * np.log(mean / self.RISK) + (1 - mean) * np.log(
                (1 - mean) / (1 - self.RISK)
            )
            below = (mean < self.RISK) & (steps * excess > math.log(1 / self.DELTA))
            failed += below[:, 50:].any(1).tolist()
        assert np.mean(failed) > 2 * self.DELTA

    def test_a_number_from_a_pilot_that_is_thrown_away_does_not(self) -> None:
        source, failed = np.random.default_rng(1), 0
        needed = functools.cache(
            lambda wrong: needed_draws((wrong + 1) / 101, lambda limit: limit, self.DELTA, 20_000)
        )
        for _ in range(self.RUNS):
            draws = needed(source.binomial(100, self.RISK))
            mean = source.binomial(draws, self.RISK) / draws
            failed += monte_carlo(mean, draws, self.DELTA) < self.RISK
        assert failed <= self.DELTA * self.RUNS


def coins(count: int, features: int, seed: int) -> tuple[Tensor, Tensor]:
    """Labels that nothing predicts: the risk of every model is one half."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(count, features, generator=source), torch.randint(
        0, 2, (count,), generator=source
    )


def linear(data: tuple[Tensor, Tensor], **changes: Any) -> Recipe:
    features = data[0].shape[1]
    return Recipe(model=lambda: nn.Linear(features, 2), train=data, learning_rate=0.1, **changes)


QUICK: dict[str, Any] = {"epochs": 0, "draws": 200, "scale": 0.01}


class TestReusedData:
    RUNS = 10

    def test_a_bound_on_the_prior_s_own_data_is_false(self) -> None:
        failed = 0
        for seed in range(self.RUNS):
            model = mindgap.fit(linear(coins(40, 60, seed), epochs=10)).subject()
            failed += mixture(model.mean_error("train"), 0.0, 40, 0.05) < 0.5
        assert failed > 0.5 * self.RUNS

    def test_and_is_refused(self) -> None:
        data = coins(40, 60, 0)
        with pytest.raises(InputError, match="must hold no sample of the prior data"):
            certify(mindgap.fit(linear(data)).subject(), held_out=data, **QUICK)


class TestSharedDraws:
    """Answers of one draw of the weights to many samples are one draw, not many."""

    RUNS, SAMPLES, MODELS, DELTA = 400, 50, 20, 0.05

    def data(self) -> tuple[Tensor, Tensor]:
        return torch.ones(self.SAMPLES, 1), torch.zeros(self.SAMPLES, dtype=torch.long)

    def test_counted_as_independent_they_make_a_false_limit(self) -> None:
        """Every model errs on all samples or on none, with the probability of a coin."""
        wrong = np.random.default_rng(0).binomial(self.MODELS, 0.5, self.RUNS) / self.MODELS
        limits = {
            count: np.array([monte_carlo(mean, count, self.DELTA) for mean in wrong.tolist()])
            for count in (self.MODELS, self.MODELS * self.SAMPLES)
        }
        assert (limits[self.MODELS * self.SAMPLES] < 0.5).mean() > 5 * self.DELTA
        assert (limits[self.MODELS] < 0.5).mean() <= self.DELTA

    def test_models_are_counted_and_not_samples(self) -> None:
        model = stochastic_model(nn.Linear(1, 2), "gaussian", 1.0)
        split = as_split(self.data())
        found = expected_losses(model, split, draws=self.MODELS, floor=1e-3, whole=True)
        assert found.draws == self.MODELS
        assert not found.own_draws
        own = expected_losses(model, split, draws=self.MODELS, floor=1e-3)
        assert own.draws == self.SAMPLES  # one pass, in which every sample has its own weights
        assert own.own_draws


class TestRateOfTheStream:
    """λ may not be chosen by the data that bound: the mean risk of a stream is random."""

    RUNS, LENGTH, RISK, DELTA = 1000, 10_000, 0.05, 0.05

    def outcomes(self) -> tuple[np.ndarray, np.ndarray]:
        """Errors and mean risks of a learner that stops erring once it looks lucky."""
        source, steps = np.random.default_rng(0), np.arange(1, self.LENGTH + 1)
        errors, risks = [], []
        for _ in range(10):
            wrong = (source.random((self.RUNS // 10, self.LENGTH)) < self.RISK).cumsum(1)
            mean = np.clip(wrong, 0.5, steps - 0.5) / steps
            gain = mean * np.log(mean / self.RISK) + (1 - mean) * np.log(
                (1 - mean) / (1 - self.RISK)
            )
            lucky = (mean < self.RISK) & (steps * gain > 1.1 * math.log(1 / self.DELTA))
            lucky[:, :50], lucky[:, -1] = False, True
            first = lucky.argmax(1)
            errors += (np.take_along_axis(wrong, first[:, None], 1)[:, 0] / self.LENGTH).tolist()
            risks += (self.RISK * (first + 1) / self.LENGTH).tolist()
        return np.array(errors), np.array(risks)

    def test_the_best_rate_is_false_and_a_fixed_one_holds(self) -> None:
        errors, risks = self.outcomes()
        best = np.array(
            [kl_inverse(mean, math.log(1 / self.DELTA) / self.LENGTH) for mean in errors.tolist()]
        )  # Catoni's bound at the λ that the errors make best
        assert (best < risks).mean() > 1.5 * self.DELTA
        for rate in (0.1, 0.3, 1.0):
            fixed = np.array(
                [
                    catoni(mean, 0.0, self.LENGTH, self.DELTA, inverse_temperature=rate)
                    for mean in errors.tolist()
                ]
            )
            assert (fixed < risks).mean() <= self.DELTA


class TestStratifiedBlocks:
    """Blocks that are balanced by group and label tell a learner the labels of the next block."""

    RUNS, CELLS, EACH = 40, 40, 10

    def data(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        source = np.random.default_rng(seed)
        return np.repeat(np.arange(self.CELLS), self.EACH), source.integers(
            0, 2, self.CELLS * self.EACH
        )

    def bound(self, cells: np.ndarray, labels: np.ndarray, order: np.ndarray) -> float:
        """Judge the second half by the majority of the first half in every cell."""
        first, rest = order[: len(order) // 2], order[len(order) // 2 :]
        ones = np.bincount(cells[first], labels[first], self.CELLS)
        learned = ones > np.bincount(cells[first], minlength=self.CELLS) / 2
        wrong = (learned[cells[rest]] != labels[rest]).mean()
        return catoni(wrong, 0.0, len(rest), 0.05, inverse_temperature=0.35)

    def test_they_make_false_bounds_and_random_ones_do_not(self) -> None:
        stratified = random = 0
        for seed in range(self.RUNS):
            cells, labels = self.data(seed)
            by_cell = np.lexsort((labels, cells))
            halves = np.concatenate([by_cell[::2], by_cell[1::2]])
            stratified += self.bound(cells, labels, halves) < 0.5
            drawn = np.random.default_rng(1000 + seed).permutation(len(cells))
            random += self.bound(cells, labels, drawn) < 0.5
        assert stratified > 0.5 * self.RUNS
        assert random <= 0.05 * self.RUNS

    def test_certify_draws_the_blocks_itself(self) -> None:
        failed = 0
        for seed in range(10):
            cells, labels = self.data(seed)
            inputs = torch.eye(self.CELLS)[torch.from_numpy(cells)]
            recipe = linear((inputs, torch.from_numpy(labels)), epochs=10)
            found = certify(recipe, mode="progressive", blocks=2, seed=seed)
            failed += found.valid and found.bound < 0.5
        assert failed == 0


class _Template(nn.Module):
    """Answers by a feature where the input is like the mean of what it saw, and wrongly elsewhere."""

    mean: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:  # running statistics, as in batch normalization
            self.count += len(inputs)
            self.mean += (inputs[:, 1:] - self.mean).sum(0) / self.count
        like = inputs[:, 1:] @ self.mean > inputs.shape[1] / 2 / self.count.clamp(min=1)
        side = self.scale * inputs[:, 0] * (2.0 * like - 1)
        return torch.stack([-side, side], 1)


class TestPriorStatistics:
    """Statistics, scales and constants of the prior may not come from the data that bound."""

    FEATURES, COUNT = 1500, 60

    def data(self, seed: int) -> tuple[Tensor, Tensor]:
        inputs, labels = coins(self.COUNT, self.FEATURES + 1, seed)
        inputs[:, 0] = 2.0 * labels - 1
        return inputs, labels

    def test_running_statistics_of_the_bound_data_are_false_and_those_of_the_prior_hold(
        self,
    ) -> None:
        fresh, truth = self.data(99)
        for seed in range(5):
            inputs, labels = self.data(seed)
            model = _Template(self.FEATURES)
            model(inputs)
            model.eval()
            wrong = float((model(inputs).argmax(1) != labels).double().mean())
            risk = float((model(fresh).argmax(1) != truth).double().mean())
            assert mixture(wrong, 0.0, self.COUNT, 0.05) < 0.3 < risk
            recipe = Recipe(
                model=lambda: _Template(self.FEATURES),
                train=(inputs, labels),
                epochs=1,
                batch_size=self.COUNT,
                learning_rate=1e-6,
            )
            found = certify(recipe, mode="held-out")
            own = float((found.model(fresh).argmax(1) != truth).double().mean())
            assert own > 0.3
            assert found.bound >= own

    def test_the_best_of_many_priors_is_false_and_holds_when_it_is_paid_for(self) -> None:
        """The seed of the prior, or its scale, chosen by the bound data."""
        errors = np.random.default_rng(0).binomial(40, 0.5, size=(400, 300)).min(1) / 40
        free, paid = (
            np.array([mixture(mean, nats, 40, 0.05) for mean in errors.tolist()])
            for nats in (0.0, math.log(300))
        )
        assert (free < 0.5).mean() > 3 * 0.05
        assert (paid < 0.5).mean() <= 0.05

    @pytest.mark.parametrize("which", ["all", "each"])
    @pytest.mark.parametrize("prior", ["initial", "learned"])
    def test_inputs_that_were_standardized_with_the_bound_data_are_named(
        self, which: str, prior: Any
    ) -> None:
        inputs, labels = coins(300, 4, 1)
        inputs = inputs * torch.tensor([1.0, 5.0, 0.1, 2.0]) + 3
        assert certify(linear((inputs, labels)), prior=prior, **QUICK).valid
        over = None if which == "all" else 0
        mean = inputs.mean() if over is None else inputs.mean(0)
        spread = inputs.std() if over is None else inputs.std(0)
        found = certify(linear(((inputs - mean) / spread, labels)), prior=prior, **QUICK)
        assert "standardized" in found.broken
        assert "transform=standardize" in found.broken
        if prior == "learned":
            assert certify(linear((inputs, labels)), transform=standardize, **QUICK).valid

    def test_fair_inputs_are_not_accused(self) -> None:
        for seed in range(50):
            assert not standardized(as_split(coins(200, 3, seed)))
