"""The largest slope that a search finds: a lower bound of the Lipschitz constant.

The slope of a ReLU network is constant around almost every point, so that its gradient is exactly
zero and plain ascent does not move. The search therefore climbs on a smoothed network, in which
every ReLU is a softplus that grows sharper from step to step, and reports slopes of the real one.
"""

import dataclasses
import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from mindgap.core import InputError, copied, evaluating, implements, kind_of

STEPS, STARTS = 150, 16
_SHARP = (3.0, 200.0)  # of the softplus, in units of what enters it, at the first and the last step
_REACH = (0.1, 0.002)  # length of a step, as a share of the size of the start
# Far from zero, biases no longer matter and few patterns of units exist. Networks are often steepest
# nearer to zero than any sample, and an ascent from the samples does not get there.
_NEARER = (0.3, 0.1, 0.03)
_EVERY = 10  # steps after which the real slopes are computed
_FEW = 32  # outputs up to which the whole Jacobian is computed
_SCATTERED = 256  # places to draw besides the samples, and samples to shrink
_ROUNDS = 30  # of power iteration otherwise


@dataclasses.dataclass(frozen=True)
class Lower:
    """The steepest place that was found.

    Args:
        lower: The largest singular value of the Jacobian there: the Lipschitz constant is at least
            this.
        point: The place.
        data: The largest value at the starts themselves.
        history: The largest value after every few steps.
        ends: The best value of every start.
    """

    lower: float
    point: Tensor
    data: float
    history: tuple[float, ...]
    ends: tuple[float, ...]


@implements("S5", cites=("virmaux2018lipschitz",))
def lipschitz_lower(
    model: nn.Module,
    inputs: Tensor,
    *,
    steps: int = STEPS,
    starts: int = STARTS,
    box: tuple[Tensor | float, Tensor | float] | None = None,
    drawn: int = _SCATTERED,
) -> Lower:
    r"""Search for the input at which a network is steepest, from samples and around them.

    Formula: $L \ge \max_t \sigma_{\max}\!\left(\frac{\partial f}{\partial x}(x_t)\right)$

    Reading: A lower bound: there may be steeper places. With a box it is one for the inputs in the
    box, and without for all inputs.

    Assumes: A model that is differentiable at the places that are found, as is the case with
    probability one after a random shift by 1e-9 of the inputs' size. Where torch has no second
    derivative of an activation, the steepest start is returned.

    Args:
        model: Any module that takes one tensor; it is not changed.
        inputs: Samples to start from.
        steps: Steps of the ascent.
        starts: How many starts: a third are the steepest samples, a third the steepest of 256 places
            that are drawn around them, and a third the steepest samples after shrinking all.
        box: The smallest and the largest input to allow.
        drawn: Places to draw and samples to shrink, instead of 256 if it is less.

    >>> net = nn.Linear(2, 2)
    >>> with torch.no_grad():
    ...     _ = net.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> round(lipschitz_lower(net, torch.randn(5, 2), steps=5).lower, 6)
    4.0
    """
    if not len(inputs) or not inputs.is_floating_point():
        raise InputError(
            f"inputs must be at least one sample of real numbers, got {len(inputs)} of "
            f"{inputs.dtype}. Pass some of the data."
        )
    private = copied(model).cpu().double().requires_grad_(False)
    # Fused attention has no second derivative.
    with evaluating(private), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        return _search(private, _distinct(inputs, box), steps, starts, box, min(drawn, _SCATTERED))


def _distinct(inputs: Tensor, box: Any) -> Tensor:
    """Return every sample once, in an order of their own, moved a little off any kink."""
    rows = _inside(inputs.detach().cpu().double(), box)
    flat = rows.flatten(1).unique(dim=0)
    noise = torch.randn(flat.shape[1], generator=torch.Generator().manual_seed(0)).double()
    shift = 1e-9 * flat.square().mean().sqrt().clamp_min(1e-12) * noise
    shape = -1, *rows.shape[1:]
    moved, back = ((flat + sign * shift).view(shape) for sign in (1, -1))
    # What would leave the box moves the other way.
    return torch.where(_inside(moved, box) == moved, moved, _inside(back, box))


