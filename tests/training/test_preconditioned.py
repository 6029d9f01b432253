"""Shampoo and K-FAC against matrices that are written out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mindgap.core import InputError
from mindgap.training.preconditioned import (
    KFAC,
    Shampoo,
    damped_inverses,
    kronecker_factors,
    symmetric_power,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def power(matrix: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag(values**exponent) @ vectors.T


@pytest.mark.parametrize("exponent", [-0.5, -0.25, 1.0])
def test_powers_of_symmetric_matrices(exponent: float) -> None:
    rows = draw(6, 9)
    matrix = rows @ rows.T
    found = symmetric_power(matrix, exponent)
    again = torch.linalg.matrix_power(found, round(1 / abs(exponent)))
    wanted = matrix if exponent > 0 else torch.linalg.inv(matrix)
    torch.testing.assert_close(again, wanted, rtol=1e-9, atol=1e-9)


def test_two_steps_of_shampoo_on_a_matrix() -> None:
    weight = nn.Parameter(draw(3, 4))
    before, first, second = weight.detach().clone(), draw(3, 4, seed=1), draw(3, 4, seed=2)
    optimizer = Shampoo([weight], lr=0.5, momentum=0.9, epsilon=0.1, refresh=1)
    for gradient in (first, second):
        weight.grad = gradient
        optimizer.step()

    def step(gradients: list[Tensor]) -> Tensor:
        left = 0.1 * torch.eye(3).double() + sum(g @ g.T for g in gradients)
        right = 0.1 * torch.eye(4).double() + sum(g.T @ g for g in gradients)
        return power(left, -0.25) @ gradients[-1] @ power(right, -0.25)

    moves = [step([first]), step([first, second])]
    wanted = before - 0.5 * (moves[0] + 0.9 * moves[0] + moves[1])
    torch.testing.assert_close(weight.detach(), wanted)


def test_shampoo_on_a_tensor_equals_the_kronecker_product_of_its_roots() -> None:
    weight, gradient = nn.Parameter(torch.zeros(2, 3, 4).double()), draw(2, 3, 4, seed=3)
    weight.grad = gradient
    Shampoo([weight], lr=1.0, momentum=0.0, epsilon=0.2, refresh=1).step()
    roots = []
    for axis in range(3):
        rows = gradient.movedim(axis, 0).flatten(1)
        roots.append(power(0.2 * torch.eye(len(rows)).double() + rows @ rows.T, -1 / 6))
    whole = torch.kron(torch.kron(roots[0], roots[1]), roots[2])
    torch.testing.assert_close(-weight.detach().flatten(), whole @ gradient.flatten())


def test_shampoo_leaves_long_dimensions_and_missing_gradients_alone() -> None:
    table, idle = nn.Parameter(torch.zeros(50, 2).double()), nn.Parameter(torch.ones(2))
    table.grad = draw(50, 2)
    Shampoo([table, idle], lr=1.0, momentum=0.0, epsilon=0.1, largest=10).step()
    right = 0.1 * torch.eye(2).double() + table.grad.T @ table.grad
    torch.testing.assert_close(-table.detach(), table.grad @ power(right, -0.5))
    assert idle.detach().equal(torch.ones(2))


class Convolved(nn.Module):
    """A convolution with stride and padding, and a linear layer without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, stride=2, padding=1)
        self.second = nn.Linear(12, 4, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits."""
        logits: Tensor = self.second(self.first(images).relu().flatten(1))
        return logits


def patch_factors(layer: nn.Conv2d, images: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """One position after the other."""
    padded = functional.pad(images, (1, 1, 1, 1))
    inputs, outputs = torch.zeros(19, 19).double(), torch.zeros(3, 3).double()
    count = 0
    for sample in range(len(images)):
        for row in range(slopes.shape[2]):
            for column in range(slopes.shape[3]):
                patch = padded[sample, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
                seen = torch.cat([patch.flatten(), torch.ones(1).double()])
                slope = slopes[sample, :, row, column]
                inputs += torch.outer(seen, seen)
                outputs += torch.outer(slope, slope)
                count += 1
    return inputs / len(images), outputs / count


def test_factors_of_a_convolution() -> None:
    layer, images = nn.Conv2d(2, 3, 3, stride=2, padding=1).double(), draw(5, 2, 4, 4)
    slopes = draw(5, 3, 2, 2, seed=1)
    for found, wanted in zip(
        kronecker_factors(layer, images, slopes), patch_factors(layer, images, slopes), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_factors_of_tokens_count_every_token() -> None:
    rows, slopes = draw(4, 3, 2), draw(4, 3, 5, seed=1)
    inputs, outputs = kronecker_factors(nn.Linear(2, 5, bias=False), rows, slopes)
    torch.testing.assert_close(inputs, torch.einsum("nti,ntj->ij", rows, rows) / 4)
    torch.testing.assert_close(outputs, torch.einsum("nti,ntj->ij", slopes, slopes) / 12)


def test_a_step_of_kfac_solves_with_the_kronecker_product() -> None:
    torch.manual_seed(0)
    model = Convolved().double()
    images, labels = draw(6, 2, 4, 4), torch.arange(6) % 4
    optimizer = KFAC(model, lr=1.0, momentum=0.0, damping=0.1)
    logits = model(images)
    optimizer.observe(logits)
    functional.cross_entropy(logits, labels).backward()
    before = model.second.weight.detach().clone()
    factors = optimizer._factors[model.second]
    optimizer.step()
    inputs, slopes = factors
    balance = float((inputs.diagonal().mean() / slopes.diagonal().mean()).sqrt())
    root = 0.1**0.5
    whole = torch.kron(
        slopes + root / balance * torch.eye(4).double(),
        inputs + root * balance * torch.eye(12).double(),
    )
    wanted = torch.linalg.solve(whole, model.second.weight.grad.flatten()).view(4, 12)
    torch.testing.assert_close(before - model.second.weight.detach(), wanted)


def test_labels_are_drawn_from_the_model() -> None:
    """So that G is the Fisher matrix of the outputs, diag(p) - pp', on average."""
    torch.manual_seed(0)
    model = nn.Linear(2, 3).double()
    rows = torch.ones(200_000, 2).double()
    optimizer = KFAC(model)
    optimizer.observe(model(rows))
    share = model(rows[:1]).softmax(1)[0].detach()
    wanted = torch.diag(share) - torch.outer(share, share)
    torch.testing.assert_close(optimizer._factors[model][1], wanted, rtol=0, atol=5e-3)


def fitted(make: Callable[[nn.Module], torch.optim.Optimizer]) -> float:
    """The loss after 100 steps on a problem whose smallest feature decides."""
    torch.manual_seed(0)
    inputs = torch.randn(256, 6) * torch.logspace(-2, 1, 6)
    labels = (inputs[:, 0] > 0).long()
    model = nn.Linear(6, 2)
    optimizer = make(model)
    for _ in range(100):
        logits = model(inputs)
        loss = functional.cross_entropy(logits, labels)
        if isinstance(optimizer, KFAC):
            optimizer.observe(logits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def test_kfac_fits_a_badly_scaled_problem_where_no_rate_of_sgd_does() -> None:
    rates = (1e-3, 1e-2, 1e-1, 1.0)
    best = min(fitted(lambda m, lr=lr: torch.optim.SGD(m.parameters(), lr)) for lr in rates)
    assert fitted(lambda model: KFAC(model, lr=0.3, damping=1e-6)) < 0.5 * best


def test_other_parameters_take_a_plain_step_and_hooks_come_off() -> None:
    model = nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 2))
    optimizer = KFAC(model, lr=0.5, momentum=0.0)
    logits = model(torch.eye(2))
    optimizer.observe(logits)
    functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    before = model[0].weight.detach().clone()
    optimizer.step()
    torch.testing.assert_close(model[0].weight.detach(), before - 0.5 * model[0].weight.grad)
    optimizer.close()
    assert not model[1]._forward_hooks


def test_bad_input() -> None:
    with pytest.raises(InputError, match="without groups"):
        KFAC(nn.Conv2d(2, 2, 1, groups=2))
    with pytest.raises(InputError, match="Call observe"):
        KFAC(nn.Linear(1, 1)).step()
    with pytest.raises(InputError, match="padded by a number of zeros"):
        kronecker_factors(
            nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"),
            torch.zeros(1, 1, 4, 4),
            torch.zeros(1, 1, 4, 4),
        )
    with pytest.raises(InputError, match="lr"):
        Shampoo([nn.Parameter(torch.ones(1))], lr=-1.0)


def test_damping_is_shared_by_the_traces() -> None:
    inputs, slopes = 4 * torch.eye(2).double(), torch.eye(3).double()
    first, second = damped_inverses(inputs, slopes, 0.25)
    torch.testing.assert_close(first, torch.eye(2).double() / (4 + 1.0))
    torch.testing.assert_close(second, torch.eye(3).double() / (1 + 0.25))
