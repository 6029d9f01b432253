"""What an attacker may do: a ball around every sample, a box, units and a mask."""

import dataclasses
import math
from typing import Literal, Self

import torch
from torch import Tensor

from mindgap.core import InputError, check_finite

Norm = Literal["linf", "l2", "l1"]
SLACK = 1e-5  # of the box's width: what rounding puts outside is not an input in other units
SPARSE = 0.01  # share of the features that an L1 step moves, as in Tramèr and Boneh (2019)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Threat:
    r"""The set of inputs that an attacker may choose instead of a sample.

    Formula: $\left\{ x + \delta : \lVert \delta / u \rVert_p \le \epsilon, \; l \le x + \delta \le
    h, \; \delta_j = 0 \text{ where } m_j = 0 \right\}$

    Args:
        norm: ``"linf"``, ``"l2"`` or ``"l1"``.
        epsilon: The radius, one number or one per sample.
        low: The smallest value of a feature: a number, or a tensor that broadcasts to a sample.
        high: The largest value of a feature.
        unit: What a change of one means, per feature. For inputs that were divided by a standard
            deviation it is one over it, so that ``epsilon`` is in the units before.
        mask: Where the attacker may change an input, such as the place of a sticker: anything but
            zero there. It broadcasts to a sample, or has one row per sample.

    >>> threat = Threat(epsilon=0.5, low=0.0, high=1.0)
    >>> threat.around(torch.tensor([[0.2, 0.9]])).corner(torch.tensor([[-1.0, 1.0]])).tolist()
    [[0.0, 1.0]]
    """

    norm: Norm = "linf"
    epsilon: float | Tensor = 0.1
    low: float | Tensor = -math.inf
    high: float | Tensor = math.inf
    unit: float | Tensor = 1.0
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        if self.norm not in ("linf", "l2", "l1"):
            raise InputError(f"norm must be 'linf', 'l2' or 'l1', got {self.norm!r}. Choose one.")
        radius = torch.as_tensor(self.epsilon)
        check_finite(radius.double(), "epsilon")
        if bool((radius < 0).any()):
            raise InputError(
                f"epsilon must be at least 0, got {float(radius.min()):g}. Enlarge it."
            )
        for name in ("low", "high", "unit", "mask"):
            value = getattr(self, name)
            if value is not None and bool(torch.as_tensor(value).isnan().any()):
                raise InputError(f"{name} must be a number, got NaN. Pass one per feature.")
        if bool((torch.as_tensor(self.unit) < 0).any()):
            raise InputError("unit must be at least 0, got a negative number. Pass sizes.")

    def at(self, epsilon: float | Tensor) -> Self:
        """Return the same threat with another radius."""
        return dataclasses.replace(self, epsilon=epsilon)

    def of(self, rows: Tensor, inputs: Tensor) -> Self:
        """Return the threat to some of the samples: its mask may have one row per sample.

        Args:
            rows: Places of the samples.
            inputs: All samples.
        """
        radius = torch.as_tensor(self.epsilon)
        epsilon = radius[rows.to(radius.device)] if radius.ndim else self.epsilon
        mask = self.mask
        if mask is not None and mask.ndim == inputs.ndim and len(mask) == len(inputs):
            mask = mask[rows.to(mask.device)]
        return dataclasses.replace(self, epsilon=epsilon, mask=mask)

    def around(self, inputs: Tensor) -> "Ball":
        """Place the threat around samples; refuse samples outside of the box.

        Args:
            inputs: One sample per row, of real numbers.
        """
        if not len(inputs):
            raise InputError("An attack must have at least one sample, got none. Pass more data.")
        if not inputs.is_floating_point():
            raise InputError(
                f"An attack must have inputs of real numbers, got {inputs.dtype}. Convert them as "
                "in images.float() / 255, or attack the embeddings of tokens."
            )
        one = inputs[:1]
        low, high, unit = (
            torch.as_tensor(value, dtype=torch.float64).to(one)
            for value in (self.low, self.high, self.unit)
        )
        mask = torch.ones(()) if self.mask is None else torch.as_tensor(self.mask)
        for name, value in (("low", low), ("high", high), ("unit", unit), ("mask", mask)):
            _check_shape(name, value, inputs)
        _check_box(inputs, low, high)
        if self.mask is not None:
            unit = unit * (mask != 0).to(one)
        return Ball(self.norm, inputs, _column(self.epsilon, inputs), low, high, unit)


def _column(epsilon: float | Tensor, inputs: Tensor) -> Tensor:
    # A Python number would pass through single precision otherwise.
    radius = torch.as_tensor(epsilon, dtype=torch.float64).to(inputs)
    if radius.ndim and radius.shape != inputs.shape[:1]:
        raise InputError(
            f"epsilon must be one number or one per sample ({len(inputs)}), got the shape "
            f"{tuple(radius.shape)}. Pass as many as there are samples."
        )
    return radius.expand(len(inputs)).reshape(-1, *[1] * (inputs.ndim - 1))


