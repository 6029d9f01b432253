"""Elman's network over long sequences: gradient spikes, accuracy, and what steadies it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Self

from torch import nn

from mindgap.core import (
    Bar,
    Chart,
    Claim,
    Points,
    Recipe,
    Record,
    Remedy,
    Scatter,
    Series,
    Study,
    Table,
    Trial,
    holm,
    option,
    paired,
)
from mindgap.data.digits import digits
from mindgap.nets import Elman, Gated
from mindgap.remedies import GradientClipping
from mindgap.training.fit import fit
from mindgap.training.monitor.monitor import Monitor

# Settings of the network, and whether gradients are clipped.
ARMS: dict[str, tuple[dict[str, Any], bool]] = {
    "Elman": ({}, False),
    "Elman, clipped": ({}, True),
    "orthogonal": ({"start": "orthogonal"}, False),
    "orthogonal, clipped": ({"start": "orthogonal"}, True),
    "identity, ReLU": ({"start": "identity", "activation": "relu"}, False),
    "identity, ReLU, clipped": ({"start": "identity", "activation": "relu"}, True),
    "residual": ({"residual": True}, False),
    "dropout": ({"dropout": 0.3}, False),
    "batch normalization": ({"norm": "batch"}, False),
    "LSTM": ({"cell": "lstm"}, False),
    "GRU": ({"cell": "gru"}, False),
}
CONTROL = "Elman"
KEEPERS = ("orthogonal", "identity, ReLU", "LSTM", "GRU")
BEFORE, SPIKE = 20, 5.0  # steps whose median a gradient is compared with, and how many times it is


class ElmanStability(Study):
    r"""Gradient spikes and accuracy of Elman's network, with clipping, other starts, gates and norms.

    Formula: $\text{spike at } t: \lVert g_t \rVert > 5 \, \mathrm{median}_{s < t} \lVert g_s
    \rVert, \qquad \lVert \partial L / \partial h_1 \rVert \approx c^{T} \lVert \partial L /
    \partial h_T \rVert$

    Reading: Elman's network is said to be hard to train because gradients vanish or explode over
    the steps of a sequence. What steadies training lowers the number of spikes and the spread of
    the accuracy over seeds; whether it also raises the accuracy is another question.

    Assumes: The embedded 8×8 digits, read pixel by pixel, and Adam. One learning rate for all: no
    network was tuned.

    >>> len(ElmanStability(seeds=2).trials())
    22
    """

    method = ("S1",)
    cites = ("pascanu2013difficulty", "goodfellow2016deep")
    reproduces = ("stability: Elman network",)

    seeds: int = option(5, help="runs per network", low=2)
    epochs: int = option(15, help="passes over the training data", low=1)
    hidden: int = option(32, help="size of the state", low=2)
    features: int = option(1, help="pixels per step; 64 must be a multiple of it", low=1, high=64)
    samples: int = option(1000, help="training samples", low=20)
    rate: float = option(0.01, help="learning rate", above=0)

    def trials(self) -> Sequence[Trial]:
        """One trial per network and seed."""
        return [
            Trial(parameters={"arm": arm}, seed=seed) for arm in ARMS for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train once with a monitor."""
        settings, clipped = ARMS[trial["arm"]]
        data = digits().subset(self.samples, seed=trial.seed)
        sizes: dict[str, Any] = {"features": self.features, "hidden": self.hidden, "outputs": 10}

        def model() -> nn.Module:
            return Gated(**sizes, **settings) if "cell" in settings else Elman(**sizes, **settings)

        recipe = Recipe(
            model=model,
            train=data.train,
            test=data.test,
            epochs=self.epochs,
            learning_rate=self.rate,
        )
        remedies: list[Remedy] = [GradientClipping(max_norm=1.0)] if clipped else []
        monitor = Monitor(every=25)
        fitted = fit(
            recipe, remedies, seed=trial.seed, monitor=monitor, evaluate_every=max(1, self.epochs)
        )
        return {**_gradients(monitor), **_through_time(monitor), **_accuracy(fitted.history)}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per network, compared with Elman's own."""
        groups: dict[str, list[Record]] = {}
        for trial, record in records:
            groups.setdefault(trial["arm"], []).append(record)
        tests = {
            name: paired(_column(rows, "accuracy"), _column(groups[CONTROL], "accuracy"))
            for name, rows in groups.items()
            if name != CONTROL and CONTROL in groups
        }
        corrected = dict(zip(tests, holm([test.p_value for test in tests.values()]), strict=True))
        return Table(
            title="Elman's network: gradient spikes and accuracy",
            columns=(
                *("network", "test accuracy", "spread over seeds", "against Elman", "corrected p"),
                *("spikes per 1,000 steps", "largest gradient / median", "c per step"),
                *("share left at the first step", "diverged"),
            ),
            rows=tuple(
                _row(name, rows, tests.get(name), corrected.get(name))
                for name, rows in groups.items()
            ),
            notes=(
                "Means over seeds; the spread is the standard deviation of the accuracy over seeds, "
                "and the difference is paired by seed, with p-values corrected by Holm. With five "
                "seeds only large differences can be told from chance.",
                f"A spike is a gradient {SPIKE:g} times the median of the {BEFORE} steps before it, "
                "as the optimizer sees it, so after clipping. c and the share left are medians over "
                "the readings of the recurrent layer.",
                "Claims (lecture slides): the plain network is unstable, clipping removes the "
                "spikes, orthogonal and identity starts and gates keep the gradient. "
                + _told(groups),
            ),
            charts=_charts(groups),
            claims=_claims(groups),
        )

    def tiny(self) -> Self:
        """Use two seeds, one epoch, few samples and rows of pixels."""
        return self.replace(seeds=2, epochs=1, hidden=4, features=8, samples=40)


