"""Sources of samples without end, with the best predictor or its risk where they are known."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError, generator, integer, unknown_name, validated
from mindgap.data.catalog import load
from mindgap.data.dataset import DataSet
from mindgap.data.generators import heteroscedastic_mean

Data = tuple[Tensor, Tensor]
Draw = Callable[[int, int], Data]
_ANGLES = 2000  # points of the quadrature along each moon
_CHUNK = 2000  # inputs whose densities are computed at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Independent samples of one distribution, as many as are asked for.

    Args:
        name: What reports call it.
        samples: Takes sizes and a seed, and gives one independent sample per size, each as inputs
            and targets.
        best: The best predictor f*: inputs to outputs, where it is known.
        floors: The risk of f* by "loss" or "error", where only this number is known.
    """

    name: str
    samples: Callable[[Sequence[int], int], list[Data]]
    best: Callable[[Tensor], Tensor] | None = None
    floors: Mapping[str, float] = dataclasses.field(default_factory=dict)


@validated
def source(name: str, *, seed: int = 0, **options: Any) -> Source:
    """Make a source of a generator in the catalog.

    Args:
        name: ``"heteroscedastic"``, ``"two-moons"``, ``"gaussian-mixture"`` or ``"teacher"``.
        seed: Seed of the world, where the generator draws one: the teacher, or the means.
        **options: Arguments of the generator, other than sizes and seed.

    >>> made = source("heteroscedastic", noise=0.3)
    >>> [len(inputs) for inputs, _ in made.samples([3, 5], 1)]
    [3, 5]
    """
    if name not in _TRUTHS:
        raise unknown_name("source", name, _TRUTHS)

    def samples(sizes: Sequence[int], draw: int) -> list[Data]:
        # One long sample, cut: generators draw their world and their samples from one seed.
        whole = load(name, size=sum(sizes), seed=seed if name in _WORLDS else draw, **options)
        order = torch.randperm(len(whole), generator=generator(draw))
        return cut(whole.train, order, sizes)

    truth = _TRUTHS[name](load(name, seed=seed, **options), options)
    return Source(name=name, samples=samples, **truth)


def drawn(draw: Draw, name: str = "samples") -> Source:
    """Make a source of a function.

    Args:
        draw: Takes a size and a seed, and returns inputs and targets.
        name: What reports call it.

    >>> made = drawn(lambda size, seed: (torch.zeros(size, 1), torch.zeros(size, 1)))
    >>> [len(inputs) for inputs, _ in made.samples([3, 5], 1)]
    [3, 5]
    """

    def samples(sizes: Sequence[int], seed: int) -> list[Data]:
        found = [draw(size, seed * 1_000_003 + place) for place, size in enumerate(sizes)]
        for size, pair in zip(sizes, found, strict=True):
            _check(pair, size)
        return found

    return Source(name=name, samples=samples)


def cut(data: Data, order: Tensor, sizes: Sequence[int]) -> list[Data]:
    """Cut disjoint samples of some sizes out of data.

    Args:
        data: Inputs and targets.
        order: Places of the samples to take, in their order.
        sizes: How many samples each part has.

    >>> whole = torch.arange(5.0)
    >>> [part.tolist() for part, _ in cut((whole, whole), torch.arange(5), [2, 1])]
    [[0.0, 1.0], [2.0]]
    """
    ends = list(itertools.accumulate(sizes))
    integer("the number of samples", len(order), max(ends, default=0))
    places = [order[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    return [(data[0][rows], data[1][rows]) for rows in places]


def _check(pair: object, size: int) -> None:
    good = isinstance(pair, tuple) and len(pair) == 2 and all(map(torch.is_tensor, pair))
    if not good or {len(part) for part in pair} != {size}:  # type: ignore[attr-defined]
        raise InputError(
            f"The function that draws must return two tensors of {size} rows, inputs and targets, "
            f"got {type(pair).__name__}. Return (inputs, targets)."
        )


def _heteroscedastic(_: DataSet, __: Mapping[str, Any]) -> dict[str, Any]:
    return {"best": heteroscedastic_mean}


def _two_moons(_: DataSet, options: Mapping[str, Any]) -> dict[str, Any]:
    noise = float(options.get("noise", 0.1))
    return {"best": lambda inputs: moon_logits(inputs, noise)}


def _gaussian_mixture(data: DataSet, _: Mapping[str, Any]) -> dict[str, Any]:
    known = data.facts.get("bayes_error")
    return {} if known is None else {"floors": {"error": known}}


def _teacher(data: DataSet, options: Mapping[str, Any]) -> dict[str, Any]:
    if data.task == "regression":
        return {"floors": {"loss": data.facts["noise_variance"]}}
    wrong, classes = float(options.get("noise", 0.0)), len(data.classes or ())
    parts = [(1 - wrong, 1), (wrong, classes - 1)]
    entropy = sum(-share * math.log(share / count) for share, count in parts if share)
    return {"floors": {"loss": entropy, "error": wrong}}


def moon_logits(inputs: Tensor, noise: float) -> Tensor:
    """Compute the logarithms of the two moons' densities, by quadrature along each moon.

    Args:
        inputs: Points of the plane.
        noise: Standard deviation of the noise.

    >>> moon_logits(torch.tensor([[0.0, 1.0], [1.0, -0.5]]), 0.1).argmax(1)
    tensor([0, 1])
    """
    angles = (torch.arange(_ANGLES, dtype=torch.float64) + 0.5) * math.pi / _ANGLES
    moons = [(angles.cos(), angles.sin()), (1 - angles.cos(), 0.5 - angles.sin())]
    return torch.cat(
        [
            torch.stack([_density(rows.double(), torch.stack(moon, 1), noise) for moon in moons], 1)
            for rows in inputs.split(_CHUNK)
        ]
    ).to(inputs)


def _density(points: Tensor, along: Tensor, noise: float) -> Tensor:
    return (-torch.cdist(points, along).square() / (2 * noise**2)).logsumexp(1)


# What is known about the generators: fields of their sources.
_TRUTHS: dict[str, Callable[[DataSet, Mapping[str, Any]], dict[str, Any]]] = {
    "heteroscedastic": _heteroscedastic,
    "two-moons": _two_moons,
    "gaussian-mixture": _gaussian_mixture,
    "teacher": _teacher,
}
_WORLDS = ("gaussian-mixture", "teacher")
