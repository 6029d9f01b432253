"""Normalization of activations and weights: curvature, steps to a loss, test error."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import nn

from mindgap.core import (
    Bar,
    Chart,
    Claim,
    Record,
    Series,
    Study,
    Subject,
    Table,
    Trial,
    holm,
    option,
    paired,
    seeded,
)
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import gauss_newton_products
from mindgap.ops.curvature.spectrum import top_eigenpairs, trace
from mindgap.studies.conditioning.networks import NORMS, SEQUENCE_NORMS, images, sequences, started
from mindgap.studies.conditioning.steps import Pair, Problem, compared, spoken, tuned

# Batch size and factor of the initial weights.
SETTINGS = {
    "standard": (64, 1.0),
    "batch size 4": (4, 1.0),
    "weights × 0.5": (64, 0.5),
    "weights × 2": (64, 2.0),
}
ARMS = {"CNN": NORMS, "transformer": SEQUENCE_NORMS}
RULE = {"CNN": "momentum", "transformer": "Adam"}
NOTES = (
    "Published claims (lecture slides): batch normalization speeds up training of CNNs, makes it "
    "less dependent on the initial weights and leads to better optima, but needs large enough "
    "batches; layer normalization suits transformers and is worse for CNNs; the data-based start of "
    "weight normalization is better than the plain one.",
    "'λ_max' is the largest eigenvalue of the Gauss–Newton matrix at the initial weights, and 'spread' "
    "that eigenvalue divided by the mean one: 1 would be perfect conditioning. Batch normalization "
    "is taken with the statistics of the training data.",
    "Steps are those until ten batches have a mean loss at the target, with the best of several "
    "learning rates, chosen on other seeds. 'Ratio' is against the network without a norm, paired "
    "by seed, with a 95 % interval; runs at the limit count with the limit. p-values are corrected "
    "by Holm over the norms of a setting. The test error is that after all steps.",
)


class ConditioningNormalization(Study):
    r"""Compare normalizations by curvature, steps to a loss and test error.

    Formula: $\mathrm{spread} = \lambda_{max}(G) \, p / \mathrm{tr}(G), \quad G = \frac{1}{n} \sum_i
    J_i^\top \nabla^2 \ell_i J_i$

    Reading: A norm is a change of coordinates. Where it lowers the largest curvature, longer steps
    are stable; where it narrows the spread, all directions learn at the same pace.

    Assumes: A network of six convolutions on the 8×8 digits, trained by SGD with momentum, and a
    transformer of two layers that looks up a symbol in a sequence, trained by Adam. The start of
    "weight, data-based" does not depend on the factor of the initial weights.

    >>> len(ConditioningNormalization().trials())
    52
    """

    method = ("E4",)
    cites = (
        "ioffe2015batch",
        "ba2016layer",
        "salimans2016weight",
        "qiao2019weight",
        "brock2021characterizing",
    )
    reproduces = ("expressivity: Normalization",)

    quick: bool = option(False, help="the transformer at its standard setting only")
    seeds: int = option(5, help="fresh seeds per norm", low=2)
    search: int = option(1, help="seeds on which the learning rate is chosen", low=1)
    rates: int = option(5, help="learning rates per norm, a factor of 3.16 apart", low=1)
    most_steps: int = option(300, help="steps of every run", low=10)
    target: float = option(0.2, help="the training loss to reach", above=0)
    samples: int = option(256, help="training samples of the curvature", low=2)

    def trials(self) -> Sequence[Trial]:
        """One trial per network, setting and norm."""
        return [
            Trial(parameters={"network": network, "setting": setting, "norm": norm})
            for network in (("transformer",) if self.quick else ARMS)
            for setting in (("standard",) if self.quick else SETTINGS)
            for norm in ARMS[network]
        ]

    def run(self, trial: Trial) -> Record:
        """Measure the curvature at the start, choose the learning rate, then train fresh seeds."""
        network, norm = trial["network"], trial["norm"]
        batch_size, factor = SETTINGS[trial["setting"]]
        train, test = images() if network == "CNN" else (sequences(2_000, 0), sequences(1_000, 1))
        problem = Problem(
            model=lambda: started(network, norm, train[0][:64], factor),
            train=train,
            batch_size=batch_size,
            target=self.target,
            limit=self.most_steps,
        )
        rate, at_end = tuned(problem, RULE[network], rates=self.rates, search=self.search)
        runs = [problem.learn(RULE[network], rate, seed, whole=True) for seed in range(self.seeds)]
        return {
            "rate": rate,
            "at_end": at_end,
            "steps": [run.steps for run in runs],
            "test_error": [_error(run.model, test) for run in runs],
            **self._curvature(problem),
        }

    def _curvature(self, problem: Problem) -> dict[str, list[float]]:
        found = []
        for seed in range(self.seeds):
            with seeded(seed):
                model = with_statistics(problem.model(), problem.train)
            part = tuple(piece[: self.samples] for piece in problem.train)
            flat = FlatLoss(Subject(model, "cross_entropy", part))
            matrix = gauss_newton_products(flat)
            top = top_eigenpairs(matrix, 1, tolerance=1e-2)
            found.append((float(top.values[0]), trace(matrix, 30, known=top).value / matrix.size))
        return {"largest": [top for top, _ in found], "spread": [top / mean for top, mean in found]}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per network, setting and norm, compared with none."""
        groups: dict[tuple[str, str], dict[str, Record]] = {}
        for trial, record in records:
            groups.setdefault((trial["network"], trial["setting"]), {})[trial["norm"]] = record
        rows = [row for key, found in groups.items() for row in self._rows(*key, found)]
        return Table(
            title="Normalization: curvature at the start, steps to a loss, test error",
            columns=(
                "network",
                "setting",
                "norm",
                "λ_max",
                "spread",
                "learning rate",
                "steps",
                "ratio",
                "p",
                "test error",
            ),
            rows=tuple(rows),
            notes=(*NOTES, *_judged(groups)),
            claims=tuple(
                Claim.shown(f"{words[0].upper()}{words[1:]} ({setting}).", verdict == "holds")
                for words, setting, _, verdict, _ in _tests(groups)
            ),
            charts=tuple(
                _chart(network, groups)
                for network in ARMS
                if any(key[0] == network for key in groups)
            ),
        )

    def _rows(
        self, network: str, setting: str, found: Mapping[str, Record]
    ) -> list[tuple[Any, ...]]:
        tests = compared({norm: record["steps"] for norm, record in found.items()}, "none")
        return [
            (
                *(network, setting, norm, _mean(record["largest"]), _mean(record["spread"])),
                *(record["rate"], spoken(record["steps"], self.most_steps)),
                *tests.get(norm, ("—", "—")),
                f"{100 * _mean(record['test_error']):.1f} %",
            )
            for norm, record in found.items()
        ]

    def tiny(self) -> Self:
        """Use one network, two seeds, one learning rate, ten steps and few samples."""
        return self.replace(
            quick=True,
            seeds=2,
            search=1,
            rates=1,
            most_steps=10,
            samples=8,
        )


