"""Steps to a loss with diagonal and non-diagonal preconditioners."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from mindgap.core import Bar, Chart, Claim, Record, Series, Study, Table, Trial, option
from mindgap.studies.conditioning.networks import NETWORKS, images, sequences, started
from mindgap.studies.conditioning.steps import RULES, Problem, compared, spoken, tuned

# Changes of the standard problem: batch size and factor of the initial weights.
SETTINGS = {
    "standard": (64, 1.0),
    "batch size 256": (256, 1.0),
    "weights × 0.5": (64, 0.5),
    "weights × 2": (64, 2.0),
}
NORM = {"CNN": "none", "transformer": "layer"}
NOTES = (
    "Published claim (lecture slides): diagonal preconditioners (AdaGrad, RMSProp, AdaDelta, Adam) "
    "and non-diagonal ones (K-FAC, Shampoo) repair bad conditioning. They should take fewer steps "
    "than SGD.",
    "Every optimizer has the same number of learning rates, of which the one with the fewest steps "
    "on other seeds is taken. 'Ratio' is the mean number of steps divided by SGD's, paired by seed, "
    "with a 95 % interval; runs at the limit count with the limit, which hides a part of the "
    "difference. p-values are corrected by Holm over the optimizers of a setting.",
)


class ConditioningOptimizers(Study):
    r"""Count the steps that eight optimizers take to a training loss.

    Formula: $T = \min \{ t : \frac{1}{10} \sum_{s=t-9}^{t} L_s \le \ell \}$

    Reading: Where curvature differs much between directions, one learning rate for all is too long
    for some and too short for others. A preconditioner gives each its own. Fewer steps than SGD
    mean that it repairs that. A step of K-FAC or Shampoo costs more than one of SGD.

    Assumes: A convolutional network without normalization on the 8×8 digits (target loss 0.2), and
    a transformer that looks up a symbol in a sequence. K-FAC and Shampoo are
    :mod:`mindgap.training.preconditioned`.

    >>> len(ConditioningOptimizers().trials())
    64
    """

    method = ("E4",)
    cites = (
        "duchi2011adaptive",
        "zeiler2012adadelta",
        "kingma2015adam",
        "martens2015optimizing",
        "gupta2018shampoo",
    )
    reproduces = ("expressivity: Optimizers",)

    quick: bool = option(False, help="the transformer at its standard setting only")
    seeds: int = option(5, help="fresh seeds per optimizer", low=2)
    search: int = option(1, help="seeds on which the learning rate is chosen", low=1)
    rates: int = option(5, help="learning rates per optimizer, a factor of 3.16 apart", low=1)
    most_steps: int = option(400, help="the most steps", low=10)
    target: float = option(0.2, help="the training loss to reach", above=0)

    def trials(self) -> Sequence[Trial]:
        """One trial per network, setting and optimizer."""
        return [
            Trial(parameters={"network": network, "setting": setting, "optimizer": rule})
            for network in (("transformer",) if self.quick else NETWORKS)
            for setting in (("standard",) if self.quick else SETTINGS)
            for rule in RULES
        ]

    def run(self, trial: Trial) -> Record:
        """Choose the learning rate, then count steps with fresh seeds."""
        rule = trial["optimizer"]
        problem = self._problem(trial["network"], *SETTINGS[trial["setting"]])
        rate, at_end = tuned(problem, rule, rates=self.rates, search=self.search)
        runs = [problem.learn(rule, rate, seed) for seed in range(self.seeds)]
        return {"rate": rate, "at_end": at_end, "steps": [run.steps for run in runs]}

    def _problem(self, network: str, batch_size: int, factor: float) -> Problem:
        train = images()[0] if network == "CNN" else sequences(2_000, seed=0)
        return Problem(
            model=lambda: started(network, NORM[network], train[0], factor),
            train=train,
            batch_size=batch_size,
            target=self.target,
            limit=self.most_steps,
        )

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per network, setting and optimizer, compared with SGD."""
        groups: dict[tuple[str, str], dict[str, Record]] = {}
        for trial, record in records:
            groups.setdefault((trial["network"], trial["setting"]), {})[trial["optimizer"]] = record
        rows = [
            row
            for (network, setting), found in groups.items()
            for row in self._rows(network, setting, found)
        ]
        ends = [
            f"{t['network']}, {t['setting']}, {t['optimizer']}" for t, r in records if r["at_end"]
        ]
        return Table(
            title="Steps to a training loss with eight optimizers",
            columns=("network", "setting", "optimizer", "learning rate", "steps", "ratio", "p"),
            rows=tuple(rows),
            notes=(
                *NOTES,
                *_judged(groups),
                f"Learning rates at an end of their grid: {'; '.join(ends) or 'none'}.",
            ),
            claims=tuple(
                Claim.counted(f"{rule} takes fewer steps than SGD.", count, len(groups))
                for rule, count in _wins(groups).items()
                if rule != "momentum"
            ),
            charts=tuple(
                _chart(network, groups)
                for network in NETWORKS
                if any(key[0] == network for key in groups)
            ),
        )

    def _rows(
        self, network: str, setting: str, found: Mapping[str, Record]
    ) -> list[tuple[Any, ...]]:
        tests = compared({rule: record["steps"] for rule, record in found.items()}, "SGD")
        return [
            (
                *(network, setting, rule, record["rate"], spoken(record["steps"], self.most_steps)),
                *tests.get(rule, ("—", "—")),
            )
            for rule, record in found.items()
        ]

    def tiny(self) -> Self:
        """Use one network, two seeds, one learning rate and ten steps."""
        return self.replace(
            quick=True,
            seeds=2,
            search=1,
            rates=1,
            most_steps=10,
        )


def _wins(groups: Mapping[tuple[str, str], Mapping[str, Record]]) -> dict[str, int]:
    """Count the settings in which each optimizer needs fewer steps than SGD, beyond noise."""
    wins: dict[str, int] = {}
    for found in groups.values():
        steps = {rule: record["steps"] for rule, record in found.items()}
        for rule, (_, p) in compared(steps, "SGD").items():
            fewer = sum(steps[rule]) < sum(steps["SGD"])
            wins[rule] = wins.get(rule, 0) + (fewer and p < 0.05)
    return wins


def _judged(groups: Mapping[tuple[str, str], Mapping[str, Record]]) -> list[str]:
    words = ", ".join(f"{rule} {count}" for rule, count in _wins(groups).items())
    return [f"Settings of {len(groups)} with significantly fewer steps than SGD: {words}."]


def _chart(network: str, groups: Mapping[tuple[str, str], Mapping[str, Record]]) -> Chart:
    series = tuple(
        Series(
            name=setting,
            x=tuple(found),
            y=tuple(sum(record["steps"]) / len(record["steps"]) for record in found.values()),
        )
        for (where, setting), found in groups.items()
        if where == network
    )
    return Bar(title=f"Steps to the target loss, {network}", series=series, y_label="steps")
