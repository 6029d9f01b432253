"""Table 4 of Novello et al. 2020 over the settings of the sampler: order, ε and Gaussians."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch

from mindgap.core import (
    Bar,
    Claim,
    Record,
    Series,
    Study,
    Table,
    Trial,
    generator,
    holm,
    option,
    paired,
)
from mindgap.sampling import Acquisition, Proposal, initial_design
from mindgap.studies.tbs.shared import CONTROL, against, sampled
from mindgap.studies.tbs.table4 import BLOCK, BOX, FUNCTIONS, METRICS, NEW, START, fitted_errors

ORDERS = (1, 2, 3)
Setting = tuple[int, float, int]  # order, ε, components


class TbsSettings(Study):
    r"""Taylor Based Sampling over the order of the metric, ε and the number of Gaussians.

    Formula: $Df_\epsilon^n(x) = \sum_{1 \le k \le n} \frac{\epsilon^k}{k!} f^{(k)}(x)^2$

    Reading: The paper says that orders above 1 are more efficient and prints the results of one
    selected setting: order 2, ε = 0.001, three Gaussians. Here every setting draws 8 points next to
    a grid of 8 with the published algorithm, the weighted mixture. A negative difference from the
    uniform points means less error. Orders are compared with each other at the same ε, Gaussians
    and seed, so that nothing else differs.

    Assumes: The functions, the network and its training are those of ``tbs-table-4``. No setting
    is selected: all of them are shown.

    >>> len(TbsSettings().trials())
    4
    """

    method = ("T1", "T3")
    cites = ("novello2020variance",)

    seeds: int = option(100, help="paired seeds; each fixes the points and the weights", low=2)
    epochs: int = option(16_000, help="steps of Adam on all 16 points", low=1)
    tests: int = option(1000, help="test points, evenly spaced", low=2)
    epsilons: tuple[float, ...] = option(
        (1e-4, 1e-3, 1e-2), help="variances ε of the metric", above=0
    )
    components: tuple[int, ...] = option((2, 3, 5), help="numbers of Gaussians", low=1)

    def trials(self) -> Sequence[Trial]:
        """Both functions, in blocks of seeds."""
        blocks = range(-(-self.seeds // BLOCK))
        return [
            Trial(parameters={"function": name}, seed=block)
            for name in FUNCTIONS
            for block in blocks
        ]

    def settings(self) -> list[Setting]:
        """List every order, ε and number of Gaussians."""
        return list(itertools.product(ORDERS, self.epsilons, self.components))

    def run(self, trial: Trial) -> Record:
        """Train the control and all settings of a block of seeds in one vectorized call."""
        function = FUNCTIONS[trial["function"]]
        seeds = range(trial.seed * BLOCK, min((trial.seed + 1) * BLOCK, self.seeds))
        grid = initial_design("grid", START, BOX)
        control = [torch.cat([grid, BOX.uniform(NEW, generator(seed))]) for seed in seeds]
        drawn = [
            sampled(
                function,
                BOX,
                (START, NEW),
                "grid",
                Acquisition(epsilon=epsilon, order=order),
                Proposal(kind="mixture", temper=1, cap=1, components=count),
                seed=seed,
            )
            for order, epsilon, count in self.settings()
            for seed in seeds
        ]
        arms = [CONTROL, *map(_name, self.settings())]
        points = torch.stack([*control, *drawn])
        scores, _ = fitted_errors(function, points, seeds, len(arms), self.epochs, self.tests)
        return {
            metric: dict(zip(arms, found.tolist(), strict=True)) for metric, found in scores.items()
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per function, metric and setting; orders compared with order 1."""
        rows: list[tuple[Any, ...]] = []
        charts, notes, compared = [], list[str](), list[tuple[float, float]]()
        for name, (metric, label) in itertools.product(FUNCTIONS, METRICS.items()):
            found = [record[metric] for trial, record in records if trial["function"] == name]
            if not found:
                continue
            scores = {arm: [v for block in found for v in block[arm]] for arm in found[0]}
            tested = against(scores)
            rows += [
                (name, label, *setting, *tested[_name(setting)]) for setting in self.settings()
            ]
            rows.append((name, label, None, None, None, *tested[CONTROL]))
            charts.append(self._chart(name, label, tested))
            tests = self._orders(scores)
            compared += tests
            notes.append(_told(name, label, tests))
        return Table(
            title="TBS over order, ε and Gaussians: error of a network of 8 units on 16 points",
            columns=(
                *("function", "metric", "order", "ε", "Gaussians", "mean", "se"),
                *("minus uniform", "low", "high", "p (Holm)"),
            ),
            rows=tuple(rows),
            notes=(
                *notes,
                "Rows without an order are uniform points, the control. Differences are paired "
                "over seeds, with 95 % intervals; p-values of Student's t-test, corrected by Holm "
                "within a function and metric.",
            ),
            charts=tuple(charts),
            claims=_claims(compared),
        )

    def _orders(self, scores: Mapping[str, Sequence[float]]) -> list[tuple[float, float]]:
        """Compare orders 2 and 3 with order 1: the relative difference and its p-value."""
        tests = []
        for order, epsilon, count in self.settings():
            if order == 1:
                continue
            first = scores[_name((1, epsilon, count))]
            test = paired(scores[_name((order, epsilon, count))], first)
            tests.append((test.difference * len(first) / sum(first), test.p_value))
        return tests

    def _chart(self, name: str, label: str, tested: Mapping[str, tuple[Any, ...]]) -> Bar:
        groups = list(itertools.product(self.epsilons, self.components))
        series = []
        for order in ORDERS:
            found = [tested[_name((order, *group))] for group in groups]
            low, high = ([row[place] for row in found] for place in (3, 4))
            series.append(
                Series(
                    name=f"order {order}",
                    x=[f"{epsilon:g}, {count}" for epsilon, count in groups],
                    y=[row[2] for row in found],
                    low=low,
                    high=high,
                )
            )
        return Bar(
            title=f"{name}: {label} minus that of uniform points, 95 % intervals",
            x_label="ε and number of Gaussians",
            y_label=label,
            series=series,
        )

    def tiny(self) -> Self:
        """Use two seeds, few steps and one ε."""
        return self.replace(seeds=2, epochs=20, tests=50, epsilons=(1e-3,), components=(2, 3))


def _name(setting: Setting) -> str:
    order, epsilon, components = setting
    return f"order {order}, ε {epsilon:g}, {components} Gaussians"


def _told(name: str, label: str, tests: Sequence[tuple[float, float]]) -> str:
    corrected = holm([p for _, p in tests])
    signs = [change < 0 for (change, _), p in zip(tests, corrected, strict=True) if p < 0.05]
    mean = sum(change for change, _ in tests) / len(tests)
    return (
        f"{name}, {label}: of {len(tests)} comparisons of order 2 or 3 with order 1, "
        f"{sum(signs)} are better and {len(signs) - sum(signs)} worse (Holm, 5 %); the mean "
        f"change is {100 * mean:+.1f} %."
    )


def _claims(tests: Sequence[tuple[float, float]]) -> tuple[Claim, ...]:
    """Judge the paper's sentence on orders by the comparisons that survive Holm's correction."""
    if not tests:
        return ()
    corrected = holm([p for _, p in tests])
    better = sum(p < 0.05 and change < 0 for (change, _), p in zip(tests, corrected, strict=True))
    text = "Orders above 1 are more efficient than order 1."
    return (Claim.counted(text, better, len(tests)),)
