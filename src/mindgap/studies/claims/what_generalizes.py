"""Which of activation, depth, batch size and initial scale decides how a network generalizes."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mindgap.core import (
    Bar,
    Chart,
    Heatmap,
    InputError,
    Interval,
    Recipe,
    Record,
    Series,
    Study,
    Table,
    Trial,
    holm,
    mean_interval,
    option,
    paired,
)
from mindgap.nets.mlp import ACTIVATIONS, MLP
from mindgap.studies.double_descent.features import CLASSES, noisy_digits
from mindgap.training.ensemble import ensemble

POOL = 1797  # all digits
FACTORS = ("activation", "depth", "batch size", "initial scale")
NOTES = (
    "Published question (lecture slides): what makes deep networks generalize, the piecewise linear "
    "ReLU, deep composition, small batches of SGD, small initial weights, or all of these?",
    "All networks take the same number of steps. Differences are to the base, paired by seed, with "
    "95 % intervals that allow for the digits that draws share; p-values are corrected by Holm.",
    "The share of a factor is that of its main effect in the variance of the test error over all "
    "combinations; shares of main effects and interactions sum to one. Each seed gives one share, and "
    "the interval is over seeds.",
)
Levels = Mapping[str, Sequence[Any]]
Cell = tuple[Any, ...]
Array = NDArray[np.float64]
Shares = Mapping[str, tuple[float, Interval]]


class WhatGeneralizes(Study):
    r"""Vary activation, depth, batch size and initial scale, alone and in all combinations.

    Formula: $R_{abcd} = \mu + \sum_{S \subseteq \{a,b,c,d\}} e_S, \qquad \mathrm{share}_S =
    \frac{\overline{e_S^2}}{\mathrm{Var}(R)}$

    Reading: A factor with a large share decides how well the network generalizes, among the levels
    that were tried. A large share of interactions means that no factor has an effect of its own.

    Assumes: MLPs on few digits, Adam at one learning rate, equally many steps. Networks of all
    levels should fit the training data: else a difference is one of optimization.

    >>> len(WhatGeneralizes().trials())
    81
    """

    method = ("E7",)
    cites = ("zhang2017understanding", "keskar2017large", "chizat2019lazy")
    reproduces = ("expressivity: What generalizes",)

    seeds: int = option(6, help="draws of digits, initial weights and batches", low=2)
    activations: tuple[str, ...] = option(
        ("relu", "tanh", "identity"),
        help="activations; of all lists, the first is the base",
        choices=tuple(ACTIVATIONS),
    )
    depths: tuple[int, ...] = option((2, 1, 4), help="hidden layers", low=1)
    batch_sizes: tuple[int, ...] = option((32, 8, 128), help="batch sizes", low=1)
    scales: tuple[float, ...] = option((1.0, 0.5, 4.0), help="factors of initial weights", above=0)
    samples: int = option(256, help="training digits", low=20, high=1000)
    noise: float = option(0.0, help="share of wrong labels", low=0, high=0.9)
    width: int = option(64, help="units per hidden layer", low=1)
    steps: int = option(1024, help="steps, about; batches are whole epochs", low=1)
    learning_rate: float = option(1e-3, help="learning rate of Adam", above=0)

    def prepare(self) -> None:
        """See that every factor has levels to compare."""
        for name, levels in self.levels().items():
            if len(set(levels)) < 2:
                raise InputError(
                    f"{name} must have at least two levels, got {list(levels)}. Add one."
                )

    def levels(self) -> Levels:
        """List the levels of every factor, that of the base first."""
        lists = (self.activations, self.depths, self.batch_sizes, self.scales)
        return dict(zip(FACTORS, lists, strict=True))

    def trials(self) -> Sequence[Trial]:
        """Every combination of levels, each with all seeds."""
        return [
            Trial(parameters=dict(zip(FACTORS, cell, strict=True)))
            for cell in itertools.product(*self.levels().values())
        ]

    def run(self, trial: Trial) -> Record:
        """Train the network on the digits of every seed."""
        runs = [self._errors(trial, seed) for seed in range(self.seeds)]
        train, test = zip(*runs, strict=True)
        return {"train_error": list(train), "test_error": list(test)}

    def _errors(self, trial: Trial, seed: int) -> tuple[float, float]:
        data = noisy_digits(self.samples, self.noise, seed)
        hidden = [self.width] * trial["depth"]
        recipe = Recipe(
            model=lambda: scaled(
                MLP((data.inputs.shape[1], *hidden, CLASSES), trial["activation"]),
                trial["initial scale"],
            ),
            train=(data.inputs, data.labels),
            test=(data.test_inputs, data.test_labels),
            epochs=max(1, round(self.steps * trial["batch size"] / self.samples)),
            batch_size=trial["batch size"],
            learning_rate=self.learning_rate,
        )
        (member,) = ensemble(recipe, seeds=[seed], keep_history=False)
        subject = member.subject()
        return subject.mean_error("train"), subject.mean_error("test")

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per level of a factor, and one per share."""
        levels = self.levels()
        found = {tuple(trial[name] for name in FACTORS): record for trial, record in records}
        overlap = self.samples / (POOL - self.samples)
        rows, shared = one_at_a_time(levels, found, overlap), self._shares(levels, found)
        return Table(
            title=f"What carries generalization: four factors on {self.samples} digits",
            columns=(
                *("factor", "level", "training error", "test error", "change", "95 % interval"),
                *("p (Holm)", "share of the variance", "95 % interval of the share"),
            ),
            rows=tuple(
                tuple(str(one) if isinstance(one, Interval) else one for one in row)
                for row in (
                    *((*row, *shared.get(row[0], (None, None))) for row in rows),
                    *((name, *[None] * 6, *own) for name, own in shared.items() if " of " in name),
                )
            ),
            notes=(*NOTES, *_ranked(shared), *_unfitted(found)),
            charts=(_changes(rows), *_maps(levels, found, shared)),
        )

    def _shares(self, levels: Levels, found: Mapping[Cell, Record]) -> Shares:
        """Return the share of every main effect and of all interactions, with intervals."""
        if len(found) < math.prod(len(own) for own in levels.values()):
            return {}
        tables = [_table(levels, found, seed) for seed in range(self.seeds)]
        rows = [variance_shares(table) for table in tables if table.std() > 0]
        parts = {
            **{name: [row[place,] for row in rows] for place, name in enumerate(FACTORS)},
            **{
                f"interactions of {order}": [
                    math.fsum(value for key, value in row.items() if len(key) == order)
                    for row in rows
                ]
                for order in range(2, len(FACTORS) + 1)
            },
        }
        return {
            name: (math.fsum(values) / len(values), mean_interval(values))
            for name, values in parts.items()
            if values
        }

    def tiny(self) -> Self:
        """Two seeds, two levels of every factor and few steps."""
        levels = {"activations": ("relu", "identity"), "depths": (1, 2)}
        more = {"batch_sizes": (32, 16), "scales": (1.0, 3.0)}
        return self.replace(**levels, **more, seeds=2, samples=32, width=4, steps=4)


