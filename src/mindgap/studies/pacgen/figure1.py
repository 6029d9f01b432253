"""Figure 1 of the PAC-Bayes paper: the loss of a network of two weights, with Ψ, the bound and two optima.

What is drawn of the toy: the surface with Ψ and bound, and the labels that both optima give to the
plane.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import InputError, Record, Study, Table, Trial, option, proportion_interval
from mindgap.ops.variance.by_k import grid_over
from mindgap.studies.pacgen.optima import SLIGHTLY, landscape, optima
from mindgap.studies.pacgen.toy import CLOUDS, Toy, scores

DRAWN = 81  # lines of the surface, each way
CELLS = 61  # lines over the plane of inputs
COLORS = {
    "sharp": "#009E73",
    "flat": "#D55E00",
}  # the paper's green and red, told apart by every eye
ABOVE = 1.0  # the surface is cut off so far above the flat optimum, else its walls would hide the minima


def drawing(toy: Toy, lines: int) -> dict[str, Any]:
    """Maps and samples as plain numbers, rounded for a image."""
    pair, grid = optima(toy, lines).pair, grid_over(toy.inputs, CELLS)
    found = landscape(toy, pair, DRAWN)
    chance = toy.margins(pair[:, 0], pair[:, 1], grid.places).sigmoid()
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


def charts(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One surface and two planes side by side."""
    marks = [
        {
            "name": f"{which} optimum",
            "x": record[which]["place"][0],
            "y": record[which]["place"][1],
            "color": color,
        }
        for which, color in COLORS.items()
    ]
    surface = {
        "kind": "surface",
        "title": f"Loss around both optima, seed {record['seed']}; what is above {record['top']:g} is cut off",
        "x": record["x"],
        "y": record["y"],
        "z": record["loss"],
        "color": record["psi"],
        "floor": record["bound"],
        "top": record["top"],
        "marks": marks,
        "x_label": "w₁",
        "y_label": "w₂",
        "z_label": "training loss",
        "color_label": "Ψ",
        "floor_label": "bound (8)",
    }
    return [surface, *(_plane(record, place, which) for place, which in enumerate(COLORS))]


def _plane(record: Mapping[str, Any], place: int, which: str) -> dict[str, Any]:
    chance = record["chance"][place]
    points = [
        {
            "name": name,
            "x": [where[0] for where, label in record["points"] if label == number],
            "y": [where[1] for where, label in record["points"] if label == number],
        }
        for number, name in enumerate(("other clouds", "third cloud"))
    ]
    return {
        "kind": "plane",
        "wide": False,
        "title": f"Labels at the {which} optimum: {100 * record[which]['error']:.1f} % wrong on fresh samples",
        **record["plane"],
        "z": chance,
        "z_label": "chance of the third cloud",
        "x_label": "first input",
        "y_label": "second input",
        "points": points,
        "contours": [
            {"name": "boundary", "z": [[round(value - 0.5, 4) for value in row] for row in chance]}
        ],
    }


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
DULL = 0.005  # a true error so near to that of the larger class is no better than it
MOST_TRIES = 1000  # seeds looked at for one with two optima