def _check_shape(name: str, value: Tensor, inputs: Tensor) -> None:
    pairs = zip(reversed(value.shape), reversed(inputs.shape), strict=False)
    if value.ndim > inputs.ndim or any(own not in (1, size) for own, size in pairs):
        raise InputError(
            f"{name} must fit inputs of shape {tuple(inputs.shape)}, got the shape "
            f"{tuple(value.shape)}. Pass one number, or one per feature."
        )


def _check_box(inputs: Tensor, low: Tensor, high: Tensor) -> None:
    if bool((low > high).any()):
        raise InputError("low must be at most high, got a box that is empty. Swap the two.")
    slack = SLACK * torch.where(torch.isfinite(high - low), high - low, torch.ones_like(high - low))
    bottom, top = low - slack, high + slack
    # The extremes suffice where the box is the same for all features, and take one pass.
    ends = inputs if bottom.numel() > 1 else torch.stack(torch.aminmax(inputs))
    if not bool(((ends >= bottom) & (ends <= top)).all()):
        raise InputError(
            f"The inputs must lie in the box from {float(low.min()):g} to {float(high.max()):g}, got "
            f"values from {float(inputs.min()):g} to {float(inputs.max()):g}. Pass low and high in "
            "the units that the model sees."
        )


class Ball:
    """The allowed inputs around every sample of a batch, and the moves of an attack in them.

    Args:
        norm: The norm of the ball.
        inputs: Its centers.
        radius: One radius per sample, as a column.
        low: The smallest values.
        high: The largest values.
        unit: What a change of one means; zero where nothing may change.
    """

    def __init__(
        self, norm: Norm, inputs: Tensor, radius: Tensor, low: Tensor, high: Tensor, unit: Tensor
    ) -> None:
        self.norm, self.inputs, self.radius, self.unit = norm, inputs, radius, unit
        self.plain = bool((unit == 1).all())
        # A sample that rounding put just outside of the box is no reason to move where the mask
        # or a zero radius forbids it, so that the box gives way.
        reach = radius * unit if norm == "linf" else torch.full_like(radius, torch.inf)
        self.bottom, self.top = inputs - reach, inputs + reach
        torch.minimum(torch.maximum(self.bottom, low, out=self.bottom), inputs, out=self.bottom)
        torch.maximum(torch.minimum(self.top, high, out=self.top), inputs, out=self.top)

    def __getitem__(self, rows: Tensor | slice) -> "Ball":
        """Return the balls of some samples."""
        part = object.__new__(Ball)
        part.__dict__.update(self.__dict__)
        for name in ("inputs", "radius", "bottom", "top"):
            setattr(part, name, getattr(self, name)[rows])
        if self.unit.ndim == self.inputs.ndim and len(self.unit) > 1:  # a mask per sample
            part.unit = self.unit[rows]
        return part

    def corner(self, direction: Tensor) -> Tensor:
        """Return the points farthest in a direction: one step of the whole radius."""
        return self.step(self.inputs, direction, 1.0)

    def step(self, points: Tensor, gradient: Tensor, share: float) -> Tensor:
        """Move points uphill by a share of the radius, along the steepest direction of the norm.

        Args:
            points: Where the gradient was taken.
            gradient: One per sample.
            share: The length of the step, as a share of the radius.
        """
        if self.norm == "linf":
            length = share * self.radius if self.plain else share * self.radius * self.unit
            # In place: a fresh tensor for every operation takes several times as long as its numbers.
            move = gradient.sign().mul_(length)
            return move.add_(points).clamp_(self.bottom, self.top)
        slope = gradient if self.plain else gradient * self.unit
        steepest = _unit_l2(slope) if self.norm == "l2" else self._sparse(points, slope)
        return self.project(points + share * self.radius * steepest * self.unit)

    def dual(self, slopes: Tensor) -> Tensor:
        """Return how much a change of size one can move a function of each slope.

        Args:
            slopes: One row per sample, of several gradients each.
        """
        order = {"linf": 1, "l2": 2, "l1": math.inf}[self.norm]
        found: Tensor = torch.linalg.vector_norm(
            (slopes * self._per_slope()).flatten(2), order, dim=2
        )
        return found

    def moved(self, points: Tensor, slope: Tensor, length: Tensor) -> Tensor:
        """Move points along the steepest direction by lengths of one's choice, inside the box."""
        slope, column = slope * self.unit, length.view_as(self.radius)
        if self.norm == "linf":
            move = slope.sign()
        else:
            move = _unit_l2(slope) if self.norm == "l2" else self._sparse(points, slope, count=1)
        return torch.clamp(points + column * move * self.unit, self.bottom, self.top)

    def project(self, points: Tensor) -> Tensor:
        """Return the points, or where they leave the ball or the box, points inside."""
        if self.norm == "linf":
            return torch.clamp(points, self.bottom, self.top)
        move = self._in_units(points)
        if self.norm == "l2":
            length = _rows_norm(move, 2).clamp_min(torch.finfo(move.dtype).tiny)
            move = move * (self.radius / length).clamp_max(1)
        else:
            move = _onto_l1(move, self.radius)
        # Cutting at the box shortens every coordinate, because the center lies in it.
        return torch.clamp(self.inputs + move * self.unit, self.bottom, self.top)

    def sizes(self, points: Tensor) -> Tensor:
        """Return the norm of every sample's change."""
        order = {"linf": math.inf, "l2": 2, "l1": 1}[self.norm]
        return _rows_norm(self._in_units(points), order).flatten()

    def random(self, generator: torch.Generator) -> Tensor:
        """Draw a point per sample, uniformly from the ball, cut off at the box.

        Args:
            generator: On the CPU, so that every device draws the same.
        """
        like, shape = self.inputs, self.inputs.shape
        if self.norm == "linf":
            drawn = 2 * torch.rand(shape, generator=generator, dtype=like.dtype) - 1
            return self.project(self.inputs + self.radius * self.unit * drawn.to(like.device))
        drawn = _drawn(self.norm, shape, like.dtype, generator).to(like.device) * (self.unit > 0)
        length = torch.rand(self.radius.shape, generator=generator, dtype=like.dtype)
        free = (self.unit > 0).expand(shape).flatten(1).sum(1).clamp_min(1).view_as(self.radius)
        drawn = drawn / _rows_norm(drawn, 2 if self.norm == "l2" else 1).clamp_min(1e-12)
        share = length.to(like.device) ** (1 / free.to(like))
        return self.project(self.inputs + self.radius * self.unit * drawn * share)

    def _in_units(self, points: Tensor) -> Tensor:
        move = points - self.inputs
        return move if self.plain else torch.where(self.unit > 0, move / self.unit, 0 * move)

    def _per_slope(self) -> Tensor:
        return self.unit.unsqueeze(1) if self.unit.ndim == self.inputs.ndim else self.unit

    def _sparse(self, points: Tensor, slope: Tensor, count: int = 0) -> Tensor:
        """Return signs at the steepest features that the box leaves free, of total size one."""
        blocked = ((points >= self.top) & (slope > 0)) | ((points <= self.bottom) & (slope < 0))
        flat = slope.masked_fill(blocked, 0).flatten(1)
        count = count or max(1, int(SPARSE * flat.shape[1]))
        limit = flat.abs().topk(count, dim=1).values[:, -1:]
        chosen = flat.sign() * (flat.abs() >= limit)
        return (chosen / chosen.abs().sum(1, keepdim=True).clamp_min(1)).view_as(slope)


