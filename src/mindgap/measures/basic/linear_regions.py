"""How many linear regions lie between samples."""

import math

import torch
from torch import Tensor

from mindgap.core import (
    Chart,
    Estimate,
    InputError,
    Measure,
    Points,
    Subject,
    Undefined,
    evaluating,
    generator,
    mean_interval,
    option,
)
from mindgap.ops.models.gates import recorded
from mindgap.ops.norms.watch import watched
from mindgap.ops.regions.count import SliceRegions, regions_on_segment, regions_on_slice

ENTRIES = 2e7  # numbers that the widest layer may have over all regions
WIDEST = 1024  # units of the widest layer up to which a plane is cut
MOST = 20_000  # regions of a plane
GLANCE = 33  # points of a segment that are looked at first
EDGE = 0.25  # by which the part of the plane reaches beyond the three samples


class LinearRegions(Measure):
    r"""Mean number of linear regions that the segment between two training samples crosses.

    Formula: $\frac{1}{m} \sum_{(i, j)} \#\left\{ \text{activation patterns on the segment from } x_i
    \text{ to } x_j \right\}$

    Reading: One means that the network is linear between samples. The count is exact for every
    segment; the interval is for the segments that were not drawn. ``slice`` counts the regions in the
    plane through three samples, ``pieces`` joins neighbors of equal slope. More regions are not better
    or worse by themselves: trained networks use far fewer than they could.

    Assumes: A piecewise linear network, with ReLU and its relatives or max-pooling, whose inputs are
    real numbers. Samples are drawn at random, so that the value depends on their order.

    >>> from torch import nn
    >>> data = torch.linspace(-1, 1, 8)[:, None], torch.arange(8) % 2
    >>> subject = Subject(nn.Linear(1, 2), "cross_entropy", data)
    >>> float(LinearRegions()(subject))
    1.0
    """

    method = ("E2",)
    cites = ("hanin2019complexity", "montufar2014number")
    direction = "none"
    invariant_to = frozenset({"unit-permutation", "relu-rescaling", "output-scaling"})
    cost = "moderate"

    segments: int = option(10, help="pairs of training samples to connect", low=1)
    seed: int = option(0, help="seed of the choice of samples", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Cut the segments, and the plane if the network is small enough."""
        rows = self._samples(subject)
        widest = _widest(subject, rows[:1])
        most = max(100, int(ENTRIES / (3 * widest)))
        switched = max(
            _switched(subject, *pair) for pair in zip(rows[::2], rows[1::2], strict=True)
        )
        if switched > most:  # known after a glance, where the search would take seconds
            raise Undefined(
                f"At most {most:,} regions can be counted between two samples, got a network of which "
                f"{switched:,} units or more switch there. Choose a smaller one, or another measure."
            )
        try:
            found = [
                regions_on_segment(subject.model, *pair, most=most)
                for pair in zip(rows[::2], rows[1::2], strict=True)
            ]
        except InputError as error:
            raise Undefined(str(error)) from error
        counts = [float(one.count) for one in found]
        terms = {"pieces": sum(float(one.pieces) for one in found) / len(found)}
        charts: tuple[Chart, ...] = (found[0].chart("Outputs between two training samples"),)
        small = widest <= WIDEST and len(rows) > 2 and rows[0].numel() > 1
        plane = _plane(subject, rows, min(most, MOST)) if small else None
        if plane is not None:
            terms["slice"] = float(plane.count)
            charts = (_colored(plane), *charts)
        return Estimate(
            value=sum(counts) / len(counts),
            status="estimate",
            interval=mean_interval(counts) if len(counts) > 1 else None,
            terms=terms,
            charts=charts,
        )

    def _samples(self, subject: Subject) -> Tensor:
        split = subject.split("train")
        order = torch.randperm(len(split), generator=generator(self.seed))
        inputs = split.take(order[: 2 * min(self.segments, len(split) // 2)]).inputs
        parts = list(inputs.values()) if isinstance(inputs, dict) else list(inputs)
        if isinstance(inputs, dict) or len(parts) != 1 or not parts[0].is_floating_point():
            raise Undefined("needs a single input of real numbers per sample")
        if len(parts[0]) < 2:
            raise Undefined("needs at least two training samples")
        return parts[0]


def _switched(subject: Subject, start: Tensor, end: Tensor) -> int:
    """Count how often ReLU units switch on a segment, as far as a few points on it tell."""
    shares = torch.linspace(0, 1, GLANCE).view(-1, *[1] * start.ndim).to(start)
    try:
        with evaluating(subject.model):
            _, gates = recorded(lambda: subject.forward((start + shares * (end - start),)))
    except InputError:  # gates of other functions, which the search knows or refuses by name
        return 0
    open_or_not = [gate for gate in gates if gate.dtype == torch.bool]
    return sum(int((gate[1:] != gate[:-1]).sum()) for gate in open_or_not)


def _widest(subject: Subject, row: Tensor) -> int:
    calls, _ = watched(subject.model, row.to(next(subject.model.parameters(), row)))
    return max([row.numel(), *(math.prod(call.out) for call in calls)])


def _plane(subject: Subject, rows: Tensor, most: int) -> SliceRegions | None:
    low, high = -EDGE, 1 + EDGE
    corners = torch.tensor([[low, low], [high, low], [high, high], [low, high]]).double()
    first, second = rows[1] - rows[0], rows[2] - rows[0]
    try:
        return regions_on_slice(subject.model, rows[0], first, second, corners=corners, most=most)
    except InputError:  # too many to count here; the segments are told
        return None


def _colored(plane: SliceRegions) -> Chart:
    samples = Points(name="training samples", x=[0.0, 1.0, 0.0], y=[0.0, 0.0, 1.0])
    return plane.chart("Linear regions in the plane of three training samples", (samples,), 96)
