"""Figure 1 of Wang et al. 2018: loss, Ψ and bound of a network with two weights."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import (
    Chart,
    Claim,
    Contour,
    Heatmap,
    InputError,
    Mark,
    Points,
    Record,
    Study,
    Surface,
    Table,
    Trial,
    option,
    proportion_interval,
)
from mindgap.ops.variance.by_k import grid_over
from mindgap.studies.pacgen.optima import SLIGHTLY, landscape, optima
from mindgap.studies.pacgen.toy import CLUSTERS, Toy, scores

DRAWN = 81  # grid points of the surface per axis
CELLS = 61  # grid points of the input plane per axis
COLORS = {"sharp": "#009E73", "flat": "#D55E00"}  # safe for color-blind readers
ABOVE = (
    1.0  # clips the surface this far above the flat optimum, else its walls would hide the minima
)


def drawing(toy: Toy, lines: int) -> dict[str, Any]:
    """Return the maps and samples of the charts as plain numbers, rounded.

    Args:
        toy: The landscape.
        lines: Grid points per axis for the search of minima.
    """
    pair, grid = optima(toy, lines).pair, grid_over(toy.inputs, CELLS)
    found = landscape(toy, pair, DRAWN)
    chance = toy.margins(pair[:, 0], pair[:, 1], grid.nodes).sigmoid()
    return {
        **{name: _short(getattr(found, name)) for name in ("x", "y")},
        **{name: _rows(getattr(found, name)) for name in ("loss", "psi", "bound")},
        "top": round(float(toy.losses(pair)[1]) + ABOVE, 2),
        "plane": {"x": _short(grid.x), "y": _short(grid.y)},
        "chance": [_rows(grid.rows(row), 3) for row in chance],
        "points": [
            [_short(place), int(label)] for place, label in zip(toy.inputs, toy.labels, strict=True)
        ],
    }


def charts(record: Mapping[str, Any]) -> list[Chart]:
    """Chart the loss surface, and the predictions at both optima.

    Args:
        record: The record of the trial ``drawing``.
    """
    marks = [
        Mark(
            name=f"{which} optimum",
            x=record[which]["place"][0],
            y=record[which]["place"][1],
            color=color,
        )
        for which, color in COLORS.items()
    ]
    surface = Surface(
        title=f"Loss around both optima, seed {record['seed']}, clipped at {record['top']:g}",
        x=record["x"],
        y=record["y"],
        z=record["loss"],
        color=record["psi"],
        floor=record["bound"],
        top=record["top"],
        marks=marks,
        x_label="w₁",
        y_label="w₂",
        z_label="training loss",
        color_label="Ψ",
        floor_label="bound (8)",
    )
    return [surface, *(_plane(record, place, which) for place, which in enumerate(COLORS))]


def _plane(record: Mapping[str, Any], place: int, which: str) -> Heatmap:
    chance = record["chance"][place]
    points = [
        Points(
            name=name,
            x=[where[0] for where, label in record["points"] if label == number],
            y=[where[1] for where, label in record["points"] if label == number],
        )
        for number, name in enumerate(("other clusters", "third cluster"))
    ]
    wrong = f"{100 * record[which]['error']:.1f} % wrong on fresh samples"
    return Heatmap(
        title=f"Predictions at the {which} optimum: {wrong}",
        x=record["plane"]["x"],
        y=record["plane"]["y"],
        z=chance,
        z_label="probability of the third cluster",
        x_label="first input",
        y_label="second input",
        points=points,
        contours=[
            Contour(name="boundary", z=[[round(value - 0.5, 4) for value in row] for row in chance])
        ],
        wide=False,
    )


def _rows(table: Tensor, digits: int = 4) -> list[list[float]]:
    return [_short(row, digits) for row in table]


def _short(values: Tensor, digits: int = 4) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]


COLUMNS = {
    "loss": "training loss",
    "trace": "Hessian trace",
    "psi": "Ψ",
    "psi_without_rho": "Ψ, ρ = 0",
    "null": "Ψ, no Hessian",
    "bound": "bound (8)",
    "risk": "true loss",
    "gap": "gap",
    "error": "true error",
}
PAIR = ("sharp", "flat")
DULL = 0.005  # a true error this close to the majority-class baseline is no better than it
MOST_TRIES = 1000  # seeds searched for one with two optima


class PacgenFigure1(Study):
    r"""Figure 1 of Wang et al. 2018: loss, Ψ and bound of a network with two weights.

    Formula: $\hat L(w) + \frac{m/2 + \sum_i \ln(\tau_i/\sigma_i^*) + \ln(1/\delta)}{\eta} +
    \frac{\eta}{2n}, \qquad \eta = 39,\ m = 2,\ n = 100,\ \tau_i = |w_i| + \kappa_i$

    Reading: In the chart, height is the training loss, color is Ψ, and the floor is the bound. The
    sharp optimum is the lowest local minimum. The flat optimum has the smallest Hessian trace among
    the minima at most 0.1 above it. The chart shows the first seed in which these two differ. The
    paper shows a single landscape. Here many seeds show how often its observations hold, and which
    optimum has the smaller loss on fresh samples. Ψ is compared with two controls: Ψ with ρ = 0,
    and Ψ without any Hessian, which depends on the size of the weights alone.

    Assumes: Neither number is a valid bound here. Cross entropy may exceed 1, τ depends on the
    data, and the loss is rarely convex within κ, as the notes count. ρ is the largest norm of the
    third derivative on a grid over that neighborhood. ``mindgap.studies.pacgen.toy`` describes the
    choices that the paper leaves open.

    >>> len(PacgenFigure1().trials())
    201
    """

    method = ("P6", "P9")
    cites = ("wang2018identifying",)
    reproduces = ("pacgen: Figure 1",)

    seeds: int = option(200, help="number of landscapes", low=2)
    samples: int = option(100, help="training samples per landscape", low=2)
    fresh: int = option(100_000, help="fresh samples that estimate the true loss", low=2)
    lines: int = option(301, help="grid points per axis in the search of minima", low=31)

    def trials(self) -> Sequence[Trial]:
        """One trial for the chart, and one per landscape."""
        landscapes = [
            Trial(parameters={"part": "landscape"}, seed=seed) for seed in range(self.seeds)
        ]
        return [Trial(parameters={"part": "drawing"}), *landscapes]

    def run(self, trial: Trial) -> Record:
        """Return both optima of a landscape, or the chart of the first one that has two."""
        if trial["part"] == "landscape":
            return self._pair(trial.seed)
        for seed in itertools.islice(itertools.count(), MOST_TRIES):
            found = self._pair(seed)
            if "sharp" in found:
                return {**found, **drawing(self._toy(seed), self.lines), "seed": seed}
        raise InputError(
            f"One of {MOST_TRIES} landscapes must have a sharp and a flat optimum, got none. "
            "Raise lines."
        )

    def _toy(self, seed: int) -> Toy:
        return Toy.draw(self.samples, seed)

    def _pair(self, seed: int) -> dict[str, Any]:
        """Count the minima and, if another one is flatter than the lowest, score both."""
        toy = self._toy(seed)
        found = optima(toy, self.lines)
        record: dict[str, Any] = {"minima": len(found.places), "lower_at_edge": found.lower_at_edge}
        if found.flat is None:
            return record
        truth = toy.fresh(self.fresh, 1_000_000 + seed)
        other = found.other(seed)
        record["other_gap"] = float(truth.losses(other) - toy.losses(other))
        return {**record, **dict(zip(PAIR, scores(toy, found.pair, truth), strict=True))}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """Tabulate the charted optima, and compare sharp and flat over all landscapes."""
        drawn = [record for trial, record in records if trial["part"] == "drawing"]
        every = [record for trial, record in records if trial["part"] == "landscape"]
        pairs = [record for record in every if "sharp" in record]
        rows = [
            _row(f"drawn, seed {record['seed']}", which, record[which])
            for record in drawn
            for which in PAIR
        ]
        return Table(
            title="PAC-Bayes, Figure 1: a sharp and a flat optimum of a network of two weights",
            columns=("where", "optimum", *COLUMNS.values()),
            rows=(*rows, *(_over(pairs) if pairs else ())),
            notes=tuple(_notes(every, pairs)),
            claims=_claims(pairs) if pairs else (),
            charts=tuple(chart for record in drawn for chart in charts(record)),
        )

    def tiny(self) -> Self:
        """Use few landscapes on a coarse grid."""
        return self.replace(seeds=3, fresh=500, lines=61)


def _row(where: str, which: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    return (where, which, *(values[name] for name in COLUMNS))


def _over(pairs: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Return medians, and how often the sharp optimum has the larger value, with intervals."""
    table = torch.tensor(
        [[[pair[which][name] for name in COLUMNS] for which in PAIR] for pair in pairs]
    )
    middle, higher = table.median(0).values, (table[:, 0] > table[:, 1]).sum(0)
    spans = [proportion_interval(int(count), len(pairs)) for count in higher]
    where = f"{len(pairs)} landscapes"
    return [
        *(
            (where, f"{which}, median", *row.tolist())
            for which, row in zip(PAIR, middle, strict=True)
        ),
        (where, "sharp is higher in %", *(100 * int(count) / len(pairs) for count in higher)),
        (where, "at least (95 %)", *(100 * span.low for span in spans)),
        (where, "at most (95 %)", *(100 * span.high for span in spans)),
    ]


