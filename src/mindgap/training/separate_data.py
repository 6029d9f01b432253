"""Separate data: many equal networks trained at once, each on samples of its own."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Recipe, integer, number
from mindgap.ops.models.sequence import in_sequence
from mindgap.training.vectorized.batches import Orders
from mindgap.training.vectorized.members import build_all

ELEMENTWISE = (
    nn.ReLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.ELU,
    nn.Softplus,
    nn.LeakyReLU,
    nn.Identity,
)
AT_ONCE = 2**18  # numbers that the widest layer of a block holds: small enough for a CPU's cache


@dataclasses.dataclass(frozen=True)
class Networks:
    """Networks with equal layers, whose weights are stacked member by member.

    Args:
        weights: One tensor of shape (members, inputs, outputs) per layer.
        biases: One tensor of shape (members, 1, outputs) per layer.
        activations: What follows each layer, the same for all members.
        losses: The mean squared training errors, one row per check and one column per member.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    activations: tuple[nn.Module, ...]
    losses: Tensor

    def __len__(self) -> int:
        return len(self.weights[0])

    def member(self, place: int) -> "Networks":
        """Return one member, as a stack of one."""
        weights, biases = (
            [part[place : place + 1] for part in parts] for parts in (self.weights, self.biases)
        )
        return Networks(
            tuple(weights), tuple(biases), self.activations, self.losses[:, place : place + 1]
        )

    def outputs(self, inputs: Tensor) -> Tensor:
        """Compute every member's outputs for inputs (members, n, d), or (n, d) that all share."""
        with torch.no_grad():
            rows = inputs.to(self.weights[0])
            return _forward(
                self.weights, self.biases, self.activations, rows.expand(len(self), -1, -1)
            )


@dataclasses.dataclass(frozen=True)
class Steps:
    """How the networks are trained."""

    epochs: int
    batch_size: int
    learning_rate: float
    epsilon: float
    checks: int


