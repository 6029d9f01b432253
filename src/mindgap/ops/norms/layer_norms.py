"""The Lipschitz constant of every layer of a model, at the shape of its real input.

All constants are for Euclidean norms. For layers that are linear they are operator norms.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mindgap.core import Inputs, implements
from mindgap.ops.norms.singular import MARGIN, TOLERANCE, Singular, of_map, of_matrix
from mindgap.ops.norms.watch import WHOLE, Call, watched
from mindgap.ops.norms.weighted import CONVOLUTIONS, TRANSPOSED, dense_bound, weighted_layer

Certainty = Literal["exact", "estimate", "bound", "unbounded", "unknown"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """How much a layer can stretch the distance of two inputs.

    Args:
        name: The name of the module.
        kind: What it is, such as ``"convolution"``.
        exact: The constant, to a relative error of half the residual; None if it is not known.
        upper: A guaranteed upper bound; infinite if there is none.
        residual: The relative residual of the iteration behind ``exact``.
        status: ``"exact"``; ``"estimate"`` (an iteration that did not converge, from below);
            ``"bound"`` (``upper`` alone is known); ``"unbounded"``; ``"unknown"``.
        reason: Why it is not exact.
    """

    name: str
    kind: str
    exact: float | None
    upper: float
    residual: float = 0.0
    status: Certainty = "exact"
    reason: str = ""


@implements("E10", cites=("sedghi2019singular", "kim2021lipschitz"))
def layer_norms(model: nn.Module, inputs: Tensor | Inputs) -> list[LayerNorm]:
    r"""Compute the Lipschitz constant of every layer that a model calls, in evaluation mode.

    Formula: $\lVert A \rVert_2 = \max_{x \neq 0} \lVert Ax \rVert_2 / \lVert x \rVert_2$

    Reading: The product of the upper bounds along a chain of layers bounds the network's constant.
    Sums, as in residual networks, add the constants of their terms. They are no layers and do not
    appear here, nor does anything else that is a function call.

    Assumes: The sizes of the inputs are those of the data: they decide the norm of a convolution.

    Args:
        model: Any module.
        inputs: A batch, of which one sample is enough: one tensor, a tuple of them, or a dict.

    Returns:
        One entry per call of a module without children, in order.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    >>> [(row.kind, row.status) for row in layer_norms(net, torch.zeros(1, 1, 6, 6))]
    [('convolution', 'exact'), ('activation', 'exact'), ('max-pool', 'exact'), ('shape', 'exact')]
    """
    calls, _ = watched(model, inputs)
    return [layer_norm(seen) for seen in calls]


def has_rule(module: nn.Module) -> bool:
    """Tell whether the constant of a kind of layer is known, or known not to exist."""
    return any(isinstance(module, kinds) for kinds, _ in _RULES)


def layer_norm(seen: Call) -> LayerNorm:
    """Compute the constant of one call of a layer."""
    for kinds, rule in _RULES:
        if isinstance(seen.module, kinds):
            return rule(seen)
    name = type(seen.module).__name__
    return LayerNorm(
        name=seen.name,
        kind=name,
        exact=None,
        upper=math.inf,
        status="unknown",
        reason=f"no rule for the Lipschitz constant of {name}",
    )


def _weighted(seen: Call) -> LayerNorm:
    if isinstance(seen.module, nn.Linear):
        layer = weighted_layer(seen.name, seen.module, seen.shape or (1,), seen.out or (1,))
    else:
        layer = weighted_layer(seen.name, seen.module, seen.shape, seen.out)
    found = layer.norm()
    return _iterated(seen.name, layer.kind, found, layer.upper)


def _iterated(name: str, kind: str, found: Singular, upper: Callable[[], float]) -> LayerNorm:
    """Report a singular value; only a whole decomposition is an upper bound too."""
    done = found.residual <= TOLERANCE
    return LayerNorm(
        name=name,
        kind=kind,
        exact=found.value,
        upper=MARGIN * found.value if found.whole else upper(),
        residual=found.residual,
        status="exact" if done else "estimate",
        reason="" if done else "the iteration did not converge; the value is too small",
    )


def _known(seen: Call, kind: str, value: float) -> LayerNorm:
    return LayerNorm(name=seen.name, kind=kind, exact=value, upper=MARGIN * value)


def _embedding(seen: Call) -> LayerNorm:
    """A table is a dense layer on vectors of zeros and a one."""
    found = of_matrix(_module(seen).weight)
    return _iterated(seen.name, "embedding", found, lambda: dense_bound(_module(seen).weight))


def _batch_norm(seen: Call) -> LayerNorm:
    module = _module(seen)
    if module.running_var is None:
        return LayerNorm(
            name=seen.name,
            kind="normalization",
            exact=None,
            upper=math.inf,
            status="unknown",
            reason="BatchNorm without running statistics depends on the other samples of a batch",
        )
    spread = (module.running_var.double() + module.eps).sqrt()
    return _known(seen, "normalization", float((_scale(module, spread) / spread).max()))


def _layer_norm(seen: Call) -> LayerNorm:
    """The slope is largest where all features are equal: ‖diag(γ)(I − 11ᵀ/n)‖ / √ε."""
    module = _module(seen)
    size = math.prod(module.normalized_shape)
    scale = _scale(module, torch.ones(size, dtype=torch.double)).flatten()
    return _known(seen, "normalization", _centered(scale) / math.sqrt(module.eps))


def _group_norm(seen: Call) -> LayerNorm:
    module, places = _module(seen), math.prod(seen.shape[1:])
    if getattr(module, "running_var", None) is not None:  # instance normalization with statistics
        return _batch_norm(seen)
    scale = _scale(module, torch.ones(seen.shape[0], dtype=torch.double))
    groups = scale.view(getattr(module, "num_groups", len(scale)), -1)
    # With two places or more, a change of zero mean fits into the channel of the largest scale.
    largest = float(scale.max()) if places > 1 else max(_centered(row) for row in groups)
    return _known(seen, "normalization", largest / math.sqrt(module.eps))


def _rms_norm(seen: Call) -> LayerNorm:
    module = _module(seen)
    eps = torch.finfo(module.weight.dtype).eps if module.eps is None else module.eps
    scale = _scale(module, torch.ones(1, dtype=torch.double))
    return _known(seen, "normalization", float(scale.max()) / math.sqrt(eps))


def _scale(module: Any, like: Tensor) -> Tensor:
    if module.weight is None:
        return torch.ones_like(like)
    found: Tensor = module.weight.detach().double().abs()
    return found


def _centered(scale: Tensor) -> float:
    """Compute ‖diag(scale)(I − 11ᵀ/n)‖; the root is an eigenvalue of a centered diagonal."""
    if bool((scale == scale[0]).all()):
        return float(scale[0]) if len(scale) > 1 else 0.0
    columns = torch.diag(scale) - scale[:, None] / len(scale)
    return of_matrix(columns).value


def _max_pool(seen: Call) -> LayerNorm:
    """One input that is the largest in all its windows moves as many outputs as there are windows."""
    module, count = _module(seen), 1
    for place, (size, out) in enumerate(zip(seen.shape[1:], seen.out[1:], strict=True)):
        kernel, step, pad, gap = (
            value if isinstance(value, int) else value[place]
            for value in (module.kernel_size, module.stride, module.padding, module.dilation)
        )
        starts = torch.arange(out)[:, None] * step - pad
        places = (starts + torch.arange(kernel) * gap).flatten()
        inside = places[(places >= 0) & (places < size)]
        count *= int(torch.bincount(inside).max())
    return _known(seen, "max-pool", math.sqrt(count))


def _linear_pool(seen: Call) -> LayerNorm:
    """Averages work channel by channel: one channel has the norm of all."""
    shape = (1, *seen.shape[1:])
    pool = _module(seen)
    found = of_map(pool.forward, shape)
    return _iterated(seen.name, "average-pool", found, lambda: _schur(pool.forward, shape))


def _schur(pool: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> float:
    """Bound a map without negative weights by √(largest row sum · largest column sum)."""
    with torch.enable_grad():
        ones = torch.ones(1, *shape, dtype=torch.double, requires_grad=True)
        rows = pool(ones)
        (columns,) = torch.autograd.grad(rows.sum(), ones)
    return MARGIN * math.sqrt(float(rows.detach().max()) * float(columns.max()))


def _attention(seen: Call) -> LayerNorm:
    return LayerNorm(
        name=seen.name,
        kind="attention",
        exact=None,
        upper=math.inf,
        status="unbounded",
        reason="dot-product attention has no global Lipschitz constant: its slope grows with its "
        "input",
    )


def _activation(seen: Call) -> LayerNorm:
    return _known(seen, "activation", SLOPES[type(seen.module)](seen.module))


def _shape(seen: Call) -> LayerNorm:
    return _known(seen, "shape", 1.0)


def _steepest(function: Callable[[Tensor], Tensor]) -> float:
    """The steepest slope of a smooth activation, on a fine grid around zero where it lies."""
    grid = torch.linspace(-4, 4, 80_001, dtype=torch.double, requires_grad=True)
    with torch.enable_grad():
        (slopes,) = torch.autograd.grad(function(grid).sum(), grid)
    return float(slopes.abs().max()) * (1 + 1e-8)  # the grid misses the peak by less


def _module(seen: Call) -> Any:
    return seen.module


# The largest slope of each activation.
SLOPES: dict[type[nn.Module], Callable[[Any], float]] = {
    nn.ReLU: lambda _: 1.0,
    nn.ReLU6: lambda _: 1.0,
    nn.LeakyReLU: lambda module: max(1.0, abs(module.negative_slope)),
    nn.PReLU: lambda module: max(1.0, float(module.weight.detach().abs().max())),
    nn.ELU: lambda module: max(1.0, abs(module.alpha)),
    nn.SELU: lambda _: 1.0507009873554804934193349852946 * 1.6732632423543772848170429916717,
    nn.CELU: lambda _: 1.0,
    nn.Tanh: lambda _: 1.0,
    nn.Hardtanh: lambda _: 1.0,
    nn.Softsign: lambda _: 1.0,
    nn.Softplus: lambda _: 1.0,
    nn.LogSigmoid: lambda _: 1.0,
    nn.Sigmoid: lambda _: 0.25,
    nn.GELU: lambda module: _steepest(module.forward),
    nn.SiLU: lambda module: _steepest(nn.functional.silu),  # noqa: ARG005
    nn.Mish: lambda module: _steepest(nn.functional.mish),  # noqa: ARG005
    nn.Softmax: lambda _: 0.5,
}
_RULES: list[tuple[tuple[type[nn.Module], ...], Callable[[Call], LayerNorm]]] = [
    ((nn.Linear, *CONVOLUTIONS, *TRANSPOSED), _weighted),
    (tuple(SLOPES), _activation),
    ((nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd), _shape),
    ((nn.modules.instancenorm._InstanceNorm, nn.GroupNorm), _group_norm),
    ((nn.modules.batchnorm._BatchNorm,), _batch_norm),
    ((nn.LayerNorm,), _layer_norm),
    ((nn.RMSNorm,), _rms_norm),
    ((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), _max_pool),
    ((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), _linear_pool),
    ((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), _linear_pool),
    ((nn.Embedding,), _embedding),
    (WHOLE, _attention),
]
