"""Double descent over the number of samples: where more data hurt."""

from collections.abc import Sequence
from typing import Self

from mindgap.core import Chart, Claim, Line, Mark, Record, Series, Study, Table, Trial, option
from mindgap.studies.double_descent.features import (
    CLEAR,
    column,
    middle,
    noisy_digits,
    peak_test,
    random_features,
)

RATIOS = (0.1, 0.25, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
FEWER = 0.25  # samples per feature that the threshold is compared with; fixed before any run
NOTES = (
    "Published claim (Nakkiran et al., 2020): near the threshold, more samples can make the same "
    "model worse.",
    "Losses are geometric means. 'Ridge' has the strength that leaves one training sample out best.",
)


class DoubleDescentSamples(Study):
    r"""Test error of a model of fixed width over the number of training samples.

    Formula: $\hat W = \lim_{\lambda \to 0} \arg\min_W \lVert \Phi W - Y \rVert^2 + \lambda \lVert W
    \rVert^2$ with $n$ rows of $\Phi$ and a fixed number of columns

    Reading: The threshold moves with the data: it is where there are as many samples as features.
    There more samples hurt. With ridge they never do.

    Assumes: Centered 8×8 digits with some wrong labels, fixed random first layer, exact solution in
    double precision.

    >>> len(DoubleDescentSamples(seeds=3).trials())
    3
    """

    method = ("S8",)
    cites = ("nakkiran2020deep", "belkin2019reconciling")
    reproduces = ("stability: Double descent",)

    seeds: int = option(20, help="draws of digits, wrong labels and features", low=3)
    width: int = option(250, help="random features", low=20, high=400)
    noise: float = option(0.15, help="share of wrong training labels", low=0, high=0.9)

    def trials(self) -> Sequence[Trial]:
        """One trial per draw."""
        return [Trial(parameters={}, seed=seed) for seed in range(self.seeds)]

    def run(self, trial: Trial) -> Record:
        """Fit the same features to more and more digits of one draw."""
        return {
            f"{ratio:g}": random_features(
                noisy_digits(round(ratio * self.width), self.noise, trial.seed),
                self.width,
                trial.seed,
            ).scores(self.width)
            for ratio in RATIOS
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per number of samples."""
        runs = [record for _, record in records]
        columns = ("train_loss", "test_loss", "test_error", "norm", "ridge_loss", "ridge_error")
        return Table(
            title=f"Double descent over samples: {self.width} random features",
            columns=(
                *("samples", "samples / features", "training loss", "test loss", "test error"),
                *("norm", "ridge: test loss", "ridge: test error"),
            ),
            rows=tuple(
                (round(ratio * self.width), ratio, *(middle(runs, ratio, c) for c in columns))
                for ratio in RATIOS
            ),
            notes=(*NOTES, *_judged(runs)),
            charts=(_chart(runs),),
            claims=(_claim(runs),),
        )

    def tiny(self) -> Self:
        """Three small draws."""
        return self.replace(seeds=3, width=20)


def _claim(runs: Sequence[Record]) -> Claim:
    _, z = peak_test(column(runs, 1.0, "test_loss"), column(runs, FEWER, "test_loss"))
    return Claim.shown("Near the threshold, more samples make the same model worse.", z > CLEAR)


def _judged(runs: Sequence[Record]) -> list[str]:
    told = []
    for name, words in (("test_loss", "of smallest norm"), ("ridge_loss", "with ridge")):
        factor, z = peak_test(column(runs, 1.0, name), column(runs, FEWER, name))
        told.append(f"{words} {factor:,.2f} (z = {z:.1f})")
    more = round(1 / FEWER)
    return [
        f"{more} times the samples, from {FEWER:g} per feature to the threshold, change the test "
        f"loss by these factors: {', '.join(told)}."
    ]


def _chart(runs: Sequence[Record]) -> Chart:
    names = {"test_loss": "smallest norm", "ridge_loss": "ridge"}
    return Line(
        title="Test loss of one model over the number of samples",
        x_label="samples / features",
        y_label="test loss (geometric mean)",
        x_scale="log",
        y_scale="log",
        series=[
            Series(name=words, x=RATIOS, y=[middle(runs, ratio, name) for ratio in RATIOS])
            for name, words in names.items()
        ],
        right=[
            Series(
                name="norm of the solution",
                x=RATIOS,
                y=[middle(runs, ratio, "norm") for ratio in RATIOS],
            )
        ],
        right_label="norm",
        marks=[Mark(name="as many samples as features", x=1.0)],
    )