def _drawn(norm: Norm, shape: torch.Size, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Draw vectors whose directions are uniform on the sphere of the norm."""
    if norm == "l2":
        return torch.randn(shape, generator=generator, dtype=dtype)
    sizes = torch.empty(shape, dtype=dtype).exponential_(generator=generator)
    return sizes * (2 * torch.randint(0, 2, shape, generator=generator) - 1)


def _rows_norm(move: Tensor, order: float) -> Tensor:
    """Return the norm of every row, as a column."""
    found: Tensor = torch.linalg.vector_norm(move.flatten(1), order, dim=1)
    return found.reshape(-1, *[1] * (move.ndim - 1))


def _unit_l2(slope: Tensor) -> Tensor:
    # Squares of tiny gradients underflow, so rows are brought to a size of one first.
    largest = slope.flatten(1).abs().amax(1).reshape(-1, *[1] * (slope.ndim - 1))
    scaled = slope / torch.where(largest > 0, largest, torch.ones_like(largest))
    return scaled / _rows_norm(scaled, 2).clamp_min(1e-12)


def _onto_l1(move: Tensor, radius: Tensor) -> Tensor:
    """Project every row to the L1 ball of its radius (Duchi et al., 2008)."""
    flat, radius = move.flatten(1), radius.flatten(1)
    ordered = flat.abs().sort(1, descending=True).values
    excess = ordered.cumsum(1) - radius
    counts = torch.arange(1, flat.shape[1] + 1, device=flat.device, dtype=flat.dtype)
    last = (ordered * counts > excess).sum(1, keepdim=True).clamp_min(1)
    threshold = (excess.gather(1, last - 1) / last).clamp_min(0)
    return (flat.sign() * (flat.abs() - threshold).clamp_min(0)).view_as(move)
