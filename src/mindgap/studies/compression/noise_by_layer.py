"""How noise decays through the layers, with true labels and with random ones."""

import math
from collections.abc import Sequence
from typing import Any, Self

from mindgap.core import (
    Claim,
    InputError,
    Paired,
    Recipe,
    Record,
    Study,
    Subject,
    Table,
    Trial,
    option,
)
from mindgap.core.chart import Line, Mark, Series
from mindgap.core.stats.comparisons import mean_interval, paired
from mindgap.data import DataSet, digits, mnist
from mindgap.measures.compression.compression import Compression
from mindgap.measures.compression.noise_decay import NoiseDecay
from mindgap.nets import MLP
from mindgap.studies.measures.at_initialization import STATES, with_random_labels
from mindgap.training.fit import fit

CLAIM = (
    "The paper claims, with figures of a VGG-19 on CIFAR-10 and without tables, that noise injected "
    "at a layer of a trained network gets smaller as it passes the later ones, and that networks "
    "trained on true labels are more stable under noise than those trained on random ones."
)
COLUMNS = (
    *("labels", "noise of layer", "error of the outputs over noise", "95 % interval"),
    "verdict",
)


class NoiseByLayer(Study):
    r"""Decay of noise injected at each layer, and the compression measure, by what was learned.

    Formula: $\frac{\lVert f(x; x^i + \eta) - f(x) \rVert}{0.1 \lVert f(x) \rVert}, \qquad \lVert
    \eta \rVert = 0.1 \lVert x^i \rVert$

    Reading: Below 1, the noise decays; above 1, it grows. The claim is judged for every layer, and
    for the difference between true and random labels, with intervals over training sets. The last
    notes say how many parameters the compression theorem would leave, and what Algorithm 1 does with
    a fifth of the weights.

    Assumes: MLPs trained with Adam to a training error of zero, on MNIST or on the 8×8 digits,
    without biases, as in the theorem, and with them. The paper's figure is of a convolutional
    network, for which the theorem is another one.

    >>> len(NoiseByLayer(seeds=2).trials())
    12
    """

    method = ("E11",)
    cites = ("arora2018stronger", "zhang2017understanding")
    reproduces = ("expressivity: Compression",)

    seeds: int = option(5, help="training sets per kind of label", low=2)
    samples: int = option(1000, help="training samples", low=50)
    epochs: int = option(100, help="passes over the training data", low=1)
    width: int = option(128, help="units of each of the four hidden layers", low=2)
    data: str = option("mnist", help="the data set", choices=("mnist", "digits"))

    def trials(self) -> Sequence[Trial]:
        """One network per kind of label and training set."""
        return [
            Trial(parameters={"labels": state, "biases": biases}, seed=seed)
            for biases in (False, True)
            for state in STATES
            for seed in range(self.seeds)
        ]

    def prepare(self) -> None:
        """Raise one sentence if the data are missing."""
        self._data(0)

    def _data(self, seed: int) -> DataSet:
        if self.data == "mnist":
            return mnist(size=self.samples, test_size=1000, seed=seed)
        return digits().subset(self.samples, seed=seed)

    def _overlap(self) -> float:
        """Return ρ/(1 − ρ) for the share ρ of samples that two training sets have in common."""
        pool = 60_000 if self.data == "mnist" else len(digits())
        return self.samples / (pool - self.samples)

    def run(self, trial: Trial) -> Record:
        """Train one network, inject noise at its layers, and compress it."""
        data = self._data(trial.seed)
        data = with_random_labels(data, trial.seed) if trial["labels"] == STATES[2] else data
        size = data.train[0][0].numel()
        recipe = Recipe(
            model=lambda: MLP(widths=(size, *(self.width,) * 4, 10), bias=trial["biases"]),
            train=data.train,
            test=data.test,
            epochs=self.epochs,
            batch_size=50,
            learning_rate=0.001,
        )
        if trial["labels"] == STATES[0]:
            subject = Subject(recipe.build(trial.seed), recipe.loss, data.train, data.test)
        else:
            subject = fit(recipe, seed=trial.seed, evaluate_every=0).subject()
        noise, found = NoiseDecay(seed=trial.seed)(subject), Compression(quantile=0.1)(subject)
        if noise.value is None:
            raise InputError(f"A perceptron must have layers to inject noise at: {noise.reason}.")
        return {
            "train_error": subject.mean_error("train"),
            "test_error": subject.mean_error("test"),
            "decay": [list(row.values()) for row in noise.details["decay"].values()],
            "compression": found.value,
            "terms": dict(found.terms),
            "layers": found.details.get("layers", []),
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per kind of label and layer, and the verdict on the claim."""
        groups = {(t["labels"], t["biases"]): list[Record]() for t, _ in records}
        for trial, record in records:
            groups[trial["labels"], trial["biases"]].append(record)
        by_state = {f"{state}{_biases(biases)}": own for (state, biases), own in groups.items()}
        layers = len(records[0][1]["decay"])
        rows = [
            _row(state, layer, [record["decay"][layer][-1] for record in own])
            for state, own in by_state.items()
            for layer in range(layers)
        ]
        return Table(
            title=f"Noise injected at one layer, as it arrives at the outputs ({self.data})",
            columns=COLUMNS,
            rows=tuple(rows),
            notes=(
                CLAIM,
                *_errors(by_state),
                *_judged(by_state, layers, self._overlap()),
                *_compression(by_state),
            ),
            charts=(_decay(by_state), _cushions(by_state)),
            claims=_claims(rows, _tests(by_state, layers, self._overlap())),
        )

    def tiny(self) -> Self:
        """Use two small networks per kind of label, on data that come with the package."""
        return self.replace(seeds=2, samples=60, epochs=2, width=8, data="digits")


def _biases(biases: bool) -> str:
    return ", biases" if biases else ""


def _row(state: str, layer: int, values: list[float]) -> tuple[Any, ...]:
    found = mean_interval(values)
    verdict = "decays" if found.high < 1 else "grows" if found.low > 1 else "neither"
    return state, layer + 1, math.fsum(values) / len(values), str(found), verdict


def _errors(by_state: dict[str, list[Record]]) -> list[str]:
    told = [
        f"{state}: training error {_mean(own, 'train_error'):.3f}, "
        f"test error {_mean(own, 'test_error'):.3f}"
        for state, own in by_state.items()
    ]
    return ["; ".join(told) + " (means)."]


def _mean(records: Sequence[Record], name: str) -> float:
    return math.fsum(record[name] for record in records) / len(records)


def _claims(
    rows: Sequence[tuple[Any, ...]], tests: Sequence[tuple[bool, str, Paired]]
) -> tuple[Claim, ...]:
    true = [row[-1] for row in rows if row[0].startswith(STATES[1])]
    steadier = [
        t.difference < 0 and t.p_value < 0.025 for _, other, t in tests if other == STATES[2]
    ]
    return (
        Claim.counted(
            "After training on true labels, noise decays.", true.count("decays"), len(true)
        ),
        Claim.counted(
            "True labels leave networks more stable under noise than random ones.",
            sum(steadier),
            len(steadier),
        ),
    )


def _tests(
    by_state: dict[str, list[Record]], layers: int, overlap: float
) -> list[tuple[bool, str, Paired]]:
    """Compare true with random labels and with no training, over all layers."""
    ends = {
        state: [math.fsum(row[-1] for row in record["decay"]) / layers for record in own]
        for state, own in by_state.items()
    }
    lines = []
    for biases in (False, True):
        for other in (STATES[2], STATES[0]):
            arms = (ends[state + _biases(biases)] for state in (STATES[1], other))
            lines.append((biases, other, paired(*arms, overlap=overlap)))
    return lines


def _judged(by_state: dict[str, list[Record]], layers: int, overlap: float) -> list[str]:
    return [
        f"Error of the outputs over noise, mean over layers, {'with' if biases else 'without'} "
        f"biases: true labels minus {other} {found.difference:.3g} {found.interval}, "
        f"p = {found.p_value:.2g}."
        for biases, other, found in _tests(by_state, layers, overlap)
    ]


def _compression(by_state: dict[str, list[Record]]) -> list[str]:
    """Tell the theorem's number and the run of Algorithm 1, for each kind of label."""
    lines = []
    for state, own in by_state.items():
        values = [record["compression"] for record in own]
        if any(value is None for value in values):
            lines.append(f"{state}: the compression measure is undefined for a network.")
            continue
        logs = [math.log10(value) for value in values]
        terms = [record["terms"] for record in own]
        kept, promised = terms[0]["kept"], min(row["promised_error"] for row in terms)
        told = f"{promised:.2g}" if math.isfinite(promised) else "nothing"
        lines.append(
            f"{state}: log₁₀ of c²d² Σ 1/(μᵢ²μᵢ→²), a tenth of the samples left out, "
            f"{math.fsum(logs) / len(logs):.2f} {mean_interval(logs)}; the network has "
            f"{terms[0]['parameters']:,} weights. Algorithm 1 with {kept:,} numbers: relative error "
            f"{_mean(terms, 'error'):.2f}, {100 * _mean(terms, 'changed_decisions'):.0f} % of the "
            f"decisions change; the theorem promises {told} for so few. Interlayer smoothness "
            f"{_mean(terms, 'smoothness'):.2f}, where it needs {terms[0]['smoothness_needed']:g}."
        )
    return lines


def _decay(by_state: dict[str, list[Record]]) -> Line:
    """Follow the noise of the first layer through the later ones."""
    count = len(next(iter(by_state.values()))[0]["decay"][0])
    names = [*map(str, range(1, count)), "outputs"]
    series = []
    for state, own in by_state.items():
        columns = list(zip(*(record["decay"][0] for record in own), strict=True))
        spread = [mean_interval(column) for column in columns]
        series.append(
            Series(
                name=state,
                x=names,
                y=[math.fsum(column) / len(column) for column in columns],
                low=[found.low for found in spread],
                high=[found.high for found in spread],
            )
        )
    return Line(
        title="Noise of the first layer at the later ones",
        x_label="layer",
        y_label="relative error over injected noise",
        x_scale="category",
        series=series,
        marks=(Mark(name="injected", y=1.0),),
    )


def _cushions(by_state: dict[str, list[Record]]) -> Line:
    """Show the layer cushion by layer."""
    series = []
    for state, own in by_state.items():
        kept = [record["layers"] for record in own if record["layers"]]
        if not kept:
            continue
        columns = list(zip(*([row["cushion"] for row in rows] for rows in kept), strict=True))
        series.append(
            Series(
                name=state,
                x=[str(k) for k in range(1, len(columns) + 1)],
                y=[math.fsum(column) / len(column) for column in columns],
            )
        )
    return Line(
        title="Layer cushion by layer, a tenth of the samples below",
        x_label="layer",
        y_label="μ",
        x_scale="category",
        series=series,
    )