@torch.no_grad()
def scaled(model: nn.Module, factor: float) -> nn.Module:
    """Multiply all initial weights by a factor.

    Args:
        model: Changed in place, and returned.
        factor: The factor.

    >>> abs(scaled(nn.Linear(1, 1), 0.0).weight.item())
    0.0
    """
    for weight in model.parameters():
        weight.mul_(factor)
    return model


def variance_shares(table: Array) -> dict[tuple[int, ...], float]:
    """Divide the variance of a full factorial among main effects and interactions.

    Args:
        table: One axis per factor, one entry per combination of levels.

    Returns:
        The share of every set of axes; all of them sum to one.

    >>> variance_shares(np.array([[0.0, 1.0], [2.0, 3.0]]))
    {(0,): 0.8, (1,): 0.2, (0, 1): 0.0}
    """
    axes = range(table.ndim)
    subsets = [own for size in range(table.ndim + 1) for own in itertools.combinations(axes, size)]
    effects: dict[tuple[int, ...], Array] = {}
    for own in subsets:
        others = tuple(axis for axis in axes if axis not in own)
        effects[own] = table.mean(axis=others, keepdims=True) - sum(
            effect for key, effect in effects.items() if set(key) < set(own)
        )
    total = float(table.var())
    return {own: float(np.square(effects[own]).mean()) / total for own in subsets[1:]}


