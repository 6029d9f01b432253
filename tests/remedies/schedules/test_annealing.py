"""Annealing takes the rates of torch's schedulers, and leaves the recipe's schedule its own."""

from __future__ import annotations

import pytest
import torch
from cases import recipe
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.remedy import Remedy, TrainingState
from mindgap.core.spec import REGISTRY
from mindgap.remedies import Annealing, PlateauAnnealing
from mindgap.training.ensemble import ensemble
from mindgap.training.fit import fit


def near(left: nn.Module, right: nn.Module) -> bool:
    pairs = zip(left.parameters(), right.parameters(), strict=True)
    return all(torch.allclose(one, other, atol=1e-6) for one, other in pairs)


def cosine(optimizer: torch.optim.Optimizer) -> object:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)


def halving(optimizer: torch.optim.Optimizer) -> object:
    return torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_equals_torchs_cosine(optimizer: str) -> None:
    plan = recipe(epochs=6, optimizer=optimizer)
    assert near(fit(plan, [Annealing()]).model, fit(plan.replace(schedule=cosine)).model)


def test_the_peak_multiplies_the_rate_and_the_depth_limits_the_fall() -> None:
    plan = recipe(epochs=6, optimizer="sgd", learning_rate=0.02)
    raised = plan.replace(learning_rate=0.06, schedule=cosine)
    assert near(fit(plan, [Annealing(peak=3.0)]).model, fit(raised).model)
    floor = lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(  # noqa: E731
        optimizer, T_max=6, eta_min=0.25 * 0.02
    )
    assert near(fit(plan, [Annealing(depth=0.75)]).model, fit(plan.replace(schedule=floor)).model)


def test_a_schedule_of_the_recipe_keeps_its_effect() -> None:
    plan = recipe(epochs=6, optimizer="sgd", schedule=halving)
    rates = []

    class Watched(Remedy):
        strength = "power"
        power: float = 1.0

        def after_step(self, state: TrainingState) -> None:
            rates.append(state.optimizer.param_groups[0]["lr"])

    del REGISTRY["remedy"][Watched.name]
    fit(plan, [Annealing(), Watched()])
    states = [
        TrainingState(model=nn.Identity(), optimizer=None, epoch=e + 1, epochs=6) for e in range(6)
    ]
    wanted = [0.05 * 0.5 ** (e // 2) * Annealing().rate_factor(states[e]) for e in range(6)]
    assert rates[::5] == pytest.approx(wanted)


def test_members_may_anneal_differently() -> None:
    plan = recipe(epochs=6, schedule=halving)
    lists = [[Annealing()], [Annealing(depth=0.5, peak=2.0)], [Annealing(depth=0.2)]]
    for member, own in zip(ensemble(plan, (1, 1, 2), remedies=lists), lists, strict=True):
        alone = fit(plan, own, seed=member.seed).model
        pairs = zip(member.model.parameters(), alone.parameters(), strict=True)
        assert all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)


def test_without_a_number_of_epochs_it_is_refused() -> None:
    with pytest.raises(InputError, match="must know the number of epochs"):
        Annealing().rate_factor(TrainingState(model=nn.Identity(), optimizer=None, epoch=1))


def plateau(losses: list[float], **settings: float) -> list[float]:
    """The rates of the remedy in epochs whose validation losses are given."""
    remedy, given = PlateauAnnealing(**settings), iter(losses)
    state = TrainingState(model=nn.Identity(), optimizer=None, validate=lambda: next(given))
    rates = []
    for _ in losses:
        remedy.after_epoch(state)
        rates.append(remedy.rate_factor(state))
    return rates


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_the_plateau_is_torchs(patience: int) -> None:
    noise = torch.rand(60, generator=torch.Generator().manual_seed(patience))
    losses: Tensor = 1 / torch.arange(1, 61) + 0.2 * noise
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=patience)
    wanted = []
    for loss in losses.tolist():
        theirs.step(loss)
        wanted.append(optimizer.param_groups[0]["lr"])
    found = plateau(losses.tolist(), cut=0.7, patience=patience)
    big = [rate > 1e-7 for rate in wanted]  # torch makes no step below 1e-8
    assert [r for r, b in zip(found, big, strict=True) if b] == pytest.approx(
        [r for r, b in zip(wanted, big, strict=True) if b]
    )
    assert len(set(found)) > 2


def test_the_plateau_is_seen_on_held_out_training_data() -> None:
    fitted = fit(recipe(epochs=30), [PlateauAnnealing(cut=0.9, patience=0, share=0.25)])
    assert len(fitted.recipe.splits()[0]) == 36
    assert "validation_loss" in fitted.history[0]