def _notes(every: Sequence[Record], pairs: Sequence[Record]) -> list[str]:
    counts = sorted(record["minima"] for record in every)
    edge = sum(record["lower_at_edge"] for record in every)
    notes = [
        f"There are {len(every)} landscapes; each seed draws clusters, fixed weights and samples. "
        f"The median number of local minima is {counts[len(counts) // 2] if counts else 0}. "
        f"In {len(pairs)} of them another minimum, at most {SLIGHTLY} above the lowest, is "
        f"flatter. In {edge} the loss is lower still at the edge of the square.",
        "The paper reports on its one landscape that Ψ is higher at the sharp optimum. The flat "
        "optimum has a slightly higher loss and a similar bound there.",
    ]
    if not pairs:
        return notes
    both = [pair[which] for pair in pairs for which in PAIR]
    apart = sorted(abs(pair["sharp"]["bound"] - pair["flat"]["bound"]) for pair in pairs)[
        len(pairs) // 2
    ]
    convex = sum(row["convex"] for row in both)
    held = sum(row["noisy_risk"] <= row["bound"] for row in both)
    dull = sum(abs(row["error"] - 1 / CLUSTERS) < DULL for row in both)
    right = {
        name: sum(_agrees(pair, name) for pair in pairs)
        for name in ("psi", "psi_without_rho", "null", "trace")
    }
    control = _share(sum(pair["other_gap"] < pair["sharp"]["gap"] for pair in pairs), len(pairs))
    said = ", ".join(
        f"{COLUMNS[name]} {_share(count, len(pairs))}" for name, count in right.items()
    )
    return [
        *notes,
        f"The median difference of the two bounds is {apart:.3f}. The loss is convex within κ at "
        f"{convex} of {len(both)} optima. The true loss under the noise of (9) is below bound (8) "
        f"at {held}. At {dull} the error equals that of the majority-class baseline, a third.",
        "The optimum with the lower value has the smaller gap in this share of landscapes: "
        f"{said}. Chance is 50 %.",
        "Choosing the lowest training loss favors a large gap. The control is therefore a random "
        f"minimum at most {SLIGHTLY} above the lowest, flat or not. Its gap is smaller than that "
        f"of the sharp optimum in {control}.",
    ]


def _claims(pairs: Sequence[Record]) -> tuple[Claim, ...]:
    """Judge by shares of landscapes whose interval is above a half."""
    counts = {
        "Ψ is higher at the sharp optimum.": sum(
            pair["sharp"]["psi"] > pair["flat"]["psi"] for pair in pairs
        ),
        "The optimum with the lower Ψ has the smaller gap.": sum(
            _agrees(pair, "psi") for pair in pairs
        ),
    }
    return tuple(
        Claim.shown(text, proportion_interval(count, len(pairs)).low > 0.5)
        for text, count in counts.items()
    )


def _agrees(pair: Record, name: str) -> bool:
    """Tell whether the optimum with the lower value also has the smaller gap."""
    sharp, flat = pair["sharp"], pair["flat"]
    return bool((sharp[name] < flat[name]) == (sharp["gap"] < flat["gap"]))


def _share(count: int, total: int) -> str:
    span = proportion_interval(count, total)
    return f"{100 * count / total:.0f} % ({100 * span.low:.0f} to {100 * span.high:.0f})"
