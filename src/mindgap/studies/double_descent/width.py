"""Double descent over the number of random features, next to its exact theory."""

import math
from collections.abc import Mapping, Sequence
from typing import Self

from mindgap.core import (
    Chart,
    Claim,
    Line,
    Mark,
    Record,
    Series,
    Study,
    Table,
    Trial,
    mean_interval,
    option,
)
from mindgap.studies.double_descent.features import (
    CLEAR,
    column,
    expected_ridgeless_risk,
    middle,
    noisy_digits,
    peak_test,
    random_features,
    simulated_risks,
)

# Fixed before anything was run; the threshold is at one, and the other two compared are far from it.
RATIOS = (0.05, 0.1, 0.25, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0, 20.0)
NARROW, WIDE = 0.25, 10.0
GAUSSIAN_SAMPLES, GAUSSIAN_FEATURES, GAUSSIAN_NOISE = 20, 80, 0.25
USED = (2, 5, 10, 14, 26, 30, 40, 60, 80)  # away from the threshold, where variances are finite
THRESHOLD = "as many features as samples"
NOTES = (
    "Published claim (Belkin et al., 2019; lecture slides): beyond the width at which the model "
    "fits all training samples, test error falls again. Its norm falls too.",
    "'Ridge' has the strength that leaves one training sample out best. Losses are squared errors "
    "of centered one-hot targets, summed over classes; the test labels are clean.",
)