def one_at_a_time(
    levels: Levels, found: Mapping[Cell, Record], overlap: float
) -> list[tuple[Any, ...]]:
    """Compare the base with every network that differs from it in one factor.

    Args:
        levels: The levels of every factor, that of the base first.
        found: Errors by combination of levels.
        overlap: As for :func:`mindgap.core.paired`.

    Returns:
        Factor, level, training error, test error, change, its interval and corrected p-value.
    """
    base = tuple(own[0] for own in levels.values())
    cells = [
        (name, level, (*base[:place], level, *base[place + 1 :]))
        for place, (name, own) in enumerate(levels.items())
        for level in own[1:]
    ]
    if base not in found:
        return []
    cells = [one for one in cells if one[2] in found]
    tests = [
        paired(found[cell]["test_error"], found[base]["test_error"], overlap=overlap)
        for _, _, cell in cells
    ]
    corrected = holm([test.p_value for test in tests])
    head = ("base", ", ".join(map(str, base)), *_means(found[base]), None, None, None)
    rows: list[tuple[Any, ...]] = [head]
    for (name, level, cell), test, p_value in zip(cells, tests, corrected, strict=True):
        change = test.difference, test.interval, p_value
        rows.append((name, level, *_means(found[cell]), *change))
    return rows


def _means(record: Record) -> tuple[float, float]:
    train, test = (
        math.fsum(record[name]) / len(record[name]) for name in ("train_error", "test_error")
    )
    return train, test


def _table(levels: Levels, found: Mapping[Cell, Record], seed: int | None) -> Array:
    """Arrange the test errors of one seed, or their means, by the levels of the factors."""
    cells = itertools.product(*levels.values())
    values = [
        _means(found[cell])[1] if seed is None else found[cell]["test_error"][seed]
        for cell in cells
    ]
    return np.array(values).reshape([len(own) for own in levels.values()])


def _ranked(shared: Shares) -> list[str]:
    if not shared:
        return ["Shares need all combinations."]
    order = sorted(shared, key=lambda name: -shared[name][0])
    parts = [f"{name} {100 * shared[name][0]:.1f} %" for name in order]
    return [f"Shares of the variance of the test error, largest first: {', '.join(parts)}."]


def _unfitted(found: Mapping[Cell, Record]) -> list[str]:
    """Name the levels of the runs that do not fit their training data."""
    runs = [(cell, error > 0) for cell, record in found.items() for error in record["train_error"]]
    count = sum(bad for _, bad in runs)
    parts = []
    for place, name in enumerate(FACTORS):
        by_level = {
            level: sum(bad for cell, bad in runs if cell[place] == level)
            for level in dict.fromkeys(cell[place] for cell, _ in runs)
        }
        parts.append(f"{name} " + ", ".join(f"{key}: {bad}" for key, bad in by_level.items()))
    return [
        f"Runs with a training error above 0: {count} of {len(runs)}; by level: {'; '.join(parts)}."
    ]


def _changes(rows: Sequence[tuple[Any, ...]]) -> Chart:
    own = [row for row in rows if row[4] is not None]
    return Bar(
        title="Test error minus that of the base, one factor changed",
        y_label="change of the test error",
        percent=True,
        caption="Mean and 95 % interval over paired seeds; below zero is better.",
        series=[
            Series(
                x=[f"{row[0]} {row[1]}" for row in own],
                y=[row[4] for row in own],
                low=[row[5].low for row in own],
                high=[row[5].high for row in own],
            )
        ],
    )


def _maps(levels: Levels, found: Mapping[Cell, Record], shared: Shares) -> list[Chart]:
    """Draw the shares, and the two factors with the largest ones against each other."""
    if not shared:
        return []
    bars = Bar(
        title="Share of the variance of the test error",
        y_label="share",
        percent=True,
        caption="Mean and 95 % interval over seeds.",
        series=[
            Series(
                x=list(shared),
                y=[own[0] for own in shared.values()],
                low=[max(0.0, own[1].low) for own in shared.values()],
                high=[min(1.0, own[1].high) for own in shared.values()],
            )
        ],
    )
    places = sorted(sorted(range(len(FACTORS)), key=lambda k: -shared[FACTORS[k]][0])[:2])
    others = tuple(k for k in range(len(FACTORS)) if k not in places)
    first, second = (FACTORS[k] for k in places)
    rows, columns = _in_order(levels[first]), _in_order(levels[second])
    table = _table(levels, found, None).mean(axis=others)
    return [
        bars,
        Heatmap(
            title=f"Mean test error by {first} and {second}",
            x_label=second,
            y_label=first,
            x=[str(levels[second][k]) for k in columns],
            y=[str(levels[first][k]) for k in rows],
            z=table[np.ix_(rows, columns)].tolist(),
            z_label="test error",
        ),
    ]


def _in_order(levels: Sequence[Any]) -> list[int]:
    """Return the places of numbers from small to large, of names as they are."""
    places = list(range(len(levels)))
    return places if isinstance(levels[0], str) else sorted(places, key=lambda k: levels[k])