def with_statistics(model: nn.Module, train: Pair) -> nn.Module:
    """Give batch normalization the statistics of the training data, in evaluation mode."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
    with torch.no_grad():
        model.train()(train[0])
    return model.eval()


@torch.no_grad()
def _error(model: nn.Module, test: Pair) -> float:
    return float((model.eval()(test[0]).argmax(1) != test[1]).double().mean())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# What the slides claim: network, settings, norm, control, and what is compared.
CLAIMS = (
    ("CNN", ("standard",), "batch", "none", "steps", "batch normalization speeds up"),
    (
        "CNN",
        ("weights × 0.5", "weights × 2"),
        "batch",
        "none",
        "steps",
        "also from other initial weights",
    ),
    (
        "CNN",
        ("standard",),
        "batch",
        "none",
        "test_error",
        "batch normalization lowers the test error",
    ),
    (
        "CNN",
        ("batch size 4",),
        "group",
        "batch",
        "steps",
        "batches of 4 are too small for batch normalization (group is faster)",
    ),
    (
        "CNN",
        ("standard",),
        "batch",
        "layer",
        "test_error",
        "layer normalization is worse than batch normalization for CNNs",
    ),
    (
        "transformer",
        ("standard",),
        "layer",
        "none",
        "steps",
        "layer normalization speeds up transformers",
    ),
    (
        "CNN",
        ("standard",),
        "weight, data-based",
        "weight",
        "steps",
        "the data-based start of weight normalization is faster",
    ),
)


def _tests(
    groups: Mapping[tuple[str, str], Mapping[str, Record]],
) -> list[tuple[str, str, list[Any], str, float]]:
    """Test every claim: its words, setting, compared values, verdict and corrected p-value."""
    asked = [
        (words, setting, [groups[network, setting][arm][what] for arm in (norm, control)])
        for network, settings, norm, control, what, words in CLAIMS
        for setting in settings
        if {norm, control} <= groups.get((network, setting), {}).keys()
    ]
    tests = [paired(*values) for _, _, values in asked]
    corrected = holm([test.p_value for test in tests])
    return [
        (*one, _verdict(test.difference, p), p)
        for one, test, p in zip(asked, tests, corrected, strict=True)
    ]


def _judged(groups: Mapping[tuple[str, str], Mapping[str, Record]]) -> list[str]:
    return [
        f"{words[0].upper()}{words[1:]} ({setting}): {verdict} "
        f"(means {_mean(values[0]):.3g} and {_mean(values[1]):.3g}, corrected p {p:.2g})."
        for words, setting, values, verdict, p in _tests(groups)
    ]


def _verdict(difference: float, p: float) -> str:
    if p >= 0.05:
        return "not shown"
    return "holds" if difference < 0 else "the opposite was measured"


def _chart(network: str, groups: Mapping[tuple[str, str], Mapping[str, Record]]) -> Chart:
    series = tuple(
        Series(
            name=setting,
            x=tuple(found),
            y=tuple(_mean(record["steps"]) for record in found.values()),
        )
        for (where, setting), found in groups.items()
        if where == network
    )
    return Bar(title=f"Steps to the target loss, {network}", series=series, y_label="steps")
