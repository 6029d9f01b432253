"""Members trained at once equal the loop that a user would write, for every engine, optimizer and loss."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core.recipe import Recipe
from mindgap.nets import MLP, LeNet5
from mindgap.training.batches import batches_of
from mindgap.training.ensemble import ensemble
from mindgap.training.vectorized.block import Block, Settings
from mindgap.training.vectorized.members import groups_of, members_of

SEEDS = (3, 5, 1_000_000)
RANDOM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(23, 3, generator=RANDOM)
TARGETS = {
    "mse": torch.randn(23, 2, generator=RANDOM),
    "l1": torch.randn(23, 2, generator=RANDOM),
    "huber": 3 * torch.randn(23, 2, generator=RANDOM),
    "bce": torch.randint(0, 2, (23, 2), generator=RANDOM).float(),
    "cross_entropy": torch.randint(0, 2, (23,), generator=RANDOM),
}
WEIGHTS = torch.rand(len(SEEDS), 23, generator=RANDOM)
IMAGES = torch.randn(13, 1, 28, 28, generator=RANDOM)
LABELS = torch.randint(0, 4, (13,), generator=RANDOM)


class Sine(nn.Module):
    """Not a chain of known layers; with a buffer and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)
        self.shift = nn.Parameter(torch.rand(5), requires_grad=False)
        self.register_buffer("scale", torch.rand(5))

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(torch.sin(self.first(rows) * self.scale + self.shift))


def plain(recipe: Recipe, seed: int, weights: Tensor | None = None) -> nn.Module:
    """The loop that a user would write."""
    inputs, targets = recipe.train
    torch.manual_seed(seed)
    model = recipe.model()
    optimizer = recipe.optimize([p for p in model.parameters() if p.requires_grad])
    for epoch in range(1, recipe.epochs + 1):
        for index in batches_of(len(targets), recipe.batch_size, seed, epoch):
            optimizer.zero_grad()
            losses = per_sample(recipe.loss, model(inputs[index]), targets[index])
            (losses if weights is None else losses * weights[index]).mean().backward()
            optimizer.step()
    return model


def per_sample(loss: object, output: Tensor, target: Tensor) -> Tensor:
    if not isinstance(loss, str):
        return loss(output, target)
    functions = {
        "mse": F.mse_loss,
        "l1": F.l1_loss,
        "huber": F.huber_loss,
        "bce": F.binary_cross_entropy_with_logits,
    }
    if loss == "cross_entropy":
        return F.cross_entropy(output, target, reduction="none")
    return functions[loss](output, target, reduction="none").mean(1)


def difference(left: nn.Module, right: nn.Module) -> float:
    one, two = (nn.utils.parameters_to_vector(m.parameters()).detach() for m in (left, right))
    return float((one - two).norm() / two.norm())


def engine_name(recipe: Recipe, weights: Tensor | None = None) -> str:
    (group,) = groups_of(members_of(recipe, SEEDS, (), {}, weights))
    return type(Block(group.members, group.recipes, Settings(0, True, None)).engine).__name__


def agrees(recipe: Recipe, weights: Tensor | None = None, tolerance: float = 1e-4) -> bool:
    members = ensemble(recipe, SEEDS, sample_weights=weights)
    rows = [None] * len(SEEDS) if weights is None else list(weights)
    models = [plain(recipe, seed, row) for seed, row in zip(SEEDS, rows, strict=True)]
    return all(difference(a.model, b) < tolerance for a, b in zip(members, models, strict=True))


