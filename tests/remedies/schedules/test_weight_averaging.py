"""Weight averaging hands over the mean of stored weights, as torch's AveragedModel does."""

from __future__ import annotations

import warnings

import pytest
import torch
from cases import recipe
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, update_bn

from mindgap.core.errors import InputError
from mindgap.core.recipe import Recipe
from mindgap.core.remedy import Remedy, TrainingState
from mindgap.core.spec import REGISTRY
from mindgap.nets import MLP
from mindgap.remedies import WeightAveraging
from mindgap.training.ensemble import SequentialNotice, ensemble
from mindgap.training.fit import fit


class Kept(Remedy):
    """Stores the weights of every epoch, and averages them with torch."""

    strength = "power"
    power: float = 1.0

    def after_epoch(self, state: TrainingState) -> bool:
        STORED.append(
            {name: value.detach().clone() for name, value in state.model.state_dict().items()}
        )
        return False


del REGISTRY["remedy"][Kept.name]
STORED: list[dict[str, Tensor]] = []


def stored(plan: Recipe, seed: int = 0) -> list[dict[str, Tensor]]:
    STORED.clear()
    fit(plan, [Kept()], seed=seed)
    return list(STORED)


@pytest.mark.parametrize(("share", "last"), [(0.5, 3), (0.2, 2), (1.0, 6), (0.01, 1)])
def test_is_the_mean_of_the_last_epochs(share: float, last: int) -> None:
    plan = recipe(epochs=6)
    states = stored(plan)
    found = fit(plan, [WeightAveraging(share=share)]).model.state_dict()
    for name, value in found.items():
        mean = torch.stack([state[name].double() for state in states[-last:]]).mean(0)
        assert torch.allclose(value.double(), mean, atol=1e-6), name


def normalized() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )


def test_recomputes_batch_normalization_as_torch_does() -> None:
    plan = recipe(model=normalized, epochs=6)
    found = fit(plan, [WeightAveraging()]).model
    model = plan.build(0)
    averaged = AveragedModel(model)
    for state in stored(plan)[-3:]:
        model.load_state_dict(state)
        averaged.update_parameters(model)
    update_bn([plan.train[0]], averaged)
    for one, other in zip(
        found.state_dict().values(), averaged.module.state_dict().values(), strict=True
    ):
        assert torch.allclose(one.double(), other.double(), atol=1e-5)
    assert found[1].momentum == 0.1
    assert not any(module.training for module in found.modules())


def test_batch_normalization_needs_the_training_data() -> None:
    remedy, model = WeightAveraging(), normalized()
    state = TrainingState(model=model, optimizer=None, epoch=1, epochs=1)
    remedy.after_epoch(state)
    with pytest.raises(InputError, match="must see the training data"):
        remedy.finish(state)
    with pytest.raises(InputError, match="must know the number of epochs"):
        remedy.after_epoch(TrainingState(model=model, optimizer=None, epoch=1))


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_an_ensemble_averages_all_members_at_once(norm: str) -> None:
    plan = recipe(model=lambda: MLP((4, 8, 3), norm=norm), epochs=7)
    lists = [[WeightAveraging(share=share)] for share in (0.2, 0.5, 1.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", SequentialNotice)
        members = ensemble(plan, (1, 2, 3), remedies=lists)
    for member, own in zip(members, lists, strict=True):
        alone = fit(plan, own, seed=member.seed).model
        for one, other in zip(member.model.parameters(), alone.parameters(), strict=True):
            assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_a_member_that_diverges_keeps_the_mean_of_its_complete_epochs(share: float) -> None:
    """One rate diverges after some epochs; the other member must not be disturbed."""
    inputs = torch.linspace(-1, 1, 12)[:, None]
    plan = Recipe(model=lambda: MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    plan = plan.replace(optimizer="sgd", epochs=40, batch_size=4)
    rates = (1e30, 0.05, 30.0)
    own = [WeightAveraging(share=share)]
    members = ensemble(plan, (1, 1, 1), remedies=own, learning_rates=rates)
    assert [member.diverged for member in members] == [True, False, True]
    for member, rate in zip(members, rates, strict=True):
        alone = fit(plan.replace(learning_rate=rate), own, seed=1)
        assert alone.epochs == member.epochs
        for one, other in zip(member.model.parameters(), alone.model.parameters(), strict=True):
            assert torch.isfinite(one).all()
            assert torch.allclose(one, other, rtol=1e-3, atol=1e-5)
