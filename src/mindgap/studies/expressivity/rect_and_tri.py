"""Rectangles and tents: networks written by hand, and what training finds in their place."""

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from mindgap.core import (
    Chart,
    Claim,
    Interval,
    Line,
    Recipe,
    Record,
    Series,
    Study,
    Table,
    Trial,
    mean_interval,
    option,
)
from mindgap.nets.mlp import MLP
from mindgap.nets.tents import Rect, Tri
from mindgap.ops.regions.bounds import telgarsky
from mindgap.ops.regions.count import regions_on_segment
from mindgap.remedies import Annealing
from mindgap.training.ensemble import ensemble

HEIGHTS, EPSILON = (0.4, 1.3, 0.8), 1e-7  # of the slides
WIDTH = 8  # units per layer of the trained deep network; the tent needs two
SAMPLES = 513  # training inputs; a grid that holds every kink of nine tents
NETS = {
    "rect": "three rectangles",
    "tri": "tent, written by hand",
    "deep": "trained, deep",
    "shallow": "trained, one layer",
}
NOTES = (
    "Published claim (slides, Telgarsky 2016): one more layer doubles the oscillations, 2ᵏ pieces "
    "with 2k units. One hidden layer with one input needs a unit per kink, 2ᵏ − 1.",
    f"Trained networks fit the tent map applied k times. The deep one has k layers of {WIDTH} units, "
    "the other one layer with as many weights. Both use Adam on squared errors; their input is 2x − 1.",
    "'Crossings' counts how often the output passes 1/2 between 0 and 1, exactly, from its pieces.",
)