def fit_own_data(
    model: Callable[[], nn.Module],
    inputs: Tensor,
    targets: Tensor,
    seeds: Sequence[int],
    *,
    epochs: int,
    batch_size: int | None = None,
    learning_rate: float = 1e-3,
    epsilon: float = 1e-7,
    checks: int = 1,
) -> Networks:
    """Train one network per seed on its own samples, by Adam on the mean squared error.

    Member i equals what :func:`mindgap.fit` makes of its samples, up to rounding.
    :func:`mindgap.ensemble` is for members that share their data.

    Args:
        model: Makes a plain chain of linear layers and element-wise activations.
        inputs: The samples, of shape (members, samples, features).
        targets: Their targets, of shape (members, samples, outputs).
        seeds: One seed per member.
        epochs: Passes over the samples.
        batch_size: Samples per step; all of them if None.
        learning_rate: The step size of Adam.
        epsilon: The ε of Adam; the default is that of Keras.
        checks: How often to record the training error, at even intervals, the last time at the
            end.

    >>> x = torch.linspace(-1, 1, 9).view(1, 9, 1).repeat(4, 1, 1)
    >>> make = lambda: nn.Sequential(nn.Linear(1, 1))
    >>> found = fit_own_data(make, x, 2 * x, range(4), epochs=500, learning_rate=0.1)
    >>> bool((found.losses[-1] < 1e-6).all()), found.outputs(x[0]).shape
    (True, torch.Size([4, 9, 1]))
    """
    (
        integer("epochs", epochs, 0),
        integer("checks", checks, 1),
        number("learning_rate", learning_rate),
    )
    _check_shapes(inputs, targets, len(seeds))
    batch = min(integer("batch_size", batch_size or inputs.shape[1], 1), inputs.shape[1])
    steps = Steps(epochs, batch, learning_rate, epsilon, checks)
    recipe = Recipe(model=model, train=(inputs[0], targets[0]), loss="mse")
    models = build_all([recipe] * len(seeds), seeds)
    size = max(1, AT_ONCE // (batch * max(part.out_features for part, _ in _chain(models[0]))))
    spans = [slice(first, first + size) for first in range(0, len(seeds), size)]
    return _joined(
        [_trained(models[span], inputs[span], targets[span], seeds[span], steps) for span in spans]
    )


def _trained(
    models: Sequence[nn.Module], inputs: Tensor, targets: Tensor, seeds: Sequence[int], steps: Steps
) -> Networks:
    layers, chain = [_linear(one) for one in models], _chain(models[0])
    weights = tuple(
        torch.stack([own[k].weight.detach().T for own in layers]) for k in range(len(chain))
    )
    biases = tuple(
        torch.stack([own[k].bias.detach()[None] for own in layers]) for k in range(len(chain))
    )
    block = Networks(weights, biases, tuple(activation for _, activation in chain), torch.empty(0))
    orders = Orders(inputs.shape[1], steps.batch_size, tuple(seeds))
    losses = _train(block, inputs.to(weights[0]), targets.to(weights[0]), orders, steps)
    return dataclasses.replace(block, losses=losses)


def _train(
    block: Networks, inputs: Tensor, targets: Tensor, orders: Orders, steps: Steps
) -> Tensor:
    """Train in place, and return the training errors of all members at every check."""
    parameters = [tensor.requires_grad_() for tensor in (*block.weights, *block.biases)]
    optimizer = torch.optim.Adam(parameters, lr=steps.learning_rate, eps=steps.epsilon, fused=True)
    found, done = [], 0
    for check in range(1, steps.checks + 1):
        until = steps.epochs * check // steps.checks
        for epoch in range(done + 1, until + 1):
            for rows, wanted in _batches(inputs, targets, orders, epoch):
                optimizer.zero_grad()
                _errors(block, rows, wanted).sum().backward()
                optimizer.step()
        done = until
        with torch.no_grad():
            found.append(_errors(block, inputs, targets).double())
    for tensor in parameters:
        tensor.requires_grad_(False)
        tensor.grad = None
    return torch.stack(found)


def _batches(
    inputs: Tensor, targets: Tensor, orders: Orders, epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Read an epoch; every member gets the batches that ``fit`` would take with its seed."""
    if orders.full:
        yield inputs, targets
        return
    places = orders.places(epoch)[:, :, None]
    mixed = [part.gather(1, places.expand(-1, -1, part.shape[2])) for part in (inputs, targets)]
    for first, last in orders.bounds:
        yield mixed[0][:, first:last], mixed[1][:, first:last]


def _errors(block: Networks, inputs: Tensor, targets: Tensor) -> Tensor:
    outputs = _forward(block.weights, block.biases, block.activations, inputs)
    return (outputs - targets).square().mean((1, 2))


def _forward(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    activations: Sequence[nn.Module],
    rows: Tensor,
) -> Tensor:
    for weight, bias, activation in zip(weights, biases, activations, strict=True):
        rows = activation(torch.baddbmm(bias, rows, weight))
    return rows


def _linear(model: nn.Module) -> list[nn.Linear]:
    return [part for part in in_sequence(model) if isinstance(part, nn.Linear)]


def _chain(model: nn.Module) -> list[tuple[nn.Linear, nn.Module]]:
    """The linear layers, each with the activation that follows it."""
    found: list[tuple[nn.Linear, nn.Module]] = []
    for part in in_sequence(model):
        if isinstance(part, nn.Linear) and part.bias is not None and part not in dict(found):
            found.append((part, nn.Identity()))
        elif isinstance(part, ELEMENTWISE) and found and isinstance(found[-1][1], nn.Identity):
            found[-1] = found[-1][0], part
        elif not (isinstance(part, nn.Flatten) and not found):
            found = []
            break
    if not found:
        raise InputError(
            "model must make a chain of linear layers with a bias and element-wise activations, "
            f"got {model!r}. Use for instance mindgap.nets.MLP, or fit() seed by seed."
        )
    return found


def _check_shapes(inputs: Tensor, targets: Tensor, members: int) -> None:
    if (
        inputs.ndim != 3
        or targets.ndim != 3
        or inputs.shape[:2] != targets.shape[:2]
        or len(inputs) != members
    ):
        raise InputError(
            f"inputs and targets must have the shape ({members} members, samples, features), got "
            f"{tuple(inputs.shape)} and {tuple(targets.shape)}. Stack the samples of the members."
        )


def _joined(parts: Sequence[Networks]) -> Networks:
    weights = tuple(torch.cat(rows) for rows in zip(*(part.weights for part in parts), strict=True))
    biases = tuple(torch.cat(rows) for rows in zip(*(part.biases for part in parts), strict=True))
    return Networks(
        weights, biases, parts[0].activations, torch.cat([part.losses for part in parts], dim=1)
    )