MODELS = {
    "Dense": lambda: MLP((3, 6, 5, 2), "tanh"),
    "Gram": lambda: nn.Linear(3, 2),
    "General": Sine,
}
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.05, "weight_decay": 0.1},
    "momentum": {"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.05},
    "adam": {"learning_rate": 0.02, "weight_decay": 0.1},
    "adamw": {"learning_rate": 0.02, "weight_decay": 0.1},
    "rmsprop": {"learning_rate": 0.01, "momentum": 0.5},
}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("batch_size", [5, 23, 100])
@pytest.mark.parametrize(("model", "optimizer"), list(itertools.product(MODELS, OPTIMIZERS)))
def test_engines_and_optimizers(
    model: str, optimizer: str, batch_size: int, weighted: bool
) -> None:
    settings = {"optimizer": optimizer, **OPTIMIZERS[optimizer]}
    recipe = Recipe(
        model=MODELS[model],
        train=(INPUTS, TARGETS["mse"]),
        loss="mse",
        epochs=4,
        batch_size=batch_size,
        **settings,
    )
    expected = "Dense" if model == "Gram" and batch_size < 23 else model
    assert engine_name(recipe) == expected
    assert agrees(recipe, WEIGHTS if weighted else None)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("batch_size", [6, 64])
@pytest.mark.parametrize("loss", TARGETS)
@pytest.mark.parametrize("model", ["Dense", "General"])
def test_losses(model: str, loss: str, batch_size: int, weighted: bool) -> None:
    recipe = Recipe(
        model=MODELS[model], train=(INPUTS, TARGETS[loss]), loss=loss, epochs=3, batch_size=batch_size,
        optimizer="sgd", learning_rate=0.1,
    )  # fmt: skip
    assert agrees(recipe, WEIGHTS if weighted else None)


@pytest.mark.parametrize("batch_size", [6, 64])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_a_loss_of_the_users_own(batch_size: int, weighted: bool) -> None:
    def quartic(output: Tensor, target: Tensor) -> Tensor:
        return (output - target).pow(4).mean(1)

    recipe = Recipe(
        model=MODELS["Dense"], train=(INPUTS, TARGETS["mse"]), loss=quartic, epochs=3, batch_size=batch_size,
        optimizer="sgd", learning_rate=0.01,
    )  # fmt: skip
    assert engine_name(recipe) == "Dense"
    assert agrees(recipe, WEIGHTS if weighted else None)


@pytest.mark.parametrize(
    "activation", ["relu", "sigmoid", "gelu", "silu", "elu", "softplus", "leaky_relu", "identity"]
)
def test_activations(activation: str) -> None:
    recipe = Recipe(
        model=lambda: MLP((3, 6, 5, 2), activation),
        train=(INPUTS, TARGETS["mse"]),
        loss="mse",
        epochs=3,
        batch_size=6,
    )
    assert engine_name(recipe) == "Dense"
    assert agrees(recipe)


def test_layers_without_bias_and_an_activation_at_the_end() -> None:
    def model() -> nn.Module:
        return nn.Sequential(
            nn.Linear(3, 4, bias=False), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)), nn.Sigmoid()
        )

    for batch_size in (6, 64):
        recipe = Recipe(
            model=model, train=(INPUTS, TARGETS["mse"]), loss="mse", epochs=3, batch_size=batch_size
        )
        assert engine_name(recipe) == "Dense"
        assert agrees(recipe)


def test_many_features_and_flat_targets() -> None:
    wide = torch.randn(23, 4, 10, generator=torch.Generator().manual_seed(1))

    recipe = Recipe(
        model=lambda: MLP((40, 3, 1)),
        train=(wide, TARGETS["mse"][:, :1]),
        loss="mse",
        epochs=3,
        batch_size=6,
    )
    assert engine_name(recipe) == "Dense"
    assert agrees(recipe)
    members = ensemble(recipe.replace(train=(wide, TARGETS["mse"][:, 0])), SEEDS)
    assert all(
        difference(a.model, plain(recipe, seed)) < 1e-4
        for a, seed in zip(members, SEEDS, strict=True)
    )


