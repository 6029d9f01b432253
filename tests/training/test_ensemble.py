"""What ensemble does besides training: fallbacks, divergence, remedies, curves, purity, bad input."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.recipe import Recipe
from mindgap.core.remedy import Remedy, TrainingState
from mindgap.core.spec import REGISTRY
from mindgap.nets import MLP
from mindgap.remedies import Dropout, EarlyStopping, GradientClipping, WeightDecay
from mindgap.training.ensemble import SequentialNotice, ensemble
from mindgap.training.fit import fit
from mindgap.training.fitted import Fitted
from mindgap.training.vectorized.loop import Drive

SEEDS = (1, 2, 7)
RANDOM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(20, 3, generator=RANDOM)
VALUES = torch.randn(20, 1, generator=RANDOM)
CLASSES = torch.randint(0, 3, (20,), generator=RANDOM)


def regression(**changes: object) -> Recipe:
    settings = {
        "optimizer": "sgd",
        "learning_rate": 0.05,
        "epochs": 4,
        "batch_size": 6,
        "loss": "mse",
        **changes,
    }
    return Recipe(
        **{"model": lambda: MLP((3, 5, 1), "tanh"), "train": (INPUTS, VALUES), **settings}
    )


def classification(**changes: object) -> Recipe:
    data = {"train": (INPUTS, CLASSES), "test": (INPUTS[:7], CLASSES[:7])}
    return Recipe(
        **{"model": lambda: MLP((3, 5, 3)), **data, "epochs": 3, "batch_size": 6, **changes}
    )


def same(left: Fitted, right: Fitted, tolerance: float = 1e-4) -> bool:
    one, two = (nn.utils.parameters_to_vector(f.model.parameters()).detach() for f in (left, right))
    near = bool((one - two).norm() <= tolerance * two.norm())
    began = all(torch.equal(value, right.initial[name]) for name, value in left.initial.items())
    return (
        near
        and began
        and (left.epochs, left.stopped, left.seed) == (right.epochs, right.stopped, right.seed)
    )


def close_curves(left: Fitted, right: Fitted) -> bool:
    rows = list(zip(left.history, right.history, strict=True))
    return all(one == pytest.approx(dict(two), rel=1e-4, abs=1e-6) for one, two in rows)


class Halved(Remedy):
    """A remedy that only prepares."""

    strength = "share"
    share: float = 0.5

    def prepare(self, recipe: Recipe, data: object) -> Recipe:
        return recipe.replace(learning_rate=recipe.learning_rate * self.share)


class Watched(Remedy):
    """A remedy with a hook that nothing vectorizes."""

    strength = "share"
    share: float = 0.5

    def weights(self, state: TrainingState, index: Tensor) -> Tensor:
        return self.share + index % 2


for invented in (Halved, Watched):
    del REGISTRY["remedy"][invented.name]  # the contracts are for the package's own remedies


class Branching(nn.Module):
    """Its path depends on the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, rows: Tensor) -> Tensor:
        return self.layer(rows) if rows.sum() > 0 else 2 * self.layer(rows)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def test_the_curves_are_those_of_fit() -> None:
    for recipe in (
        regression(),
        classification(),
        classification(loss="bce", train=(INPUTS, INPUTS.gt(0).float()), test=None),
    ):
        members = ensemble(recipe, SEEDS, evaluate_every=2)
        plain = [fit(recipe, seed=seed, evaluate_every=2) for seed in SEEDS]
        assert all(same(a, b) and close_curves(a, b) for a, b in zip(members, plain, strict=True))


@pytest.mark.parametrize("weights", [False, True])
def test_a_layer_that_is_called_twice(weights: bool) -> None:
    def model() -> nn.Module:
        bend, dense = nn.Tanh(), nn.Linear(5, 5)
        last = dense if weights else nn.Linear(5, 5)
        return nn.Sequential(nn.Linear(3, 5), bend, dense, bend, last, nn.Linear(5, 1))

    recipe = regression(model=model)
    plain = [fit(recipe, seed=seed, evaluate_every=0) for seed in SEEDS]
    assert all(same(a, b) for a, b in zip(ensemble(recipe, SEEDS), plain, strict=True))


def test_without_curves() -> None:
    assert all(member.history == () for member in ensemble(regression(), SEEDS, keep_history=False))


def test_a_model_ends_in_evaluation_mode_and_can_be_examined() -> None:
    (member,) = ensemble(classification(), [4])
    assert not member.model.training
    assert len(member.subject().losses("train")) == 20


