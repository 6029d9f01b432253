"""The terms telescope exactly, and their intervals cover the truth where it is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from mindgap.training.decomposition.terms import Losses, Term, excess_risk, total

DOUBLE = torch.float64


def made(seed: int, draws: int = 4, pool: int = 30, references: int = 2) -> Losses:
    random = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> torch.Tensor:
        return 10 ** (4 * torch.rand(1, generator=random, dtype=DOUBLE) - 2) * torch.rand(
            *shape, generator=random, dtype=DOUBLE
        )

    return Losses(
        run=rand(draws, pool),
        minimizer=rand(draws, pool),
        best=rand(references, pool),
        run_train=rand(draws),
        minimizer_train=rand(draws),
        best_train=rand(references, draws),
        floor=rand(pool),
    )


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_terms_add_up_to_the_risk(seed: int) -> None:
    losses = made(seed)
    scale = max(1.0, *(abs(term.value) for term in (*losses.whole, *losses.excess)))
    assert abs(total(losses.whole) - float(losses.run.mean())) <= 1e-12 * scale
    assert abs(total(losses.excess) - excess_risk(losses)) <= 1e-12 * scale


def test_terms_are_the_differences_they_say() -> None:
    losses = made(3)
    run, erm, best = (float(part.mean()) for part in (losses.run, losses.minimizer, losses.best))
    found = {term.name: term.value for term in losses.excess}
    assert found["estimation"] == pytest.approx(erm - best, abs=1e-12)
    assert found["optimization"] == pytest.approx(run - erm, abs=1e-12)
    assert found["approximation"] == pytest.approx(best - float(losses.floor.mean()), abs=1e-12)
    four = {term.name: term.value for term in losses.whole}
    on_train = float(losses.best_train.mean())
    assert four["generalization"] == pytest.approx(run - float(losses.run_train.mean()), abs=1e-12)
    assert four["optimization"] == pytest.approx(
        float(losses.run_train.mean()) - on_train, abs=1e-12
    )
    assert four["statistical"] == pytest.approx(on_train - best, abs=1e-12)
    assert four["approximation"] == pytest.approx(best, abs=1e-12)


def test_without_the_best_predictor_the_approximation_error_is_left_out() -> None:
    losses = made(1)
    bare = Losses(**{**vars(losses), "floor": None})
    assert [term.name for term in bare.excess] == ["estimation", "optimization"]
    assert excess_risk(bare) is None
    assert len(bare.whole) == 4


def test_a_single_number_serves_as_floor() -> None:
    losses = made(2)
    flat = Losses(**{**vars(losses), "floor": losses.floor.mean()})
    assert flat.excess[0].value == pytest.approx(losses.excess[0].value, abs=1e-12)


def gaussian(
    random: np.random.Generator, samples: np.ndarray, mean: float, count: int, own: float
) -> torch.Tensor:
    models = own * random.normal(size=(count, 1))
    return torch.tensor(mean + models + 0.3 * random.normal(size=(count, len(samples))) + samples)


def test_intervals_cover_the_truth() -> None:
    """Gaussian losses with known means: every interval holds about 95 times in 100."""
    rounds, draws, pool, references = 150, 6, 40, 3
    truth = {"approximation": 0.5, "estimation": 0.3, "optimization": -0.2}
    hits = dict.fromkeys(truth, 0)
    for seed in range(rounds):
        random = np.random.default_rng(seed)
        samples = random.normal(size=pool)  # hard and easy samples, shared by all models

        best = gaussian(random, samples, 1.5, references, 0.1)
        erm = gaussian(random, samples, 1.8, draws, 0.4)
        run = gaussian(random, samples, 1.6, draws, 0.4)
        zeros = torch.zeros(draws, dtype=DOUBLE)
        found = Losses(
            run=run,
            minimizer=erm,
            best=best,
            run_train=zeros,
            minimizer_train=zeros,
            best_train=torch.zeros(references, draws, dtype=DOUBLE),
            floor=torch.tensor(1.0 + samples),
        )
        for term in found.excess:
            low, high = term.interval.low, term.interval.high
            hits[term.name] += low <= truth[term.name] <= high
    least = 0.95 - 3.5 * math.sqrt(0.95 * 0.05 / rounds)
    assert all(count / rounds >= least for count in hits.values()), hits


def test_references_widen_the_interval() -> None:
    losses = made(5, references=3)
    one = Losses(
        **{
            **vars(losses),
            "best": losses.best.mean(0, keepdim=True),
            "best_train": losses.best_train.mean(0, keepdim=True),
        }
    )

    def width(term: Term) -> float:
        return term.interval.high - term.interval.low

    assert width(losses.excess[0]) > width(one.excess[0])
    assert losses.excess[0].value == pytest.approx(one.excess[0].value, abs=1e-12)