def _gradients(monitor: Monitor) -> dict[str, float]:
    norms = [value for line in monitor.lines for value in line.get("gradient", ())]
    finite = [value for value in norms if math.isfinite(value)]
    found = 0
    for place in range(BEFORE, len(finite)):
        found += finite[place] > SPIKE * statistics.median(finite[place - BEFORE : place])
    usual = statistics.median(finite) or 1.0
    return {
        "steps": len(norms),
        "spikes": found,
        "largest": max(finite) / usual,
        "broken": len(norms) - len(finite),
    }


def _through_time(monitor: Monitor) -> dict[str, float | None]:
    times = [
        line["layers"]["recurrent"]["time"]
        for line in monitor.lines
        if line.get("layers", {}).get("recurrent", {}).get("time")
    ]
    rates = [time["rate"] for time in times if time["rate"] is not None]
    return {
        "rate": statistics.median(rates) if rates else None,
        "left": statistics.median(time["reach"] for time in times) if times else None,
    }


def _accuracy(history: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    known = [row["test_error"] for row in history if "test_error" in row]
    return {"accuracy": 1 - known[-1] if known else 0.1, "diverged": not known}


def _column(rows: Sequence[Record], key: str) -> list[float]:
    return [float(row[key]) for row in rows]


def _mean(rows: Sequence[Record], key: str) -> float | None:
    values = [row[key] for row in rows if row[key] is not None]
    return statistics.fmean(values) if values else None


def _row(name: str, rows: Sequence[Record], test: Any, p: float | None) -> tuple[Any, ...]:
    accuracy = _column(rows, "accuracy")
    per_step = [1000 * row["spikes"] / max(row["steps"], 1) for row in rows]
    return (
        name,
        f"{100 * statistics.fmean(accuracy):.1f} %",
        f"{100 * statistics.stdev(accuracy):.1f} points",
        "—" if test is None else f"{100 * test.difference:+.1f} points",
        "—" if p is None else p,
        statistics.fmean(per_step),
        _mean(rows, "largest"),
        _mean(rows, "rate"),
        _mean(rows, "left"),
        sum(bool(row["diverged"]) for row in rows),
    )


def _claims(groups: Mapping[str, Sequence[Record]]) -> tuple[Claim, ...]:
    if CONTROL not in groups or len(groups[CONTROL]) < 2:
        return ()
    clipped = [rows for name, rows in groups.items() if name.endswith(", clipped")]
    gone = sum(not any(_column(rows, "spikes")) for rows in clipped)
    own = _column(groups[CONTROL], "left")
    tests = [
        paired(_column(groups[name], "left"), own)
        for name in KEEPERS
        if name in groups and len(groups[name]) == len(own)
    ]
    corrected = holm([test.p_value for test in tests])
    kept = sum(t.difference > 0 and p < 0.05 for t, p in zip(tests, corrected, strict=True))
    return (
        Claim.shown(
            "Gradients are sometimes very large.", sum(_column(groups[CONTROL], "spikes")) > 0
        ),
        Claim.counted("Clipping removes the spikes.", gone, len(clipped)),
        Claim.counted(
            "Orthogonal or identity starts and gates keep the gradient.", kept, len(tests)
        ),
    )


def _told(groups: Mapping[str, Sequence[Record]]) -> str:
    """Say what was measured of the claims, whichever way it went."""
    spikes = {name: statistics.fmean(_column(rows, "spikes")) for name, rows in groups.items()}
    spread = {name: statistics.stdev(_column(rows, "accuracy")) for name, rows in groups.items()}
    if CONTROL not in groups:
        return ""
    fewer = [name for name in groups if name != CONTROL and spikes[name] < spikes[CONTROL]]
    steadier = [name for name in groups if name != CONTROL and spread[name] < spread[CONTROL]]
    return (
        f"Measured: fewer spikes than Elman's own: {', '.join(fewer) or 'none'}; less spread: "
        f"{', '.join(steadier) or 'none'}."
    )


def _charts(groups: Mapping[str, Sequence[Record]]) -> tuple[Chart, ...]:
    names = list(groups)
    accuracy = [_column(groups[name], "accuracy") for name in names]
    return (
        Bar(
            title="Test accuracy, from the worst to the best seed",
            percent=True,
            y_label="test accuracy",
            series=[
                Series(
                    x=names,
                    y=[statistics.fmean(row) for row in accuracy],
                    low=[min(row) for row in accuracy],
                    high=[max(row) for row in accuracy],
                )
            ],
        ),
        Scatter(
            title="Largest gradient and accuracy, one point per run",
            x_label="largest gradient / median",
            y_label="test accuracy",
            x_scale="log",
            points=[
                Points(name=name, x=_column(rows, "largest"), y=_column(rows, "accuracy"))
                for name, rows in groups.items()
            ],
        ),
    )