@pytest.mark.parametrize("batch_size", [6, 64])
@pytest.mark.parametrize("model", [None, lambda: nn.Linear(3, 1)], ids=["dense", "linear"])
def test_a_diverging_member_harms_no_other(
    batch_size: int, model: Callable[[], nn.Module] | None
) -> None:
    recipe = regression(
        epochs=300, batch_size=batch_size, **({} if model is None else {"model": model})
    )
    rates = [0.02, 60.0, 0.03]
    members = ensemble(recipe, SEEDS, learning_rates=rates)
    plain = [
        fit(recipe.replace(learning_rate=r), seed=s, evaluate_every=0)
        for r, s in zip(rates, SEEDS, strict=True)
    ]
    assert [member.diverged for member in members] == [False, plain[1].diverged, False]
    assert same(members[0], plain[0])
    assert same(members[2], plain[2])
    if plain[1].diverged:
        assert abs(members[1].epochs - plain[1].epochs) <= 1
        assert all(torch.isfinite(p).all() for p in members[1].model.parameters())
        assert len(members[1].history) == members[1].epochs


def test_the_linear_case_above_does_diverge() -> None:
    recipe = regression(epochs=300, batch_size=64, model=lambda: nn.Linear(3, 1))
    assert ensemble(recipe, [0], learning_rates=[60.0])[0].stopped.startswith(
        "diverged: the loss became"
    )


@pytest.mark.parametrize(
    ("remedies", "reason"),
    [
        ((EarlyStopping(patience=2),), "early-stopping"),
        ((Watched(),), "weights"),
    ],
    ids=["early stopping", "unknown hook"],
)
def test_remedies_that_do_not_vectorize_fall_back_to_fit(
    remedies: tuple[Remedy, ...], reason: str
) -> None:
    with pytest.warns(SequentialNotice, match=reason):
        members = ensemble(regression(), SEEDS, remedies=remedies)
    plain = [fit(regression(), remedies, seed=seed, evaluate_every=0) for seed in SEEDS]
    assert all(same(a, b, 0) and close_curves(a, b) for a, b in zip(members, plain, strict=True))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": normed}, "BatchNorm1d keeps statistics"),
        ({"model": Branching}, "vmap refuses"),
        ({"validation": 0.2}, "validation"),
        ({"optimizer": lambda p: torch.optim.Adadelta(p)}, "Adadelta"),
        ({"optimizer": lambda p: torch.optim.Adam(p, amsgrad=True)}, "amsgrad"),
        (
            {"schedule": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=9)},
            "more than the step size",
        ),
    ],
    ids=["batch norm", "control flow", "validation", "optimizer", "option", "schedule"],
)
def test_recipes_that_do_not_vectorize_fall_back_to_fit(
    changes: dict[str, object], reason: str
) -> None:
    recipe = regression(momentum=0.5, **changes)
    with pytest.warns(SequentialNotice, match=reason):
        members = ensemble(recipe, SEEDS)
    plain = [fit(recipe, seed=seed, evaluate_every=0) for seed in SEEDS]
    assert all(same(a, b, 0) for a, b in zip(members, plain, strict=True))


@pytest.mark.parametrize("batch_size", [6, 64])
@pytest.mark.parametrize("model", [None, lambda: nn.Linear(3, 1)], ids=["dense", "linear"])
@pytest.mark.parametrize(
    "remedies",
    [
        (GradientClipping(max_norm=0.1),),
        (WeightDecay(decay=0.3),),
        (WeightDecay(decay=0.3, decoupled=False), GradientClipping(max_norm=0.2)),
        (Halved(),),
        (GradientClipping(max_norm=0.0),),
    ],
    ids=["clip", "decay", "coupled decay and clip", "prepare only", "off"],
)
def test_remedies_that_vectorize(
    remedies: tuple[Remedy, ...], model: Callable[[], nn.Module] | None, batch_size: int
) -> None:
    recipe = regression(batch_size=batch_size, **({} if model is None else {"model": model}))
    members = ensemble(recipe, SEEDS, remedies=remedies)
    plain = [fit(recipe, remedies, seed=seed, evaluate_every=0) for seed in SEEDS]
    assert all(same(a, b) and close_curves(a, b) for a, b in zip(members, plain, strict=True))


def test_each_member_may_have_its_own_remedies() -> None:
    lists = [
        (GradientClipping(max_norm=0.1),),
        (GradientClipping(max_norm=0.3),),
        (WeightDecay(decay=0.2),),
    ]
    members = ensemble(regression(), SEEDS, remedies=lists, learning_rates=[0.1, 0.2, 0.3])
    for member, own, rate, seed in zip(members, lists, (0.1, 0.2, 0.3), SEEDS, strict=True):
        assert same(member, fit(regression(learning_rate=rate), own, seed=seed))