def small_net(pool: type[nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.Tanh(), pool(2), nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(),
        pool(3, stride=2, padding=1), nn.Flatten(), nn.Linear(36, 6), nn.ReLU(), nn.Linear(6, 4),
    )  # fmt: skip


NETS = {
    "LeNet-5": lambda: LeNet5(4),
    "tanh and averages": lambda: LeNet5(4, activation="tanh", pool="average"),
    "strides and overlap": lambda: small_net(nn.MaxPool2d),
    "average overlap": lambda: small_net(nn.AvgPool2d),
    "odd images, even kernel": lambda: nn.Sequential(
        nn.Conv2d(1, 3, (4, 3), padding=(0, 1), bias=False),
        nn.MaxPool2d(2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(504, 4),
    ),
    "wide first": lambda: nn.Sequential(
        nn.Conv2d(1, 2, 9, dilation=2), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)
    ),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("batch_size", [5, 64])
@pytest.mark.parametrize("net", NETS)
def test_convolutions(net: str, batch_size: int, weighted: bool) -> None:
    recipe = Recipe(
        model=NETS[net], train=(IMAGES, LABELS), loss="cross_entropy", epochs=2, batch_size=batch_size,
        optimizer="sgd", momentum=0.9, learning_rate=0.02,
    )  # fmt: skip
    assert engine_name(recipe) == "Convolutional"
    assert agrees(recipe, WEIGHTS[:, :13] if weighted else None)


def test_equal_pixels_share_the_gradient_as_torch_does() -> None:
    blank = IMAGES.round().clamp(0, 1) * (torch.arange(28) > 12)
    recipe = Recipe(
        model=lambda: LeNet5(4),
        train=(blank, LABELS),
        epochs=3,
        batch_size=5,
        optimizer="sgd",
        learning_rate=0.05,
    )
    assert agrees(recipe, tolerance=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_convolutions_in_double_precision(optimizer: str) -> None:
    settings = {"optimizer": optimizer, **OPTIMIZERS[optimizer], "learning_rate": 0.002}
    recipe = Recipe(
        model=lambda: LeNet5(4).double(),
        train=(IMAGES.double(), LABELS),
        epochs=2,
        batch_size=5,
        **settings,
    )
    assert agrees(recipe, tolerance=1e-8)


def test_each_member_has_its_own_rate_and_decay() -> None:
    rates, decays = [0.01, 0.1, 0.05], [0.0, 0.2, 0.01]
    for optimizer, model in itertools.product(("sgd", "adam", "adamw", "rmsprop"), MODELS):
        recipe = Recipe(
            model=MODELS[model],
            train=(INPUTS, TARGETS["mse"]),
            loss="mse",
            epochs=3,
            batch_size=64,
            optimizer=optimizer,
        )
        members = ensemble(recipe, SEEDS, learning_rates=rates, weight_decays=decays)
        for member, seed, rate, decay in zip(members, SEEDS, rates, decays, strict=True):
            own = recipe.replace(learning_rate=rate, weight_decay=decay)
            assert difference(member.model, plain(own, seed)) < 1e-4
            assert (member.recipe.learning_rate, member.recipe.weight_decay) == (rate, decay)


def test_blocks_do_not_matter() -> None:
    recipe = Recipe(
        model=MODELS["Dense"], train=(INPUTS, TARGETS["mse"]), loss="mse", epochs=3, batch_size=6
    )
    seeds = range(7)
    for one, other in zip(ensemble(recipe, seeds), ensemble(recipe, seeds, block=2), strict=True):
        assert one.seed == other.seed
        assert difference(one.model, other.model) < 1e-6


def test_batches_that_do_not_fit_an_epoch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mindgap.training.vectorized.batches._EPOCH_NUMBERS", 10)
    for narrow in (0, 16):
        monkeypatch.setattr("mindgap.training.vectorized.batches._NARROW", narrow)
        recipe = Recipe(
            model=MODELS["Dense"],
            train=(INPUTS, TARGETS["mse"]),
            loss="mse",
            epochs=3,
            batch_size=6,
        )
        assert agrees(recipe, WEIGHTS)
