"""Held-out and progressive certificates: what they bound, and which mode is recommended."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mindgap
from mindgap import Certificate, Recipe, Subject, certify
from mindgap.core import binomial_tail_inverse
from mindgap.core.errors import InputError, MindgapError
from mindgap.ops.pac_bayes.bounds import catoni
from mindgap.training.certify.modes import PRIOR_SHARE, StreamModel


def blobs(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two classes that overlap a little."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=source)
    return torch.randn(count, 2, generator=source) + 2 * labels[:, None] - 1, labels


def recipe_of(count: int, **changes: Any) -> Recipe:
    common: dict[str, Any] = {"epochs": 3, "batch_size": 32, "learning_rate": 0.1}
    common |= {"train": blobs(count), "test": blobs(500, seed=9)}
    return Recipe(model=lambda: nn.Linear(2, 2), **{**common, **changes})


def error(model: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    return float((model(data[0]).argmax(1) != data[1]).double().mean())


def test_held_out_bounds_the_network_as_it_is() -> None:
    found = certify(recipe_of(400), mode="held-out")
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    inputs, labels = blobs(400)
    mine, rest = order[:280].sort().values, order[280:]
    trained = mindgap.fit(recipe_of(400, train=(inputs[mine], labels[mine]), test=None)).model
    wrong = round(error(trained, (inputs[rest], labels[rest])) * 120)
    assert (found.samples, found.draws, found.kl) == (120, 0, 0.0)
    assert found.error == wrong / 120
    assert found.bound == binomial_tail_inverse(wrong, 120, 0.05)
    assert found.test_error == pytest.approx(error(trained, blobs(500, seed=9)))
    assert torch.equal(found.model.weight, trained.weight)
    paid = certify(recipe_of(400), mode="held-out", tried=10)
    assert paid.bound == binomial_tail_inverse(wrong, 120, 0.005)
    assert "by this one network with its weights as they are" in found.promise


def test_held_out_takes_a_trained_model() -> None:
    fitted = mindgap.fit(recipe_of(200))
    subject = Subject(fitted.model, "cross_entropy", blobs(200))
    found = certify(subject, held_out=blobs(300, seed=4), mode="held-out")
    assert found.samples == 300
    assert found.bound == binomial_tail_inverse(round(found.error * 300), 300, 0.05)


def test_progressive_judges_each_block_by_a_model_of_what_came_before() -> None:
    found = certify(recipe_of(400), mode="progressive", blocks=4, seed=3)
    assert found.model.sizes == [50] * 4
    order = torch.randperm(400, generator=torch.Generator().manual_seed(3))
    stream = (
        order[200:].sort().values[torch.randperm(200, generator=torch.Generator().manual_seed(4))]
    )
    inputs, labels = blobs(400)
    wrong = 0
    for place, model in enumerate(found.model.models):
        seen = torch.cat([order[:200], stream[: 50 * place]]).sort().values
        again = mindgap.fit(
            recipe_of(400, train=(inputs[seen], labels[seen]), test=None), seed=3
        ).model
        assert torch.equal(model.weight, again.weight)
        block = stream[50 * place : 50 * place + 50]
        wrong += round(50 * error(again, (inputs[block], labels[block])))
    assert found.error == wrong / 200
    assert found.bound == catoni(
        wrong / 200, 0.0, 200, 0.05, inverse_temperature=found.inverse_temperature
    )
    turned = labels.clone()
    turned[order[200:]] = 1 - turned[order[200:]]  # λ may not depend on what the stream shows
    other = certify(recipe_of(400, train=(inputs, turned)), mode="progressive", blocks=4, seed=3)
    assert other.inverse_temperature == found.inverse_temperature
    assert other.error > 0.5 > found.error
    mean = sum(error(model, blobs(500, seed=9)) for model in found.model.models) / 4
    assert found.test_error == pytest.approx(mean)
    assert "if a model of the stream is drawn for every answer" in found.promise
    ten = certify(recipe_of(400), mode="progressive", blocks=4, seed=3, tried=10)
    assert ten.bound == pytest.approx(
        catoni(wrong / 200, math.log(10), 200, 0.05, inverse_temperature=ten.inverse_temperature)
    )


def test_a_stream_draws_one_model_per_answer() -> None:
    class Constant(nn.Module):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.value = value

        def forward(self, inputs: Tensor) -> Tensor:
            return torch.full((len(inputs), 2), self.value)

    model = StreamModel([Constant(0.0), Constant(1.0)], [300, 100])
    assert float(model(torch.zeros(20_000, 3)).mean()) == pytest.approx(0.25, abs=0.02)


def test_the_recommendation_follows_from_the_numbers() -> None:
    held = certify(recipe_of(400), mode="held-out")
    assert f"adds {100 * (held.bound - held.error):.2g} points" in held.recommendation
    noisy = certify(recipe_of(400), draws=1000, epochs=0)
    better = "held-out" if noisy.prior_bound <= noisy.bound else "PAC-Bayes"
    assert noisy.recommendation.startswith(f"Use the {better} mode")
    wide = certify(
        recipe_of(400), draws=1000, epochs=20, prior="initial", scale=0.5, learning_rate=0.1
    )
    assert f"at a KL of {wide.kl:,.0f} nats" in wide.recommendation
    for found in (held, noisy, wide):
        assert found.recommendation in str(found)
        assert Certificate.from_json(found.to_json()) == found


def test_the_default_share_is_nearly_best_if_errors_fall_like_a_power() -> None:
    far = []
    for count in (500, 2000, 10_000, 60_000):
        for last in (0.005, 0.05, 0.2):
            bounds = {}
            for share in (0.5, 0.6, PRIOR_SHARE, 0.8, 0.9):
                held = count - round(share * count)
                wrong = round(last * share**-0.4 * held)
                bounds[share] = binomial_tail_inverse(wrong, held, 0.05)
            far.append(bounds[PRIOR_SHARE] / min(bounds.values()))
    assert sorted(far)[-2] < 1.09
    assert max(far) == far[0] < 1.34  # few samples and hardly an error


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "heldout"}, "held-out"),
        ({"mode": "held-out", "prior": "initial"}, "learned prior"),
        ({"mode": "progressive", "blocks": 1}, "blocks must be from 2"),
        ({"mode": "progressive", "blocks": 10_000}, "blocks must be from 2"),
        ({"mode": "held-out", "draws": 100}, "makes no use of draws, got draws=100"),
        ({"mode": "held-out", "blocks": 3}, "makes no use of blocks, got blocks=3"),
        ({"mode": "progressive", "scale": 0.1, "epochs": 3}, "makes no use of epochs, scale"),
        ({"blocks": 3}, "pass mode='progressive'"),
        ({"prior": "initial", "prior_share": 0.5}, "prior_share belongs to a recipe"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(MindgapError, match=words):
        certify(recipe_of(100), **changes)


def test_a_trained_model_has_no_stream() -> None:
    with pytest.raises(InputError, match="must get a recipe"):
        certify(
            mindgap.fit(recipe_of(50)).subject(), held_out=blobs(50, seed=8), mode="progressive"
        )