class PacgenFigure1(Study):
    r"""Figure 1 of the PAC-Bayes paper: loss, Ψ and bound of a five-layer network of two weights, and two optima of it.

    Formula: $\hat L(w) + \frac{m/2 + \sum_i \ln(\tau_i/\sigma_i^*) + \ln(1/\delta)}{\eta} +
    \frac{\eta}{2n}, \qquad \eta = 39,\ m = 2,\ n = 100,\ \tau_i = |w_i| + \kappa_i$

    Reading: Height is the training loss, color is Ψ, the floor is the bound. The sharp optimum is
    the lowest local minimum, the flat one that of the least Hessian trace among those at most 0.1
    above it; the seed drawn is the first in which these are two. The paper shows one landscape.
    Here the share of seeds says how often what it shows is so, and which optimum has the smaller
    loss on fresh samples. Ψ stands beside itself with ρ = 0 and with no Hessian at all: what the
    sizes of the weights say alone.

    Assumes: Neither number is a bound here: cross entropy may exceed 1, τ depends on the data, and
    the loss is hardly ever convex within κ, as the notes count. ρ is the largest norm of the third
    derivative on a grid over that neighborhood. What the paper leaves open of clouds, labels and
    matrix is told in ``mindgap.studies.pacgen.toy``.

    >>> len(PacgenFigure1().trials())
    201
    """

    method = ("P6", "P9")
    cites = ("wang2018identifying",)

    seeds: int = option(200, help="landscapes", low=2)
    samples: int = option(100, help="training samples of a landscape", low=2)
    fresh: int = option(100_000, help="samples on which the true loss is measured", low=2)
    lines: int = option(301, help="lines of the grid, each way", low=31)

    def trials(self) -> Sequence[Trial]:
        """The drawing, and one a landscape."""
        landscapes = [
            Trial(parameters={"part": "landscape"}, seed=seed) for seed in range(self.seeds)
        ]
        return [Trial(parameters={"part": "drawing"}), *landscapes]

    def run(self, trial: Trial) -> Record:
        """Both optima of one landscape; or the first landscape that has two, drawn."""
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
        """How many minima there are and, if one of the others is flatter, all that is known of the two."""
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
        """The optima that are drawn, the medians over landscapes, and how often the sharp one is higher."""
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
            charts=tuple(chart for record in drawn for chart in charts(record)),
        )

    def tiny(self) -> Self:
        """Few landscapes on a coarse grid."""
        return self.replace(seeds=6, fresh=500, lines=61)


def _row(where: str, which: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    return (where, which, *(values[name] for name in COLUMNS))


def _over(pairs: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Medians, and the share of landscapes in which the sharp optimum has the larger number, with its interval."""
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
        f"{len(every)} seeds draw clouds, fixed weights and samples; "
        f"{counts[len(counts) // 2] if counts else 0} "
        f"local minima at the median. In {len(pairs)} of them another minimum at most {SLIGHTLY} "
        "above the lowest is "
        f"flatter; in {edge} the loss is lower still at the edge of the square.",
        "The paper, of its one landscape: Ψ is high at the sharp optimum compared to the flat "
        "one, which has a "
        "slightly higher loss and a similar bound.",
    ]
    if not pairs:
        return notes
    both = [pair[which] for pair in pairs for which in PAIR]
    apart = sorted(abs(pair["sharp"]["bound"] - pair["flat"]["bound"]) for pair in pairs)[
        len(pairs) // 2
    ]
    convex = sum(row["convex"] for row in both)
    held = sum(row["noisy_risk"] <= row["bound"] for row in both)
    dull = sum(abs(row["error"] - 1 / CLOUDS) < DULL for row in both)
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
        f"The two bounds are {apart:.3f} apart at the median. The loss is convex within κ at "
        f"{convex} of "
        f"{len(both)} optima; the true loss under the noise of (9) is below the number called "
        f"bound at {held}. "
        f"At {dull} the labels are wrong as often as those of the larger class alone, a third.",
        "The optimum with the lower number has the smaller gap in this share of landscapes: "
        f"{said}; a coin has 50 %.",
        "Whoever picks the lowest training loss picks a large gap. So the control is another "
        f"minimum at most {SLIGHTLY} "
        "above, drawn at random, flat or not: its gap is smaller than the sharp one's in "
        f"{control}.",
    ]


def _agrees(pair: Record, name: str) -> bool:
    """Whether the optimum that a number calls better has the smaller gap."""
    sharp, flat = pair["sharp"], pair["flat"]
    return bool((sharp[name] < flat[name]) == (sharp["gap"] < flat["gap"]))


def _share(count: int, total: int) -> str:
    span = proportion_interval(count, total)
    return f"{100 * count / total:.0f} % ({100 * span.low:.0f} to {100 * span.high:.0f})"