@pytest.mark.parametrize(
    "model", [lambda: MLP((3, 200, 1), "tanh"), lambda: MLP((3, 200, 1), "tanh", norm="layer")]
)
def test_dropout_is_right_on_average(model: Callable[[], nn.Module]) -> None:
    recipe, remedies = (
        regression(model=model, epochs=1, batch_size=64, learning_rate=0.1),
        (Dropout(rate=0.5),),
    )
    members = ensemble(recipe, range(60), remedies=remedies)
    assert not any(module._forward_pre_hooks for module in members[0].model.modules())
    plain = [fit(recipe, remedies, seed=seed, evaluate_every=0) for seed in range(60)]
    steps = [torch.stack([_step(f) for f in found]) for found in (members, plain)]
    assert not torch.allclose(*steps)
    error = (steps[0].var(0) / 60 + steps[1].var(0) / 60).sqrt()
    distance = (steps[0].mean(0) - steps[1].mean(0)).abs() / error.clamp_min(1e-9)
    assert distance.mean() < 1.2
    losses = [
        torch.tensor([f.history[0]["running_loss"] for f in found]) for found in (members, plain)
    ]
    assert losses[0].mean() == pytest.approx(float(losses[1].mean()), rel=0.1)


def _step(fitted: Fitted) -> Tensor:
    return torch.cat(
        [
            (value - fitted.initial[name]).flatten()
            for name, value in fitted.model.state_dict().items()
        ]
    )


def test_schedules_and_optimizers_of_the_users_own() -> None:
    def schedule(optimizer: torch.optim.Optimizer) -> object:
        return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.3)

    def nesterov(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.07, momentum=0.8, nesterov=True, weight_decay=0.01)

    recipe = regression(schedule=schedule, epochs=6)
    for member, rate, seed in zip(
        ensemble(recipe, SEEDS, learning_rates=[0.1, 0.2, 0.1]), (0.1, 0.2, 0.1), SEEDS, strict=True
    ):
        assert same(member, fit(recipe.replace(learning_rate=rate), seed=seed))
    own = regression(optimizer=nesterov)
    assert all(same(m, fit(own, seed=s)) for m, s in zip(ensemble(own, SEEDS), SEEDS, strict=True))


def test_several_inputs_by_name() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return self.layer(left * right)

    recipe = regression(model=Pair, train={"left": INPUTS, "right": INPUTS.cos(), "labels": VALUES})
    assert all(
        same(m, fit(recipe, seed=s)) for m, s in zip(ensemble(recipe, SEEDS), SEEDS, strict=True)
    )


def test_nothing_of_the_users_is_changed() -> None:
    inputs, values = INPUTS.clone(), VALUES.clone()
    for recipe in (
        regression(),
        regression(model=lambda: nn.Linear(3, 1), batch_size=64),
        regression(model=normed_layer),
    ):
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
        ensemble(recipe, SEEDS, remedies=(Dropout(rate=0.5),) if recipe.batch_size == 6 else ())
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]
    assert torch.equal(INPUTS, inputs)
    assert torch.equal(VALUES, values)


def normed_layer() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1))


def test_no_members_and_no_epochs() -> None:
    assert ensemble(regression(), []) == ()
    (member,) = ensemble(regression(epochs=0), [3])
    assert same(member, fit(regression(epochs=0), seed=3), 0)


def test_interruption_keeps_whole_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Drive._epoch

    def interrupted(self: Drive, epoch: int) -> None:
        if epoch == 40:
            raise KeyboardInterrupt
        whole(self, epoch)

    recipe = regression(epochs=60)
    monkeypatch.setattr(Drive, "_epoch", interrupted)
    members = ensemble(recipe, SEEDS, block=2)
    monkeypatch.undo()
    kept = members[0].epochs
    assert [member.epochs for member in members] == [kept, kept, 0]
    assert members[2].stopped == "interrupted before the first epoch"
    assert members[0].stopped == f"interrupted in epoch {kept + 1}"
    expected = fit(recipe.replace(epochs=kept), seed=1)
    assert torch.allclose(_step(members[0]), _step(expected), atol=1e-5)


def test_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    ensemble(regression(), SEEDS, progress=True)
    assert "4/4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"learning_rates": [0.1]}, "learning_rate must be 3 finite numbers"),
        ({"learning_rates": [0.1, -1, 0.1]}, "learning_rate must be a number above 0"),
        ({"weight_decays": [0.1, float("nan"), 0]}, "weight_decays must be a sequence of numbers"),
        ({"sample_weights": torch.ones(3, 4)}, r"shape \(3, 20\)"),
        ({"sample_weights": -torch.ones(3, 20)}, "not negative"),
        ({"remedies": [(), ()]}, "one list for all members or 3 lists"),
        ({"block": 0}, "block must be"),
        ({"evaluate_every": -1}, "evaluate_every must be"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ensemble(regression(), SEEDS, **arguments)


def test_rates_of_members_need_a_named_optimizer() -> None:
    recipe = regression(optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    with pytest.raises(InputError, match="named in the recipe"):
        ensemble(recipe, SEEDS, learning_rates=[0.1, 0.2, 0.3])