class DoubleDescentWidth(Study):
    r"""Test error over the number of random features, with and without ridge.

    Formula: $\hat W = \lim_{\lambda \to 0} \arg\min_W \lVert \Phi W - Y \rVert^2 + \lambda \lVert W
    \rVert^2, \quad \Phi = \max(0, X A + b)$

    Reading: Up to as many features as samples, test error falls and then explodes: only one model
    fits all samples, wrong labels included. With more features many models fit, and the one of
    smallest norm gets smoother. A well chosen ridge has no peak. The last rows compare simulated
    Gaussian features with the exact formula of Belkin, Hsu and Xu.

    Assumes: Centered 8×8 digits with some wrong labels, fixed random first layer, exact solution in
    double precision.

    >>> len(DoubleDescentWidth(seeds=3).trials())
    12
    """

    method = ("S8",)
    cites = ("belkin2019reconciling", "belkin2020two")
    reproduces = ("stability: Double descent",)

    seeds: int = option(20, help="draws of digits, wrong labels and features", low=3)
    samples: int = option(300, help="training digits", low=20, high=1700)
    noise: float = option(0.15, help="share of wrong training labels", low=0, high=0.9)
    draws: int = option(2000, help="simulated problems with Gaussian features", low=10)

    def trials(self) -> Sequence[Trial]:
        """One trial per draw of digits, and one per number of Gaussian features."""
        own = [Trial(parameters={"problem": "digits"}, seed=seed) for seed in range(self.seeds)]
        return own + [Trial(parameters={"problem": "Gaussian", "used": used}) for used in USED]

    def run(self, trial: Trial) -> Record:
        """Fit all widths to one draw of digits, or simulate one number of Gaussian features."""
        if trial["problem"] == "Gaussian":
            return self._simulated(trial["used"])
        data = noisy_digits(self.samples, self.noise, trial.seed)
        features = random_features(data, self._width(RATIOS[-1]), trial.seed)
        return {f"{ratio:g}": features.scores(self._width(ratio)) for ratio in RATIOS}

    def _width(self, ratio: float) -> int:
        return max(1, round(ratio * self.samples))

    def _simulated(self, used: int) -> Record:
        risks = simulated_risks(
            GAUSSIAN_SAMPLES, used, GAUSSIAN_FEATURES, GAUSSIAN_NOISE, self.draws, seed=used
        )
        signal = used / GAUSSIAN_FEATURES
        expected = expected_ridgeless_risk(
            GAUSSIAN_SAMPLES, used, signal, 1 - signal, GAUSSIAN_NOISE
        )
        return {
            "mean": float(risks.mean()),
            "error": float(risks.std()) / math.sqrt(len(risks)),
            "expected": expected,
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per width, and one per number of Gaussian features."""
        runs = [record for trial, record in records if trial["problem"] == "digits"]
        theory = {
            trial["used"]: record for trial, record in records if trial["problem"] == "Gaussian"
        }
        return Table(
            title=f"Double descent over random features: {self.samples} digits, "
            f"{100 * self.noise:g} % wrong labels",
            columns=(
                *("problem", "features", "features / samples", "training loss", "test loss"),
                *("expected", "test error", "norm", "ridge: test loss", "ridge: test error"),
            ),
            rows=(
                *(self._row(runs, ratio) for ratio in RATIOS),
                *(_theory_row(used, record) for used, record in theory.items()),
            ),
            notes=(*NOTES, *_judged(runs, theory)),
            charts=(_losses(runs), _errors(runs), _theory(theory)) if runs and theory else (),
            claims=_claims(runs) if runs else (),
        )

    def _row(self, runs: Sequence[Record], ratio: float) -> tuple[object, ...]:
        first, second = ("train_loss", "test_loss"), ("test_error", "norm", "ridge_loss")
        return (
            *("digits", self._width(ratio), ratio),
            *(middle(runs, ratio, name) for name in first),
            None,
            *(middle(runs, ratio, name) for name in (*second, "ridge_error")),
        )

    def tiny(self) -> Self:
        """Three small draws."""
        return self.replace(seeds=3, samples=40, draws=20)


def _theory_row(used: int, record: Record) -> tuple[object, ...]:
    known = ("Gaussian", used, used / GAUSSIAN_SAMPLES, None, record["mean"], record["expected"])
    return (*known, None, None, None, None)


def _claims(runs: Sequence[Record]) -> tuple[Claim, ...]:
    asked = {
        "Test loss rises up to as many features as samples.": ("test_loss", NARROW),
        "Beyond that width test loss falls again.": ("test_loss", WIDE),
        "Beyond that width the norm of the solution falls too.": ("norm", WIDE),
    }
    return tuple(
        Claim.shown(text, peak_test(column(runs, 1.0, name), column(runs, ratio, name))[1] > CLEAR)
        for text, (name, ratio) in asked.items()
    )


def _times(factor: float) -> str:
    return f"{factor:,.0f} times" if factor >= 100 else f"{factor:.3g} times"


def _judged(runs: Sequence[Record], theory: Mapping[int, Record]) -> list[str]:
    peak = column(runs, 1.0, "test_loss")
    told = []
    for ratio, words in ((NARROW, "narrower"), (WIDE, "wider")):
        factor, z = peak_test(peak, column(runs, ratio, "test_loss"))
        told.append(
            f"{_times(factor)} that at {ratio:g} features per sample ({words}, z = {z:.1f})"
        )
    tamed, z = peak_test(column(runs, 1.0, "ridge_loss"), column(runs, NARROW, "ridge_loss"))
    far = max(abs(one["mean"] - one["expected"]) / one["error"] for one in theory.values())
    return [
        f"Test loss at the threshold is {' and '.join(told)}, by paired logarithms.",
        f"With ridge it is {_times(tamed)} that at {NARROW:g} features per sample (z = {z:.1f}): "
        f"{'no peak' if tamed < 1 else 'a peak is left'}.",
        f"Gaussian features: simulation and formula differ by at most {far:.1f} standard errors at "
        f"{len(theory)} widths.",
    ]


def _curve(runs: Sequence[Record], name: str, words: str) -> Series:
    return Series(name=words, x=RATIOS, y=[middle(runs, ratio, name) for ratio in RATIOS])


def _losses(runs: Sequence[Record]) -> Chart:
    return Line(
        title="Test loss and norm over the number of features",
        x_label="features / samples",
        y_label="test loss (geometric mean)",
        x_scale="log",
        y_scale="log",
        series=[
            _curve(runs, "test_loss", "smallest norm"),
            _curve(runs, "ridge_loss", "ridge"),
        ],
        right=[_curve(runs, "norm", "norm of the solution")],
        right_label="norm",
        marks=[Mark(name=THRESHOLD, x=1.0)],
    )


def _errors(runs: Sequence[Record]) -> Chart:
    def series(name: str, words: str) -> Series:
        found = [mean_interval(column(runs, ratio, name)) for ratio in RATIOS]
        return Series(
            name=words,
            x=RATIOS,
            y=[middle(runs, ratio, name) for ratio in RATIOS],
            low=[one.low for one in found],
            high=[one.high for one in found],
        )

    return Line(
        title="Test error over the number of features",
        x_label="features / samples",
        y_label="test error",
        x_scale="log",
        percent=True,
        from_zero=True,
        series=[series("test_error", "smallest norm"), series("ridge_error", "ridge")],
        marks=[Mark(name=THRESHOLD, x=1.0)],
    )


def _theory(theory: Mapping[int, Record]) -> Chart:
    places = range(1, GAUSSIAN_FEATURES + 1)
    risks = [
        expected_ridgeless_risk(
            GAUSSIAN_SAMPLES,
            used,
            used / GAUSSIAN_FEATURES,
            1 - used / GAUSSIAN_FEATURES,
            GAUSSIAN_NOISE,
        )
        for used in places
    ]
    return Line(
        title=f"Gaussian features, {GAUSSIAN_SAMPLES} samples: theory and simulation",
        x_label="features that the model sees",
        y_label="test loss",
        y_scale="log",
        series=[
            Series(
                name="exact formula",
                x=list(places),
                y=[risk if math.isfinite(risk) else None for risk in risks],
                mode="lines",
            ),
            Series(
                name="simulation",
                x=list(theory),
                y=[one["mean"] for one in theory.values()],
                low=[one["mean"] - 1.96 * one["error"] for one in theory.values()],
                high=[one["mean"] + 1.96 * one["error"] for one in theory.values()],
                mode="markers",
            ),
        ],
        marks=[Mark(name=THRESHOLD, x=float(GAUSSIAN_SAMPLES))],
    )
