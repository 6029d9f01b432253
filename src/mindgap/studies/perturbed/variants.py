"""Which kind of weight noise helps: variants of PerturbedOPT against Adam, dropout and SAM."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Paired,
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
from mindgap.data import digits
from mindgap.data.dataset import DataSet
from mindgap.data.mnist import mnist
from mindgap.data.splits import stratified_split
from mindgap.studies.perturbed.noisy_networks import Arm, Plan, errors, train

LOADERS: Mapping[str, Callable[[], DataSet]] = {"digits": digits, "MNIST": mnist}
PLANS = {
    "digits": Plan(width=64, epochs=60, batch_size=32, learning_rate=3e-3),
    "MNIST": Plan(width=128, epochs=40, batch_size=32, learning_rate=1e-3),
}
SAMPLES = {"digits": (600, 400), "MNIST": (1000, 2000)}  # train and validation
ARMS: Mapping[str, tuple[float, ...]] = {
    "plain": (0.0,),
    "twice": (0.0,),
    "dropout": (0.1, 0.3, 0.5, 0.7, 0.8),
    "sam": (0.1, 0.2, 0.4, 0.8, 1.6),
    "published": (0.1, 0.3, 1.0, 3.0, 10.0),
    "warm-up": (0.1, 0.3, 1.0, 3.0, 10.0),
    "size": (0.1, 0.3, 1.0, 2.0, 4.0),
    "filter": (0.1, 0.3, 1.0, 2.0, 4.0),
    "fisher": (0.003, 0.01, 0.03, 0.1, 0.3),
    "sample size": (0.3, 0.6, 1.0, 2.0, 4.0),
    "sample filter": (0.3, 0.6, 1.0, 2.0, 4.0),
    "sample fisher": (0.01, 0.03, 0.1, 0.3, 1.0),
}
NAMES = {
    "plain": "Adam",
    "twice": "Adam, twice the epochs",
    "dropout": "dropout",
    "sam": "SAM (two passes per step)",
    "published": "PerturbedOPT",
    "warm-up": "PerturbedOPT, growing with the epochs",
    "size": "noise by the weight's size, no curvature, no decay",
    "filter": "noise by the filter's size",
    "fisher": "noise by the Fisher information, η = √(mn)",
    "sample size": "the weight's size, drawn for each sample",
    "sample filter": "the filter's size, drawn for each sample",
    "sample fisher": "the Fisher information, drawn for each sample",
}
LEVEL = 0.01


class PerturbedVariants(Study):
    r"""Variants of PerturbedOPT against Adam, dropout and SAM, on two data sets.

    Formula: $w_{t+1} = \mathrm{OPT}\left( w_t, \nabla \hat L_t(w_t + u_t) \right), \quad u_{t,i}
    \sim U(-\sigma_i, \sigma_i)$

    Reading: Arms differ in σ and in how often the noise is drawn: once per batch, as in Algorithm
    1, or separately for every sample. Every arm has as many settings as dropout. The setting with
    the lowest mean validation error is judged on test data with fresh seeds. A variant succeeds if
    it beats both Adam and dropout on both data sets, with p < 0.01 after Holm's correction over all
    arms.

    Assumes: Networks with one hidden layer, trained with Adam on 600 to 1,000 samples, where
    dropout helps.

    >>> len([trial for trial in PerturbedVariants().trials() if trial["data"] == "digits"])
    12
    """

    method = ("P7", "P9")
    cites = ("wang2018identifying", "foret2021sharpness")

    search_seeds: int = option(10, help="seeds whose validation error chooses a setting", low=2)
    digits_seeds: int = option(40, help="fresh seeds that test data judge, on the digits", low=2)
    mnist_seeds: int = option(20, help="fresh seeds that test data judge, on MNIST", low=2)
    shorten: int = option(1, help="factor by which training is shortened", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial per data set and arm, with all its settings."""
        return [Trial(parameters={"data": data, "rule": rule}) for data in LOADERS for rule in ARMS]

    def run(self, trial: Trial) -> Record:
        """Choose the setting on validation data, then judge it with fresh seeds on test data."""
        rule, name = trial["rule"], trial["data"]
        plan = PLANS[name]
        epochs = max(plan.epochs // self.shorten, 1) * (2 if rule == "twice" else 1)
        plan = dataclasses.replace(plan, epochs=epochs)
        data = LOADERS[name]()
        inputs, labels, others, truths = samples(data, name, range(self.search_seeds))
        validation = {}
        for strength in ARMS[rule]:
            weights = train(inputs, labels, Arm(rule, strength), plan, seed=0)
            rates = errors(weights, others, truths)
            validation[f"{strength:g}"] = sum(rates) / len(rates)
        chosen = min(ARMS[rule], key=lambda strength: validation[f"{strength:g}"])
        return {
            "validation": validation,
            "chosen": chosen,
            **self._judged(data, name, Arm(rule, chosen), plan),
        }

    def _judged(self, data: DataSet, name: str, arm: Arm, plan: Plan) -> Record:
        count = self.digits_seeds if name == "digits" else self.mnist_seeds
        assert data.test is not None
        inputs, labels, *_ = samples(data, name, range(1000, 1000 + count))
        weights = train(inputs, labels, arm, plan, seed=1)
        tests = data.test[0].flatten(1).expand(count, -1, -1)
        return {
            "train": errors(weights, inputs, labels),
            "test": errors(weights, tests, data.test[1].expand(count, -1)),
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per data set and arm, compared with Adam and with dropout."""
        rows, winners = list[tuple[object, ...]](), list[set[str]]()
        for data in LOADERS:
            found = {trial["rule"]: record for trial, record in records if trial["data"] == data}
            compared = {control: _compared(found, control) for control in ("plain", "dropout")}
            rows += [_row(data, rule, record, compared) for rule, record in found.items()]
            winners.append(
                {rule for rule in found if all(_better(compared[c].get(rule)) for c in compared)}
            )
        both = sorted(
            set.intersection(*winners) & {rule for rule in ARMS if rule not in ("twice", "sam")}
        )
        return Table(
            title="Variants of weight noise against Adam, dropout and SAM",
            columns=(
                *("data", "arm", "setting", "training error", "test error"),
                *("from Adam, points", "p", "from dropout", "p"),
            ),
            rows=tuple(rows),
            notes=(
                "Differences are percentage points of test error, paired over fresh seeds, with "
                "95 % intervals; negative is better. The p-values are corrected by Holm over the "
                "arms of a data set and control. Settings were chosen on validation data with "
                "other seeds: "
                f"{'; '.join(f'{NAMES[r]} {_words(ARMS[r])}' for r in ARMS if len(ARMS[r]) > 1)}.",
                f"Settings chosen at an end of their grid: "
                f"{'; '.join(_at_an_end(records)) or 'none'}.",
                "The paper reports that PerturbedOPT is better than dropout 'in all experiments', "
                "all on images.",
                f"Variants that beat both Adam and dropout with p < {LEVEL:g} on both data sets: "
                f"{', '.join(NAMES[rule] for rule in both) or 'none'}.",
            ),
            charts=tuple(_chart(data, records) for data in LOADERS),
        )

    def tiny(self) -> Self:
        """Use one epoch and two seeds."""
        return self.replace(search_seeds=2, digits_seeds=2, mnist_seeds=2, shorten=600)


def samples(data: DataSet, name: str, seeds: range) -> tuple[Tensor, ...]:
    """Return training inputs, training labels, validation inputs and validation labels by seed.

    Args:
        data: The data set; only its training part is used.
        name: Its key in ``SAMPLES``.
        seeds: The seeds, each with its own samples.
    """
    parts = [stratified_split(data.targets, SAMPLES[name], seed=seed) for seed in seeds]
    flat = data.inputs.flatten(1)
    return tuple(
        torch.stack([source[index[place]] for index in parts])
        for place in (0, 1)
        for source in (flat, data.targets)
    )


def _compared(found: Mapping[str, Record], control: str) -> dict[str, tuple[Paired, float]]:
    tests = {
        rule: paired(record["test"], found[control]["test"])
        for rule, record in found.items()
        if rule != control
    }
    corrected = holm([test.p_value for test in tests.values()])
    return {
        rule: (test, p_value)
        for (rule, test), p_value in zip(tests.items(), corrected, strict=True)
    }


def _at_an_end(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    return [
        f"{NAMES[trial['rule']]} on {trial['data']}"
        for trial, record in records
        if len(grid := ARMS[trial["rule"]]) > 1 and record["chosen"] in (grid[0], grid[-1])
    ]


def _better(found: tuple[Paired, float] | None) -> bool:
    return found is not None and found[0].difference < 0 and found[1] < LEVEL


def _row(
    data: str, rule: str, record: Record, compared: Mapping[str, Mapping[str, tuple[Paired, float]]]
) -> tuple[object, ...]:
    cells = list[object]()
    for control in compared:
        found = compared[control].get(rule)
        if found is None:
            cells += ["—", "—"]
        else:
            test, p_value = found
            interval = f"[{100 * test.interval.low:+.2f}, {100 * test.interval.high:+.2f}]"
            cells += [f"{100 * test.difference:+.2f} {interval}", f"{p_value:.2g}"]
    setting = f"{record['chosen']:g}" if len(ARMS[rule]) > 1 else "—"
    return (data, NAMES[rule], setting, _percent(record["train"]), _percent(record["test"]), *cells)


def _percent(rates: Sequence[float]) -> str:
    return f"{100 * sum(rates) / len(rates):.2f} %"


def _words(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _chart(data: str, records: Sequence[tuple[Trial, Record]]) -> Bar:
    found = [
        (NAMES[trial["rule"]], record["test"]) for trial, record in records if trial["data"] == data
    ]
    spread = [mean_interval(values) for _, values in found]
    return Bar(
        title=f"{data}: test error of the chosen setting, mean and 95 % interval over seeds",
        y_label="test error",
        series=[
            Series(
                name="test error",
                x=[name for name, _ in found],
                y=[sum(values) / len(values) for _, values in found],
                low=[one.low for one in spread],
                high=[one.high for one in spread],
            )
        ],
    )
