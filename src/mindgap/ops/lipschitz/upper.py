"""A certified upper bound for any model: tight where that is possible, otherwise by parts or the product."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Subject, copied, evaluating, implements
from mindgap.ops.attacks.scene import attackable
from mindgap.ops.lipschitz.certificate import Infeasible
from mindgap.ops.lipschitz.levels import read_levels
from mindgap.ops.lipschitz.tight import STEPS, Tight, tight_upper
from mindgap.ops.lipschitz.trace import NotCovered
from mindgap.ops.models.sequence import in_sequence
from mindgap.ops.norms.composed import lipschitz_upper

Method = Literal["tight", "parts", "product"]


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a network whose constant was bounded on its own.

    Args:
        name: Its layers.
        method: ``"tight"`` or ``"product"``.
        upper: Its constant is at most this.
        reason: Why it is not tight.
    """

    name: str
    method: str
    upper: float
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Upper:
    """A certified bound of a model's Lipschitz constant.

    Args:
        upper: The constant is at most this; infinite if no rule covers the model.
        method: ``"tight"`` for the whole network at once, ``"parts"`` for the product of bounds of
            its parts, ``"product"`` for the product and sums of layer norms.
        product: The product and sums of layer norms, for comparison.
        outputs: P: (cᵀd)² ≤ cᵀPc ‖x − x'‖² for the difference d of two outputs and every c; None
            without a tight bound.
        parts: What was bounded on its own.
        steps: The bound after every step of the search for multipliers.
        reason: Why the whole network is not bounded at once.
    """

    upper: float
    method: Method
    product: float
    outputs: Tensor | None
    parts: tuple[Part, ...]
    steps: tuple[float, ...] = ()
    reason: str = ""

    def pairs(self) -> Tensor | None:
        """Return the constants of the differences of every two outputs; None without a tight bound."""
        return None if self.outputs is None else pair_constants(self.outputs)


@implements("S5", "E9", cites=("fazlyab2019efficient", "xu2024eclipse", "bartlett2017spectrally"))
def certified_upper(
    model: nn.Module, sample: Tensor, *, steps: int = STEPS, seconds: float = math.inf
) -> Upper:
    r"""Bound the Lipschitz constant of a model from above, and say how.

    Formula: $\lVert f(x) - f(x') \rVert_2 \le L \lVert x - x' \rVert_2$

    Reading: Holds for all inputs, in exact arithmetic. Networks of affine layers, activations with
    known slopes, max-pooling, sums and concatenations are bounded as a whole. A sequence with other
    layers is cut there, and the bounds of its parts are multiplied. What is left has the product and
    sums of its layers' norms, if all have one.

    Assumes: A model that takes the same way for all inputs; evaluation mode.

    Args:
        model: Any module that takes one tensor; it is not changed.
        sample: One input, without the batch. Its shape counts.
        steps: How many steps improve the multipliers, at most.
        seconds: The CPU time after which no step begins, of each part that is bounded on its own.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.ReLU(), nn.Linear(3, 2))
    >>> found = certified_upper(net, torch.zeros(2))
    >>> found.method, [(part.name, part.method) for part in found.parts]
    ('parts', [('0', 'tight'), ('1', 'product'), ('2 to 3', 'tight')])
    """
    if not all(bool(torch.isfinite(p).all()) for p in model.parameters()):
        raise InputError("The weights must be finite, got NaN or infinity. Train the model again.")
    product = lipschitz_upper(model, sample.detach()[None])
    search = _Search(steps, seconds)
    try:
        tight = _tight([model], sample, search)
        return _best(tight, product.upper)
    except (NotCovered, Infeasible) as error:
        reason = str(error)
    layers = in_sequence(model)
    if len(layers) > 1:
        with_parts = _by_parts(layers, sample, search, product.upper, reason)
        if with_parts.upper <= product.upper:
            return with_parts
    whole = Part("the whole model", "product", product.upper, product.reason or reason)
    return Upper(
        product.upper, "product", product.upper, None, (whole,), (), product.reason or reason
    )


def pair_constants(outputs: Tensor) -> Tensor:
    """Return the constants of the differences of every two outputs, from their certificate.

    >>> pair_constants(torch.eye(2, dtype=torch.double))[0, 1].square().round(decimals=6)
    tensor(2., dtype=torch.float64)
    """
    sizes = outputs.diagonal()
    squares = sizes[:, None] + sizes - 2 * outputs
    reserve = 16 * 2.0**-53 * float(sizes.abs().max())
    return squares.clamp_min(0).add(reserve).sqrt() * (1 + 1e-9)


def _best(tight: Tight, product: float) -> Upper:
    part = Part("the whole model", "tight", tight.upper)
    return Upper(min(tight.upper, product), "tight", product, tight.outputs, (part,), tight.steps)


@dataclasses.dataclass(frozen=True)
class _Search:
    """How long multipliers are improved, at most."""

    steps: int
    seconds: float


def _tight(layers: Sequence[nn.Module], sample: Tensor, search: _Search) -> Tight:
    model = layers[0] if len(layers) == 1 else nn.Sequential(*layers)
    return tight_upper(read_levels(model, sample), **dataclasses.asdict(search))


def _by_parts(
    layers: Sequence[nn.Module], sample: Tensor, search: _Search, product: float, reason: str
) -> Upper:
    private = [copied(layer).cpu().double() for layer in layers]
    samples = [sample.detach().cpu().double()]
    for layer in private:
        with evaluating(layer):
            samples.append(layer(samples[-1][None])[0])
    found = list[tuple[Part, Tight | None]]()
    start = 0
    while start < len(private):
        stop, tight, why = _longest(private, samples, start, search)
        name = str(start) if stop == start + 1 else f"{start} to {stop - 1}"
        if tight is None:
            alone = lipschitz_upper(private[start], samples[start][None])
            found.append((Part(name, "product", alone.upper, alone.reason or why), None))
        else:
            found.append((Part(name, "tight", tight.upper), tight))
        start = stop
    upper = math.prod(part.upper for part, _ in found)
    last = found[-1][1]
    before = math.prod(part.upper for part, _ in found[:-1])
    outputs = None if last is None or not math.isfinite(before) else last.outputs * before**2
    return Upper(upper, "parts", product, outputs, tuple(part for part, _ in found), (), reason)


def _longest(
    layers: Sequence[nn.Module], samples: Sequence[Tensor], start: int, search: _Search
) -> tuple[int, Tight | None, str]:
    """Find the longest run of layers from one on that can be bounded at once."""
    stop, why = start, ""
    while stop < len(layers):
        try:
            read_levels(nn.Sequential(*layers[start : stop + 1]), samples[start])
        except NotCovered as error:
            why = str(error)
            break
        stop += 1
    if stop == start:
        return start + 1, None, why
    return stop, _tight(layers[start:stop], samples[start], search), ""


def upper_of(subject: Subject, steps: int, seconds: float = math.inf) -> Upper:
    """Bound the model of a subject, once for each of these limits.

    Args:
        subject: Must have one input of real numbers per sample.
        steps: How many steps improve the multipliers, at most.
        seconds: The CPU time after which no step begins.
    """

    def make() -> Upper:
        first = attackable(subject, "train", torch.arange(1))
        return certified_upper(subject.model, first[0], steps=steps, seconds=seconds)

    return subject.cached(("lipschitz: upper", steps, seconds), make)
