"""What makes a data set good: β against sample size and label noise."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch.nn import functional

from mindgap.core import (
    Claim,
    Line,
    Recipe,
    Record,
    Series,
    Study,
    Table,
    Trial,
    generator,
    mean_interval,
    option,
)
from mindgap.data import digits
from mindgap.data.noise import label_noise
from mindgap.measures.data.data_set_quality import DataSetQuality
from mindgap.measures.data.path_space_limit import PathSpaceLimit
from mindgap.nets import MLP
from mindgap.training.fit import fit

CLAIM = (
    "Claim of the source: the gap depends on the quality of the data set, which β₁, β₂ and β₃ "
    "measure; small values make a good data set."
)
SMALL = 0.05  # a p-value that counts as a difference


class GoodDataSet(Study):
    r"""β₁ and β₂ of training data against sample size and label noise, each with its null.

    Formula: $\beta_1(n, \epsilon), \; \beta_2(n, \epsilon) \text{ next to } \mathrm{median} \,
    \beta(\text{random divisions})$

    Reading: Both fall with n, but so do their nulls: most of a β is sampling noise. What is above the
    null says that training data differ from held-out data. Wrong labels in the training data alone
    raise β₂; if held-out labels are as wrong, they do not, although the data are no better.

    Assumes: An MLP 64-64-64-10 trained with Adam and the squared loss on random halves of the 8×8
    digits, with the same number of steps for every n. E[·] is a mean over 700 held-out samples.

    >>> len(GoodDataSet(seeds=2).trials())
    24
    """

    method = ("K4",)
    cites = ("kawaguchi2017generalization",)
    reproduces = ("darc: Good data set",)

    seeds: int = option(5, help="number of seeds, each with its own division of the data", low=2)
    held: int = option(700, help="number of held-out samples", low=50, high=700)
    steps: int = option(1200, help="training steps", low=1)
    width: int = option(64, help="units of each hidden layer", low=1)
    largest: int = option(1000, help="largest number of training samples", low=125, high=1000)

    def trials(self) -> Sequence[Trial]:
        """Take four sizes without noise, and two with noise in one or both groups, up to the largest."""
        clean, noisy = (
            [size for size in sizes if size <= self.largest]
            for sizes in ((125, 250, 500, 1000), (250, 1000))
        )
        settings: list[dict[str, Any]] = [
            *({"size": size, "noise": 0.0, "where": "nowhere"} for size in clean),
            *(
                {"size": size, "noise": noise, "where": where}
                for where in ("training", "both")
                for size in noisy
                for noise in (0.5, 0.9)
            ),
        ]
        return [Trial(parameters=one, seed=seed) for one in settings for seed in range(self.seeds)]

    def run(self, trial: Trial) -> Record:
        """Train one network, and measure the data in its path space."""
        train, test = self._data(trial)
        epochs = max(1, round(self.steps * 50 / trial["size"]))
        recipe = Recipe(
            model=lambda: MLP((64, self.width, self.width, 10)),
            train=train,
            test=test,
            loss="mse",
            epochs=epochs,
            batch_size=50,
            learning_rate=1e-3,
        )
        subject = fit(recipe, seed=trial.seed, evaluate_every=0).subject()
        quality = DataSetQuality(seed=trial.seed)(subject)
        limit = PathSpaceLimit(seed=trial.seed)(subject)
        return {
            "beta_1": quality.value,
            "beta_1_null": quality.terms["null_median"],
            "beta_1_p": quality.terms["p_value"],
            "beta_2": quality.terms["beta_2"],
            "beta_2_null": quality.terms["beta_2_null_median"],
            "beta_2_p": quality.terms["beta_2_p_value"],
            "gap": limit.terms["gap"],
            "limit": limit.value,
            "squared_path_norm": limit.terms["squared_path_norm"],
        }

    def _data(self, trial: Trial) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        data = digits()
        assert data.test is not None
        inputs = torch.cat([data.inputs, data.test[0]])
        labels = torch.cat([data.targets, data.test[1]])
        order = torch.randperm(len(labels), generator=generator(trial.seed))
        held, own = order[: self.held], order[self.held :][: trial["size"]]
        right = trial["where"] != "both"
        return (
            (inputs[own], _coded(labels[own], trial["noise"], 2 * trial.seed)),
            (
                inputs[held],
                _coded(labels[held], 0 if right else trial["noise"], 2 * trial.seed + 1),
            ),
        )

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """Make one row per setting: means over seeds, and how often a β exceeds its null."""
        groups: dict[tuple[Any, ...], list[Record]] = {}
        for trial, record in records:
            key = (trial["where"], trial["noise"], trial["size"])
            groups.setdefault(key, []).append(record)
        rows = tuple((*key, *_row(group)) for key, group in groups.items())
        return Table(
            title="β₁ and β₂ against sample size and label noise (8×8 digits)",
            columns=(
                *("wrong labels in", "share", "training samples"),
                *("β₁", "null of β₁", "β₁ above null"),
                *("β₂", "null of β₂", "β₂ above null"),
                *("gap", "limit", "squared path norm"),
            ),
            rows=rows,
            notes=(CLAIM, *_notes(groups)),
            claims=_claims(groups),
            charts=(_chart(rows),),
        )

    def tiny(self) -> Self:
        """Use two seeds, two sizes, few steps and narrow layers."""
        return self.replace(seeds=2, steps=5, width=4, held=50, largest=250)


def _coded(labels: Any, noise: float, seed: int) -> Any:
    wrong = label_noise(labels, noise, classes=10, seed=seed)[0] if noise else labels
    return functional.one_hot(wrong, 10).float()


def _row(group: Sequence[Record]) -> tuple[object, ...]:
    def mean(name: str) -> float:
        return sum(float(record[name]) for record in group) / len(group)

    def above(name: str) -> str:
        return f"{sum(record[name] <= SMALL for record in group)} of {len(group)}"

    return (
        *(mean("beta_1"), mean("beta_1_null"), above("beta_1_p")),
        *(mean("beta_2"), mean("beta_2_null"), above("beta_2_p")),
        *(mean("gap"), mean("limit"), mean("squared_path_norm")),
    )


def _claims(groups: dict[tuple[Any, ...], list[Record]]) -> tuple[Claim, ...]:
    """Judge Proposition 4, and whether β₂ sees wrong labels at the largest share of them."""
    every = [record for group in groups.values() for record in group]
    held = sum(record["gap"] <= record["limit"] for record in every)
    told = [Claim.counted("The gap is below the limit of Proposition 4.", held, len(every))]
    for place, words in (("training", "the training data"), ("both", "training and test data")):
        noisy = [key for key in groups if key[0] == place]
        if noisy:
            group = groups[max(noisy, key=lambda key: (key[2], key[1]))]
            ratios = [record["beta_2"] / record["beta_2_null"] for record in group]
            shown = len(ratios) > 1 and mean_interval(ratios).low > 1
            told.append(Claim.shown(f"β₂ sees that labels of {words} are wrong.", shown))
    return tuple(told)


def _notes(groups: dict[tuple[Any, ...], list[Record]]) -> list[str]:
    """Give the ratio of each β to its null, without noise and with most of it."""
    notes = []
    words = {"nowhere": "nowhere", "training": "in the training data", "both": "in both groups"}
    for place, told in words.items():
        sizes = [key for key in groups if key[0] == place and key[2] == 1000]
        if not sizes:
            continue
        group = groups[max(sizes, key=lambda key: key[1])]
        ratios = [
            mean_interval([record[name] / record[f"{name}_null"] for record in group])
            for name in ("beta_1", "beta_2")
        ]
        middle = [(ratio.low + ratio.high) / 2 for ratio in ratios]
        notes.append(
            f"Wrong labels {told}, 1,000 samples: β₁ is {middle[0]:.2f} {ratios[0]} times the median of its null, β₂ "
            f"{middle[1]:.2f} {ratios[1]} times."
        )
    return notes


def _chart(rows: tuple[tuple[Any, ...], ...]) -> Line:
    clean = [row for row in rows if row[0] == "nowhere"]
    sizes = [row[2] for row in clean]
    names = {"β₁": 3, "null of β₁": 4, "β₂": 6, "null of β₂": 7}
    return Line(
        title="β against sample size without noise, and the medians of their nulls",
        x_label="training samples",
        y_label="β",
        x_scale="log",
        y_scale="log",
        series=[
            Series(name=name, x=sizes, y=[row[k] for row in clean]) for name, k in names.items()
        ],
    )
