"""Smooth networks: penalties against full Jacobians, norms against matrices, and what training gives."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mindgap import fit
from mindgap.core import InputError, TrainingState
from mindgap.core.remedy import Remedy
from mindgap.measures import RobustAccuracy
from mindgap.ops.norms.weighted import weighted_layer
from mindgap.remedies import (
    AdversarialTraining,
    GradientPenalty,
    JacobianPenalty,
    OrthogonalRegularization,
    SpectralNormalization,
)
from mindgap.remedies.smoothness.orthogonal_regularization import distance_from_orthogonal
from mindgap.studies.diagnoses.healthy import healthy_recipe

LAYERS = [
    nn.Linear(5, 3),
    nn.Linear(3, 5),
    nn.Conv1d(2, 3, 3, padding=1),
    nn.Conv2d(2, 3, 3, padding=1),
    nn.Conv2d(4, 6, 3, groups=2, padding=1),
    nn.Conv2d(2, 9, 3, stride=2),
    nn.Conv2d(2, 3, (3, 2), stride=(1, 2), dilation=(2, 1), padding=(2, 0)),
    nn.Conv1d(2, 3, 4, stride=2, dilation=3),
    nn.ConvTranspose2d(3, 2, 3, stride=2),
]


def smooth_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def batch() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    return torch.randn(6, 4, generator=random).double(), torch.arange(6) % 3


def state_of(model: nn.Module, step: int = 1) -> TrainingState:
    return TrainingState(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), step=step)


def closure_of(remedy: Remedy, state: TrainingState, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    def each(output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, target, reduction="none")

    def closure() -> Tensor:
        state.model.zero_grad()
        value = remedy.losses(state, each, state.model(x), y).mean()
        value.backward()
        return value.detach()

    return closure


def penalized(remedy: Remedy, step: int = 1) -> tuple[float, list[Tensor]]:
    """The loss with the penalty, and its gradient, as the hooks make them."""
    model = smooth_net()
    state = state_of(model, step)
    loss = remedy.backward(state, closure_of(remedy, state, *batch()))
    assert not state.memory
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    return float(loss), [weight.grad for weight in model.parameters()]


def jacobian_squares(model: nn.Module, x: Tensor) -> Tensor:
    rows = torch.func.vmap(torch.func.jacrev(lambda one: model(one[None])[0]))(x)
    return rows.flatten(1).square().sum(1)


def test_all_directions_give_the_full_jacobian_and_its_gradient() -> None:
    model, (x, y) = smooth_net(), batch()
    for weight in model.parameters():
        weight.requires_grad_()
    value = nn.functional.cross_entropy(model(x), y) + 0.3 * jacobian_squares(model, x).mean()
    wanted = torch.autograd.grad(value, list(model.parameters()))
    loss, found = penalized(JacobianPenalty(factor=0.3, projections=9))  # more than outputs: all
    assert loss == pytest.approx(float(value.detach()), rel=1e-12)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("projections", [1, 2])
def test_few_directions_are_unbiased(projections: int) -> None:
    model, (x, y) = smooth_net(), batch()
    plain = float(nn.functional.cross_entropy(model(x), y).detach())
    wanted = float(jacobian_squares(model, x).mean().detach())
    remedy = JacobianPenalty(factor=1.0, projections=projections)
    found = torch.tensor([penalized(remedy, step)[0] - plain for step in range(100)])
    error = float(found.std() / 10)
    assert abs(float(found.mean()) - wanted) < 4 * error
    assert 0 < error < 0.1 * wanted


def test_gradient_penalty_is_that_of_every_samples_loss() -> None:
    model, (x, y) = smooth_net(), batch()
    total = nn.functional.cross_entropy(model(x), y)
    for one, label in zip(x, y, strict=True):
        leaf = one[None].clone().requires_grad_()
        loss = nn.functional.cross_entropy(model(leaf), label[None])
        (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
        total = total + 0.7 * slope.square().sum() / len(x)
    wanted = torch.autograd.grad(total, list(model.parameters()))
    value, found = penalized(GradientPenalty(factor=0.7))
    assert value == pytest.approx(float(total.detach()), rel=1e-12)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("order", [1, -1])
def test_slopes_are_taken_at_the_inputs_that_the_attack_chose(order: int) -> None:
    """Both remedies put hooks on the model, and either may come first."""
    attack, penalty = AdversarialTraining(epsilon=0.2), GradientPenalty(factor=0.5)
    remedies: list[Remedy] = [attack, penalty][::order]
    recipe = healthy_recipe("table", seed=1).replace(epochs=2)
    both = fit(recipe, remedies, seed=1).model.state_dict()
    for fewer in ([attack], [penalty]):
        alone = fit(recipe, fewer, seed=1).model.state_dict()
        assert not all(torch.equal(both[name], alone[name]) for name in both)


def test_a_model_that_is_not_called_itself_is_refused() -> None:
    model, (x, y) = smooth_net(), batch()
    wrapper = nn.Sequential(model)
    state, remedy = state_of(wrapper), GradientPenalty()

    def closure() -> Tensor:
        return remedy.losses(state, nn.functional.cross_entropy, model(x), y).mean()

    with pytest.raises(InputError, match="must see the call of Sequential"):
        remedy.backward(state, closure)


def kernel_rows(layer: nn.Module, size: int) -> Tensor:
    """The Gram matrix of the rows of a convolution's map, far from the border."""
    plain = copy.deepcopy(layer).double()
    plain.padding = tuple(0 for _ in plain.kernel_size)
    shape = (1, plain.in_channels, *[size] * len(plain.kernel_size))
    if isinstance(plain, nn.modules.conv._ConvTransposeNd):
        shape = (1, plain.out_channels, *shape[2:])
        functional = {3: torch.conv2d}[len(shape) - 1]

        def forward(x: Tensor) -> Tensor:
            return functional(x, plain.weight, stride=plain.stride, dilation=plain.dilation)
    else:
        plain.bias = None
        forward = plain
    matrix = torch.func.jacrev(forward)(torch.zeros(shape, dtype=torch.double))[0]
    rows = matrix.reshape(*matrix.shape[: len(shape) - 1], -1)
    middle = rows[(slice(None), *[n // 2 for n in rows.shape[1:-1]])]
    return torch.einsum("id,j...d->ij...", middle, rows)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_distance_from_orthogonal_is_that_of_the_whole_map(layer: nn.Module) -> None:
    layer = copy.deepcopy(layer).double()
    found = float(distance_from_orthogonal(layer).detach())
    if isinstance(layer, nn.Linear):
        rows = layer.weight if layer.out_features <= layer.in_features else layer.weight.T
        wanted = (rows @ rows.T - torch.eye(len(rows))).square().sum()
    else:
        gram = kernel_rows(layer, 40 if layer.weight.ndim == 3 else 15)
        middle = tuple(n // 2 for n in gram.shape[2:])
        gram[(slice(None), slice(None), *middle)] -= torch.eye(len(gram)).double()
        wanted = gram.square().sum()
    assert found == pytest.approx(float(wanted.detach()), rel=1e-9)


def test_rows_and_columns_have_the_same_gradient() -> None:
    layer = nn.Linear(3, 5).double()
    (found,) = torch.autograd.grad(distance_from_orthogonal(layer), layer.weight)
    weight = layer.weight
    wanted = (weight @ weight.T - torch.eye(5)).square().sum()
    torch.testing.assert_close(found, torch.autograd.grad(wanted, weight)[0])


def test_orthogonal_regularization_adds_its_gradient() -> None:
    model, (x, y) = smooth_net(), batch()
    state = state_of(model)
    OrthogonalRegularization(factor=0.2).backward(
        state, closure_of(OrthogonalRegularization().off(), state, x, y)
    )
    total = nn.functional.cross_entropy(model(x), y)
    total = total + 0.2 * sum(distance_from_orthogonal(layer) for layer in (model[0], model[2]))
    wanted = torch.autograd.grad(total, list(model.parameters()))
    for weight, other in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(weight.grad, other)


class Mixed(nn.Module):
    """Convolutions of several kinds, a normalization and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 6, 3, stride=2, groups=2, padding=1, padding_mode="circular"),
            nn.ReLU(),
            nn.ConvTranspose2d(6, 2, 2, stride=2),
            nn.Flatten(),
            nn.Linear(2 * 64, 3),
        )
        for weight in self.parameters():
            weight.data *= 4

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)


def norms(model: nn.Module) -> dict[str, float]:
    """The operator norms of all layers, from their matrices, and the factor of the normalization."""
    found, x = dict[str, float](), torch.zeros(1, 1, 8, 8)
    for name, layer in model.body.named_children():
        y = layer(x)
        if hasattr(layer, "kernel_size") or isinstance(layer, nn.Linear):
            weighted = weighted_layer(name, layer, tuple(x.shape[1:]), tuple(y.shape[1:]))
            units = torch.eye(x[0].numel(), dtype=torch.double).view(-1, *x.shape[1:])
            found[name] = float(torch.linalg.matrix_norm(weighted(units).flatten(1), 2))
        elif isinstance(layer, nn.BatchNorm2d):
            factors = layer.weight.abs() / (layer.running_var + layer.eps).sqrt()
            found[name] = float(factors.detach().max())
        x = y
    return found


def test_spectral_normalization_limits_the_operator_norms() -> None:
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 1, 8, 8, generator=random), torch.arange(40) % 3
    recipe = healthy_recipe("image", seed=0).replace(
        model=Mixed, train=(x, y), test=None, epochs=4, batch_size=10
    )
    plain = norms(fit(recipe).model)
    assert min(plain.values()) > 1.1
    limited = norms(fit(recipe, [SpectralNormalization(limit=1.1)]).model)
    assert len(limited) == 5
    assert max(limited.values()) <= 1.1 * (1 + 1e-5)
    assert max(limited.values()) > 1.05


def test_power_iteration_follows_the_norm_while_training() -> None:
    model, (x, y) = smooth_net(), batch()
    state, remedy = state_of(model), SpectralNormalization(limit=0.3)
    optimizer = state.optimizer
    for step in range(1, 30):
        state.step = step
        remedy.backward(state, closure_of(remedy.off(), state, x, y))
        optimizer.step()
        remedy.after_step(state)
        values = [float(torch.linalg.matrix_norm(model[k].weight.data, 2)) for k in (0, 2)]
        assert max(values) < 0.3 * 1.05


def test_zero_weights_do_not_stop_the_iteration() -> None:
    model = nn.Linear(3, 2)
    model.weight.data.zero_()
    state, remedy = state_of(model), SpectralNormalization(limit=1.0)
    remedy.backward(state, lambda: model(torch.ones(1, 3)).sum())
    remedy.after_step(state)
    model.weight.data.fill_(5.0)
    for _ in range(5):
        remedy.after_step(state)
    assert float(torch.linalg.matrix_norm(model.weight.data, 2)) == pytest.approx(1.0, rel=1e-4)


def test_frozen_layers_and_models_without_layers() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].weight.requires_grad_(False).mul_(9)
    kept = model[0].weight.clone()
    state, remedy = state_of(model), SpectralNormalization(limit=0.1)
    remedy.backward(state, lambda: model(torch.ones(1, 3)).sum())
    remedy.after_step(state)
    remedy.finish(state)
    assert torch.equal(model[0].weight, kept)
    with pytest.raises(InputError, match="got none in Identity"):
        remedy.backward(TrainingState(model=nn.Identity(), optimizer=None), lambda: torch.ones(()))
    empty = TrainingState(model=nn.Identity(), optimizer=None)
    with pytest.raises(InputError, match="got none in Identity"):
        OrthogonalRegularization().backward(empty, lambda: torch.ones(()))


def robust_accuracy(*remedies: Remedy) -> float:
    recipe = healthy_recipe("image", seed=2).replace(epochs=12)
    return float(RobustAccuracy(epsilon=0.1)(fit(recipe, remedies, seed=2).subject()))


def test_more_predictions_hold_under_attack() -> None:
    plain, remedies = (
        robust_accuracy(),
        (
            SpectralNormalization(limit=2.0),  # its default costs no accuracy and gains none
            JacobianPenalty(),
            GradientPenalty(),
            OrthogonalRegularization(),
        ),
    )
    for remedy in remedies:
        assert robust_accuracy(remedy) > plain + 0.02, remedy