class RectAndTri(Study):
    r"""Rectangles and composed tents, exactly, and networks that are trained to be tents.

    Formula: $\mathrm{tri}(x) = 2\,\mathrm{relu}(x) - 4\,\mathrm{relu}(x - 1/2), \qquad
    \mathrm{rect}(x) = \frac{h}{\epsilon} \left[ r(x - a) - r(x - a - \epsilon) - r(x - b) +
    r(x - b - \epsilon) \right],\ r = \mathrm{relu}$

    Reading: Four units make a rectangle, so one layer can approximate anything. Every further layer
    doubles the oscillations of the tent. That a network can represent a function does not mean that
    training finds it: compare the crossings of trained networks with those of the tent.

    Assumes: Double precision for the rectangles: with sides of width 1e-7, float32 cannot represent
    them.

    >>> len(RectAndTri(deepest=3, depths=(1, 2)).trials())
    8
    """

    method = ("E2",)
    cites = ("ollion2018learning", "telgarsky2016benefits", "malach2019deeper")
    reproduces = ("expressivity: Rectangles", "expressivity: Oscillations")

    deepest: int = option(10, help="most applications of the tent map", low=1, high=16)
    depths: tuple[int, ...] = option((1, 2, 3, 4), help="applications to be learned", low=1, high=9)
    seeds: int = option(10, help="trained networks per depth and kind", low=2)
    epochs: int = option(2_000, help="steps of training, each on all inputs", low=1)
    learning_rate: float = option(0.01, help="first learning rate of Adam", above=0)

    def trials(self) -> Sequence[Trial]:
        """The rectangles, every tent, and both trained networks per depth."""
        hand = [("rect", 0), *(("tri", depth) for depth in range(1, self.deepest + 1))]
        trained = [(kind, depth) for depth in self.depths for kind in ("deep", "shallow")]
        return [Trial(parameters={"net": net, "depth": k}) for net, k in [*hand, *trained]]

    def run(self, trial: Trial) -> Record:
        """Measure one network, or train and measure all seeds of one kind."""
        if trial["net"] == "rect":
            return _rectangles()
        if trial["net"] == "tri":
            return _tent(trial["depth"])
        return self._trained(trial["net"], trial["depth"])

    def _trained(self, kind: str, depth: int) -> Record:
        widths = deep_widths(depth) if kind == "deep" else shallow_widths(depth)
        inputs = torch.linspace(-1, 1, SAMPLES)[:, None]  # centered, which training prefers
        targets = Tri(depth)((inputs.double() + 1) / 2).detach().float()
        recipe = Recipe(
            model=lambda: MLP(widths),
            train=(inputs, targets),
            loss="mse",
            epochs=self.epochs,
            batch_size=SAMPLES,
            learning_rate=self.learning_rate,
        )
        members = ensemble(recipe, range(self.seeds), remedies=[Annealing()], keep_history=False)
        counted = [shape(member.model, start=-1.0) for member in members]
        errors = [member.subject().mean_loss() ** 0.5 for member in members]
        best = min(range(self.seeds), key=errors.__getitem__)  # by the loss that is minimized
        return {
            "units": sum(widths[1:-1]),
            "pieces": [pieces for pieces, _ in counted],
            "crossings": [crossings for _, crossings in counted],
            "error": errors,
            **_curve(members[best].model, inputs[::2].double(), start=-1.0),
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per network and depth."""
        return Table(
            title="Rectangles and tents: written by hand, and trained",
            columns=(
                *("network", "applications", "units", "units of one layer", "published pieces"),
                *("pieces", "low", "high", "crossings", "root mean squared error"),
            ),
            rows=tuple(_row(trial, record) for trial, record in records),
            notes=(*NOTES, *_judged(records)),
            claims=_claims(records),
            charts=_charts(records),
        )

    def tiny(self) -> Self:
        """Three tents and few steps."""
        return self.replace(deepest=3, depths=(1, 2), seeds=2, epochs=3)


def shape(model: nn.Module, *, start: float = 0.0, level: float = 0.5) -> tuple[int, int]:
    """Count the linear pieces of a network up to the input 1, and how often it crosses a level.

    Args:
        model: A piecewise linear network with one input and one output.
        start: The smallest input.
        level: The level.

    >>> shape(Tri(depth=3))
    (8, 8)
    """
    found = regions_on_segment(model, torch.full((1,), start), torch.ones(1))
    above = torch.cat([found.values[:1, 0, 0], found.values[:, 1, 0]]) > level
    return found.pieces, int((above[1:] != above[:-1]).sum())


def deep_widths(depth: int) -> tuple[int, ...]:
    """Give the widths of the trained deep network.

    >>> deep_widths(2)
    (1, 8, 8, 1)
    """
    return (1, *[WIDTH] * depth, 1)


def shallow_widths(depth: int) -> tuple[int, ...]:
    """Give the widths of the network with one hidden layer and as many weights, or one fewer.

    >>> shallow_widths(1), shallow_widths(2)
    ((1, 8, 1), (1, 32, 1))
    """
    weights = sum(p.numel() for p in MLP(deep_widths(depth)).parameters())
    return (1, (weights - 1) // 3, 1)


@torch.no_grad()
def _rectangles() -> dict[str, Any]:
    middles = (torch.arange(3, dtype=torch.double)[:, None] + 0.5) / 3
    wanted, found = torch.tensor(HEIGHTS, dtype=torch.double), Rect(HEIGHTS, EPSILON)
    single = Rect(HEIGHTS, EPSILON).float()(middles.float()).double().flatten()
    starts = torch.arange(4, dtype=torch.double) / 3
    spaced = torch.linspace(-0.1, 1.1, 25, dtype=torch.double)
    places = torch.cat([spaced, starts, starts + EPSILON]).sort().values
    return {
        "units": 4 * len(HEIGHTS),
        "heights": found(middles).flatten().tolist(),
        "error": float((found(middles).flatten() - wanted).abs().max()),
        "float32_error": float((single - wanted).abs().max()),
        **_curve(found, places[:, None]),
    }


def _tent(depth: int) -> dict[str, Any]:
    pieces, crossings = shape(Tri(depth))
    inputs = torch.linspace(0, 1, 2 ** min(depth, 6) + 1, dtype=torch.double)[:, None]
    return {
        "units": 2 * depth,
        "pieces": [pieces],
        "crossings": [crossings],
        "error": [0.0],
        **_curve(Tri(depth), inputs),
    }


@torch.no_grad()
def _curve(model: nn.Module, inputs: Tensor, start: float = 0.0) -> dict[str, list[float]]:
    own = model.double()(inputs).flatten()
    return {
        "x": [round((x - start) / (1 - start), 10) for x in inputs.flatten().tolist()],
        "y": [round(y, 5) for y in own.tolist()],
    }


def _row(trial: Trial, record: Record) -> tuple[object, ...]:
    net, depth = trial["net"], trial["depth"]
    if net == "rect":
        head = (NETS[net], None, record["units"], record["units"])
        return (*head, *[None] * 5, record["error"])
    counts = record["pieces"]
    ends = mean_interval(counts) if net != "tri" else Interval(low=counts[0], high=counts[0])
    return (
        *(NETS[net], depth, record["units"], telgarsky(depth) - 1),
        telgarsky(depth) if net == "tri" else None,
        *(_mean(counts), ends.low, ends.high),
        *(_mean(record["crossings"]), _mean(record["error"])),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _judged(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    found = {(trial["net"], trial["depth"]): record for trial, record in records}
    told = []
    if ("rect", 0) in found:
        own = found["rect", 0]
        told.append(
            f"Rectangles: heights are off by {own['error']:.1e} in float64 and by "
            f"{own['float32_error']:.1e} in float32."
        )
    tents, doubled = _doubled(records)
    if tents:
        word = "have exactly 2ᵏ pieces" if doubled else "do not all have 2ᵏ pieces"
        told.append(f"The tents from k = {min(tents)} to {max(tents)} {word}.")
    trained = [depth for net, depth in found if net == "deep"]
    if trained:
        last = max(trained)
        told.append(
            f"Trained on the tent map applied {last} times, with {2**last} crossings: "
            + "; ".join(_found(NETS[net], found[net, last]) for net in ("deep", "shallow"))
            + "."
        )
    return told


def _doubled(records: Sequence[tuple[Trial, Record]]) -> tuple[list[int], bool]:
    """List the depths of the tents, and tell whether each has twice the pieces of the last."""
    tents = {trial["depth"]: record["pieces"] for trial, record in records if trial["net"] == "tri"}
    return list(tents), all(pieces == [2**depth] for depth, pieces in tents.items())


def _claims(records: Sequence[tuple[Trial, Record]]) -> tuple[Claim, ...]:
    errors = [record["error"] for trial, record in records if trial["net"] == "rect"]
    tents, doubled = _doubled(records)
    rect = [
        Claim.shown("Four units make a rectangle of any height.", error < 1e-6) for error in errors
    ]
    text = "One layer more doubles the oscillations of the tent."
    return (*rect, *([Claim.shown(text, doubled)] if len(tents) > 1 else []))


def _found(name: str, record: Record) -> str:
    return (
        f"{name.removeprefix('trained, ')} has {_mean(record['crossings']):.1f} crossings, error "
        f"{_mean(record['error']):.3f} {mean_interval(record['error'])}"
    )


def _charts(records: Sequence[tuple[Trial, Record]]) -> tuple[Chart, ...]:
    found = {(trial["net"], trial["depth"]): record for trial, record in records}
    charts: list[Chart] = []
    if ("rect", 0) in found:
        charts.append(_drawn("Three rectangles from one layer of 12 units", found["rect", 0]))
    tents = [depth for net, depth in found if net == "tri"]
    for depth in tents[:4]:
        title = f"The tent map applied {'once' if depth == 1 else f'{depth} times'}"
        charts.append(_drawn(title, found["tri", depth], wide=False))
    charts.append(_oscillations(found, "crossings", "Oscillations against depth"))
    learned = [depth for net, depth in found if net == "deep"]
    return (*charts, *(_attempts(found, depth) for depth in learned[-1:]))


def _drawn(title: str, record: Record, wide: bool = True) -> Line:
    return Line(
        title=title,
        x_label="input",
        y_label="output",
        series=[Series(name="output", x=record["x"], y=record["y"], mode="lines")],
        wide=wide,
    )


def _oscillations(found: dict[tuple[str, int], Record], which: str, title: str) -> Line:
    series = list[Series]()
    for net in ("tri", "deep", "shallow"):
        own = {depth: record[which] for (name, depth), record in found.items() if name == net}
        if not own:
            continue
        ends = [mean_interval(row) for row in own.values()] if net != "tri" else []
        series.append(
            Series(
                name=NETS[net],
                x=list(own),
                y=[_mean(row) for row in own.values()],
                low=[max(e.low, 0.5) for e in ends],  # a logarithmic axis has no zero
                high=[e.high for e in ends],
            )
        )
    return Line(
        title=title,
        x_label="applications of the tent map",
        y_label="crossings of 1/2",
        y_scale="log",
        series=series,
        caption="Bands are 95 % intervals over seeds.",
    )


def _attempts(found: dict[tuple[str, int], Record], depth: int) -> Line:
    parts = {net: found[net, depth] for net in ("tri", "deep", "shallow") if (net, depth) in found}
    return Line(
        title=f"The tent map applied {depth} times, and the best networks trained on it",
        x_label="input",
        y_label="output",
        series=[
            Series(name=NETS[net], x=record["x"], y=record["y"], mode="lines")
            for net, record in parts.items()
        ],
    )
