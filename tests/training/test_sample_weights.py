"""Sample weights as a function of the training data."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mindgap import Recipe, ensemble, fit
from mindgap.core.split import Split
from mindgap.training.ensemble import SequentialNotice

INPUTS = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0).long()


def weights(split: Split) -> Tensor:
    return 1.0 + split.targets


def recipe(**changes: object) -> Recipe:
    common = {"model": lambda: nn.Linear(2, 2), "train": (INPUTS, LABELS), "epochs": 2}
    return Recipe(**{**common, **changes})


def test_a_function_gives_what_its_weights_give() -> None:
    one, other = (fit(recipe(sample_weights=given)) for given in (weights, 1.0 + LABELS))
    assert torch.equal(one.model.weight, other.model.weight)
    assert not torch.equal(one.model.weight, fit(recipe()).model.weight)


def test_validation_samples_are_held_out_before() -> None:
    seen = []

    def counted(split: Split) -> Tensor:
        seen.append(len(split))
        return weights(split)

    one, other = (
        fit(recipe(sample_weights=given, validation=0.25)) for given in (counted, 1.0 + LABELS)
    )
    assert set(seen) == {30}
    assert torch.equal(one.model.weight, other.model.weight)


def test_an_ensemble_trains_one_by_one() -> None:
    with pytest.warns(SequentialNotice, match="function of the training data"):
        members = ensemble(recipe(sample_weights=weights), seeds=[0, 1])
    alone = fit(recipe(sample_weights=weights), seed=1, evaluate_every=0)
    assert torch.equal(members[1].model.weight, alone.model.weight)
