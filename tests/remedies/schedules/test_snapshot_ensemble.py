"""Snapshot ensembles: the schedule, the snapshots and the averaged predictions, written out."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from cases import recipe
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.recipe import Recipe
from mindgap.core.remedy import Remedy, TrainingState
from mindgap.core.spec import REGISTRY
from mindgap.nets import MLP
from mindgap.remedies import EarlyStopping, SnapshotEnsemble
from mindgap.training.ensemble import ensemble
from mindgap.training.fit import fit

X = torch.linspace(-1, 1, 12)[:, None]
STORED: list[nn.Module] = []


class Storing(Remedy):
    """Stores a copy of the model after every epoch."""

    strength = "power"
    power: float = 1.0

    def after_epoch(self, state: TrainingState) -> bool:
        STORED.append(copy.deepcopy(state.model).eval())
        return False


del REGISTRY["remedy"][Storing.name]


def regression(**changes: object) -> Recipe:
    fields = {"epochs": 6, "batch_size": 4, "learning_rate": 0.05, "optimizer": "sgd"}
    return Recipe(model=lambda: MLP((1, 5, 1)), train=(X, X**2), loss="mse", **(fields | changes))


def stored(plan: Recipe, remedy: SnapshotEnsemble) -> tuple[nn.Module, list[nn.Module]]:
    STORED.clear()
    found = fit(plan, [Storing(), remedy], seed=2).model
    return found, list(STORED)


@pytest.mark.parametrize(
    ("cycles", "ends"), [(1, [6]), (2, [3, 6]), (3, [2, 4, 6]), (4, [2, 4, 6])]
)
def test_averages_the_outputs_at_the_ends_of_cycles(cycles: int, ends: list[int]) -> None:
    model, states = stored(regression(), SnapshotEnsemble(cycles=cycles))
    wanted = torch.stack([states[end - 1](X) for end in ends]).mean(0)
    assert torch.allclose(model(X), wanted, atol=1e-6)
    assert SnapshotEnsemble(cycles=cycles).ends(6) == ends


def test_averages_the_probabilities_of_a_classification() -> None:
    plan = recipe(epochs=6)
    model, states = stored(plan, SnapshotEnsemble(cycles=3))
    inputs: Tensor = plan.train[0]
    wanted = torch.stack([states[k](inputs).softmax(1) for k in (1, 3, 5)]).mean(0)
    assert torch.allclose(model(inputs).softmax(1), wanted, atol=1e-6)
    assert torch.allclose(model(inputs).exp().sum(1), torch.ones(len(inputs)), atol=1e-5)


def test_the_rate_is_the_one_of_the_paper() -> None:
    state = TrainingState(model=nn.Identity(), optimizer=None, epochs=7)  # type: ignore[arg-type]
    found = list[float]()
    for epoch in range(1, 8):
        state.epoch = epoch
        found.append(SnapshotEnsemble(cycles=2, peak=3.0).rate_factor(state))
    length = math.ceil(7 / 2)
    wanted = [1.5 * (math.cos(math.pi * ((e - 1) % length) / length) + 1) for e in range(1, 8)]
    assert found == pytest.approx(wanted, abs=1e-12)


def test_members_of_an_ensemble_have_their_own_cycles_and_snapshots() -> None:
    lists = [[SnapshotEnsemble(cycles=2)], [SnapshotEnsemble(cycles=3)]]
    for member, remedies in zip(ensemble(regression(), (4, 5), remedies=lists), lists, strict=True):
        alone = fit(regression(), remedies, seed=member.seed).model
        assert torch.allclose(member.model(X), alone(X), atol=1e-5)
        assert int(member.model.get_buffer("snapshots")) == remedies[0].cycles - 1


def test_batch_normalization_keeps_the_statistics_of_every_snapshot() -> None:
    plan = regression().replace(model=lambda: MLP((1, 5, 1), norm="batch"))
    model, states = stored(plan, SnapshotEnsemble(cycles=2))
    wanted = (states[2](X) + states[5](X)) / 2
    assert torch.allclose(model(X), wanted, atol=1e-6)


def test_a_copy_and_training_mode_behave() -> None:
    model, states = stored(regression(), SnapshotEnsemble(cycles=2))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[1].weight.zero_()
    assert torch.allclose(model(X), (states[2](X) + states[5](X)) / 2, atol=1e-6)
    assert not torch.allclose(twin(X), model(X))
    assert torch.allclose(model.train()(X), states[5](X), atol=1e-6)


def test_plain_weights_make_it_plain_again() -> None:
    model, states = stored(regression(), SnapshotEnsemble(cycles=2))
    model.load_state_dict(states[0].state_dict())
    assert torch.equal(model(X), states[0](X))
    stopped = fit(regression(epochs=8), [SnapshotEnsemble(cycles=2), EarlyStopping(patience=9)])
    assert int(stopped.model.get_buffer("snapshots")) == 0


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(InputError, match="number of epochs"):
        SnapshotEnsemble().ends(0)
    once = SnapshotEnsemble(cycles=2).attach(nn.Linear(1, 1))
    with pytest.raises(InputError, match="plain model"):
        SnapshotEnsemble(cycles=2).attach(once)
    state = TrainingState(model=nn.Linear(1, 1), optimizer=None, epoch=2, epochs=2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="task"):
        SnapshotEnsemble(cycles=2).finish(state)
