"""Fitted signs: one training per sign vector, and a lower estimate of a known complexity."""

import itertools

import torch

from mindgap.core import Recipe, Subject
from mindgap.measures import FittedSigns
from mindgap.measures.stability.fitted_signs import both_labels
from mindgap.nets import MLP
from mindgap.ops.rademacher import random_signs
from mindgap.training.fit import fit

X = torch.tensor([[1.0, 0.2], [0.3, 1.0], [-1.0, 0.4], [0.5, -1.0], [-0.6, -0.7], [1.0, 1.0]])


def subject(model: object, **changes: object) -> Subject:
    data = X, torch.tensor([0, 1, 0, 1, 0, 1])
    settings = {"epochs": 300, "batch_size": 6, "learning_rate": 0.05, **changes}
    recipe = Recipe(model=model, train=data, **settings)
    return Subject(recipe.build(0), "cross_entropy", data, recipe=recipe)


def test_lies_below_the_complexity_of_all_half_planes() -> None:
    """All ways in which a line through the origin separates six points are few enough to list."""
    angles = torch.linspace(0, 2 * torch.pi, 20_001)
    planes = (X @ torch.stack([angles.cos(), angles.sin()])).sign().T.unique(dim=0)
    signs = random_signs(20, 6, 0)
    best = (signs @ planes.T / 6).amax(1).mean()
    linear = subject(lambda: torch.nn.Linear(2, 2, bias=False))
    result = FittedSigns(draws=20)(linear)
    assert best - 0.2 < result.value <= best  # cross entropy is not the error that counts


def test_a_wide_network_learns_all_signs() -> None:
    result = FittedSigns(draws=6)(subject(lambda: MLP((2, 64, 2))))
    assert result.value == 1
    assert result.terms["error_on_signs"] == 0
    assert result.standard_error == 0


def test_equals_training_on_the_labels_themselves() -> None:
    """A weight of zero chooses the label: the same network as with the label alone."""
    one = subject(lambda: MLP((2, 8, 2)), epochs=20)
    recipe, (sign,) = both_labels(one), random_signs(1, 6, 4)
    doubled = fit(recipe.replace(sample_weights=2.0 * torch.cat([sign > 0, sign < 0])))
    plain = fit(one.recipe.replace(train=(X, ((sign + 1) / 2).long())))
    pairs = zip(doubled.model.parameters(), plain.model.parameters(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)


def test_takes_regressions_and_named_inputs() -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = MLP((2, 32, 1))

        def forward(self, first: torch.Tensor) -> torch.Tensor:
            return self.net(first)

    data = {"first": X, "y": X.sum(1, keepdim=True)}
    recipe = Recipe(model=Named, train=data, loss="mse", target="y", epochs=200, learning_rate=0.02)
    result = FittedSigns(draws=3)(Subject(recipe.build(0), "mse", data, target="y", recipe=recipe))
    assert result.value > 0.8


def test_signs_are_balanced() -> None:
    rows = {tuple(row.tolist()) for row in random_signs(200, 3, 0)}
    assert rows == set(itertools.product((-1.0, 1.0), repeat=3))