def _search(
    model: nn.Module, inputs: Tensor, steps: int, starts: int, box: Any, drawn: int
) -> Lower:
    points, best, sides = _starts(model, inputs, starts if steps else 1, box, drawn)
    places, data = points.clone(), float(best[0])
    history, sizes = [data], _lengths(points).clamp_min(1e-3 * float(_lengths(inputs).mean()))
    for step in range(steps):
        share = step / max(1, steps - 1)
        sharp, reach = (_between(ends, share) for ends in (_SHARP, _REACH))
        try:
            points, sides = _climbed(model, points, sides, sharp, reach * sizes.clamp_min(1e-12))
        except RuntimeError as error:
            if "is not implemented" not in str(error):
                raise
            break
        points = _inside(points, box)
        if step % _EVERY == _EVERY - 1 or step == steps - 1:
            values, _ = slopes(model, points)
            higher = values > best
            best = torch.where(higher, values, best)
            places[higher] = points[higher]
            history.append(float(best.max()))
    top = int(best.argmax())
    return Lower(float(best[top]), places[top], history[0], tuple(history), tuple(best.tolist()))


def _starts(
    model: nn.Module, inputs: Tensor, count: int, box: Any, drawn: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Choose samples, places around them, and samples that are shrunk; the steepest of each."""
    parts = [_steepest(model, inputs, -(-count // 3))]
    if count > 1:
        parts.append(
            _steepest(model, _inside(_scattered(inputs, drawn), box), -(-(count - 1) // 3))
        )
    few = inputs[:: -(-len(inputs) // drawn)]
    for k, factor in enumerate(_NEARER):
        own = len(range(k, count // 3, len(_NEARER)))
        if own:
            parts.append(_steepest(model, _inside(factor * few, box), own))
    points, values, sides = (torch.cat(column) for column in zip(*parts, strict=True))
    return points, values, sides


def _lengths(points: Tensor) -> Tensor:
    found: Tensor = points.flatten(1).norm(dim=1)
    return found


def _steepest(model: nn.Module, inputs: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    values, sides = slopes(model, inputs)
    order = values.argsort(descending=True)[:count]
    return inputs[order], values[order], sides[order]


def _scattered(inputs: Tensor, count: int) -> Tensor:
    """Draw places twice as widely as the samples lie, in case all samples lie in flat places."""
    drawn = torch.randn(
        count,
        *inputs.shape[1:],
        generator=torch.Generator().manual_seed(1),
        dtype=torch.double,
    )
    spread = (inputs - inputs.mean(0)).square().mean(0).sqrt()
    return inputs.mean(0) + 2 * spread * drawn


def _inside(points: Tensor, box: Any) -> Tensor:
    if box is None:
        return points
    low, high = (torch.as_tensor(end).cpu().double() for end in box)
    return torch.maximum(torch.minimum(points, high), low)


def _between(ends: tuple[float, float], share: float) -> float:
    return float(ends[0] * (ends[1] / ends[0]) ** share)


def _climbed(
    model: nn.Module, points: Tensor, sides: Tensor, sharp: float, reach: Tensor
) -> tuple[Tensor, Tensor]:
    """Take one step towards a larger ‖Jᵀu‖, and turn u towards the largest singular value."""
    with _Smooth(sharp):
        given = points.detach().requires_grad_()
        outputs = model(given).reshape(len(given), -1)
        sides = sides.detach().requires_grad_()
        (back,) = torch.autograd.grad((outputs * sides).sum(), given, create_graph=True)
        length = back.flatten(1).norm(dim=1).clamp_min(1e-300)
        # The derivative by u is J Jᵀu / ‖Jᵀu‖: a step of power iteration.
        uphill, turned = torch.autograd.grad(
            length.sum(), (given, sides), allow_unused=True, materialize_grads=True
        )
    ways = (_lengths(uphill).clamp_min(1e-300) / reach).view(-1, *[1] * (points.ndim - 1))
    moved = points + uphill / ways
    fine = torch.isfinite(moved).flatten(1).all(1).view(ways.shape)
    return torch.where(fine, moved, points).detach(), nn.functional.normalize(
        turned, dim=1
    ).detach()


def slope_passes(outputs: int) -> int:
    """Count the forward passes that the largest singular value of one Jacobian takes.

    >>> slope_passes(10), slope_passes(1000)
    (21, 121)
    """
    return 1 + (2 * outputs if outputs <= _FEW else 4 * _ROUNDS)


def slopes(model: nn.Module, inputs: Tensor, batch: int = 256) -> tuple[Tensor, Tensor]:
    """Compute the largest singular value of the Jacobian at each input, and its left vector.

    Args:
        model: In double precision and evaluation mode.
        inputs: The places.
        batch: How many to take at once.

    >>> slopes(nn.Linear(1, 1).double(), torch.zeros(3, 1).double())[0].shape
    torch.Size([3])
    """
    parts = [_slopes(model, part) for part in inputs.split(batch)]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def slopes_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """Compute the largest singular value of the Jacobian of any model at each input.

    Args:
        model: Any module that takes one tensor; it is not changed.
        inputs: The places.

    >>> slopes_of(nn.Linear(1, 1), torch.zeros(3, 1)).shape
    torch.Size([3])
    """
    private = copied(model).cpu().double().requires_grad_(False)
    with evaluating(private), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        return slopes(private, inputs.detach().cpu().double())[0]


def _slopes(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    given = inputs.detach().requires_grad_()
    outputs = model(given).reshape(len(given), -1)
    if not outputs.requires_grad:
        raise InputError(
            f"The model must be differentiable by its inputs, got {kind_of(model)}, which is "
            "not. Pass a torch module."
        )
    count = outputs.shape[1]

    def back(sides: Tensor, graph: bool = False) -> Tensor:
        (found,) = torch.autograd.grad(
            (outputs * sides).sum(),
            given,
            retain_graph=True,
            create_graph=graph,
            allow_unused=True,
            materialize_grads=True,
        )
        return found.flatten(1)

    if count <= _FEW:
        rows = [back(torch.eye(count).double()[k].expand_as(outputs)) for k in range(count)]
        left, values, _ = torch.linalg.svd(torch.stack(rows, 1), full_matrices=False)
        return values[:, 0].detach(), left[:, :, 0].detach()
    sides = nn.functional.normalize(torch.ones_like(outputs).detach(), dim=1)
    for _ in range(_ROUNDS):
        own = sides.detach().requires_grad_()
        length = back(own, graph=True).norm(dim=1)
        (turned,) = torch.autograd.grad(length.sum(), own, retain_graph=True)
        sides = nn.functional.normalize(turned, dim=1)
    return back(sides).norm(dim=1).detach(), sides.detach()


class _Smooth(TorchFunctionMode):
    """Replaces ReLUs by softplus functions of a sharpness in units of what enters them."""

    def __init__(self, sharp: float) -> None:
        super().__init__()
        self.sharp = sharp

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, name = kwargs or {}, getattr(func, "__name__", "").strip("_")
        if not re.fullmatch("relu|leaky_relu|prelu", name):
            return func(*args, **given)
        units = args[0] if args else given["input"]
        size = units.detach().flatten(1).square().mean(1).sqrt().clamp_min(1e-12)
        factor = (self.sharp / size).view(-1, *[1] * (units.ndim - 1))
        rest = _rest(name, args, given)
        smooth = nn.functional.softplus(units * factor) / factor
        return (1 - rest) * smooth + rest * units


def _rest(name: str, args: Any, given: Any) -> Any:
    """The slope below zero."""
    if name == "relu":
        return 0.0
    if name == "leaky_relu":
        return given.get("negative_slope", args[1] if len(args) > 1 else 0.01)
    weight = given.get("weight", args[1] if len(args) > 1 else None)
    return weight if weight.numel() == 1 else float(weight.mean())
