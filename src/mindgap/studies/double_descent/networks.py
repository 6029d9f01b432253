"""Double descent over the width of trained networks, with and without weight decay."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

from mindgap.core import (
    Chart,
    Claim,
    Line,
    Mark,
    Paired,
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
from mindgap.data.noise import label_noise
from mindgap.nets.mlp import MLP
from mindgap.remedies import WeightDecay
from mindgap.studies.double_descent.features import CLASSES, Noisy, noisy_digits
from mindgap.training.ensemble import ensemble
from mindgap.training.fitted import Fitted

DECAYS = (0.0, 0.1, 0.3, 1.0, 3.0)  # the first is plain training
VALIDATION = 400  # digits on which the decay is chosen; their labels are as noisy as the others
INTERPOLATES = 0.01  # training error from which on a network counts as fitting all samples
ARMS = {"plain": "plain", "decayed": "weight decay"}
NOTES = (
    "Published claim (Nakkiran et al., 2020): with wrong labels, test error peaks near the width "
    "that just fits the training data, and well chosen regularization removes the peak.",
    f"'Weight decay' is the best of {len(DECAYS)} strengths on {VALIDATION} further digits with equally "
    "noisy labels. Test labels are clean. The threshold is the smallest width whose mean training "
    f"error is at most {100 * INTERPOLATES:g} %; no test data decide it.",
)
Runs = Mapping[int, Mapping[int, Record]]


class DoubleDescentNetworks(Study):
    r"""Test error of two-layer networks over their width, trained on partly wrong labels.

    Formula: $f(x) = W_2 \max(0, W_1 x + b_1) + b_2$ with $75 h + 10$ weights for $h$ hidden units

    Reading: Narrow networks cannot fit wrong labels, wide ones fit them smoothly. In between, the
    network that just fits them all is the worst. Compare the threshold with half of its width and
    with the widest network.

    Assumes: 8×8 digits, Adam at a fixed rate and number of epochs; every seed has digits, wrong
    labels and initial weights of its own, shared by all widths.

    >>> len(DoubleDescentNetworks(seeds=3).trials())
    36
    """

    method = ("S8",)
    cites = ("nakkiran2020deep", "belkin2019reconciling")
    reproduces = ("stability: Double descent",)

    seeds: int = option(10, help="draws of digits, wrong labels and initial weights", low=2)
    widths: tuple[int, ...] = option(
        (2, 4, 6, 8, 10, 12, 16, 24, 32, 64, 128, 256), help="hidden units", low=1
    )
    samples: int = option(400, help="training digits", low=20, high=1000)
    noise: float = option(0.2, help="share of wrong labels", low=0, high=0.9)
    epochs: int = option(400, help="passes over the training digits", low=1)
    learning_rate: float = option(3e-3, help="learning rate of Adam", above=0)

    def trials(self) -> Sequence[Trial]:
        """Every width with every seed."""
        return [
            Trial(parameters={"width": width}, seed=seed)
            for width in self.widths
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train with all decays at once, and choose one on validation digits."""
        data = noisy_digits(self.samples, self.noise, trial.seed)
        wrong, _ = label_noise(
            data.test_labels[:VALIDATION], self.noise, classes=CLASSES, seed=trial.seed + 1
        )
        kept = dataclasses.replace(
            data,
            test_inputs=data.test_inputs[VALIDATION:],
            test_labels=data.test_labels[VALIDATION:],
        )
        members = ensemble(
            self._recipe(kept, trial["width"]),
            seeds=[trial.seed] * len(DECAYS),
            remedies=[[WeightDecay(decay=decay)] for decay in DECAYS],
            keep_history=False,
        )
        chosen = min(
            range(len(DECAYS)),
            key=lambda k: _error(members[k], data.test_inputs[:VALIDATION], wrong),
        )
        return {
            **_measured(members[0], "plain"),
            **_measured(members[chosen], "decayed"),
            "decay": DECAYS[chosen],
        }

    def _recipe(self, data: Noisy, width: int) -> Recipe:
        return Recipe(
            model=lambda: MLP((data.inputs.shape[1], width, CLASSES)),
            train=(data.inputs, data.labels),
            test=(data.test_inputs, data.test_labels),
            epochs=self.epochs,
            batch_size=50,
            learning_rate=self.learning_rate,
        )

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per width."""
        runs: dict[int, dict[int, Record]] = {}
        for trial, record in records:
            runs.setdefault(trial["width"], {})[trial.seed] = record
        threshold = _threshold(runs)
        return Table(
            title=f"Double descent over width: networks on {self.samples} digits, "
            f"{100 * self.noise:g} % wrong labels",
            columns=(
                *("width", "weights", "training error", "test error", "95 % interval", "norm"),
                *("weight decay: training error", "test error with it", "median decay"),
            ),
            rows=tuple(_row(width, own) for width, own in runs.items()),
            notes=(*NOTES, *_judged(runs, threshold)),
            charts=(_chart(runs, threshold),),
            claims=_claims(runs, threshold),
        )

    def tiny(self) -> Self:
        """Two seeds, two widths and few epochs."""
        return self.replace(seeds=2, widths=(2, 8), samples=40, epochs=2)


def _error(member: Fitted, inputs: object, labels: object) -> float:
    subject = member.subject()
    model = subject.model.eval()
    return float((model(inputs).argmax(1) != labels).double().mean())


def _measured(member: Fitted, arm: str) -> dict[str, float]:
    subject = member.subject()
    square = sum(float(p.detach().double().square().sum()) for p in subject.model.parameters())
    return {
        f"{arm}_train": subject.mean_error("train"),
        f"{arm}_test": subject.mean_error("test"),
        f"{arm}_norm": square**0.5,
    }


def _mean(own: Mapping[int, Record], name: str) -> float:
    return sum(float(record[name]) for record in own.values()) / len(own)


def _threshold(runs: Runs) -> int | None:
    fitting = [width for width, own in runs.items() if _mean(own, "plain_train") <= INTERPOLATES]
    return min(fitting, default=None)


def _row(width: int, own: Mapping[int, Record]) -> tuple[object, ...]:
    decays = sorted(record["decay"] for record in own.values())
    return (
        *(width, 75 * width + 10, _mean(own, "plain_train"), _mean(own, "plain_test")),
        str(mean_interval([record["plain_test"] for record in own.values()])),
        *(_mean(own, "plain_norm"), _mean(own, "decayed_train"), _mean(own, "decayed_test")),
        decays[len(decays) // 2],
    )


def _compared(runs: Runs, threshold: int | None) -> dict[tuple[str, int], tuple[Paired, float]]:
    """Compare the threshold with half of its width and with the widest, for both arms."""
    if threshold is None or threshold == max(runs):
        return {}
    others = [other for other in (threshold // 2, max(runs)) if other in runs]
    asked = [(arm, other) for arm in ARMS for other in others]
    tests = [paired(*(_tests(runs[w], arm) for w in (threshold, other))) for arm, other in asked]
    corrected = holm([test.p_value for test in tests])
    return dict(zip(asked, zip(tests, corrected, strict=True), strict=True))


def _judged(runs: Runs, threshold: int | None) -> list[str]:
    found = _compared(runs, threshold)
    if threshold is None or not found:
        return ["No width fits the training data, or none is wider: no threshold to judge."]
    return [_sentence(arm, threshold, other, test, p) for (arm, other), (test, p) in found.items()]


def _claims(runs: Runs, threshold: int | None) -> tuple[Claim, ...]:
    """Judge the peak of plain training, and that weight decay leaves none."""
    found = _compared(runs, threshold)
    higher: dict[str, list[bool]] = {arm: [] for arm in ARMS}
    for (arm, _), (test, p) in found.items():
        higher[arm].append(test.difference > 0 and p < 0.05)
    removed = any(higher["plain"]) and not any(higher["decayed"])
    return (
        Claim.counted(
            "Test error at the threshold is above that of narrower and wider networks.",
            sum(higher["plain"]),
            max(2, len(higher["plain"])),
        ),
        # That no peak is left cannot be shown, only that none is seen.
        Claim("Weight decay removes the peak.", "direction" if removed else "no"),
    )


def _tests(own: Mapping[int, Record], arm: str) -> list[float]:
    return [own[seed][f"{arm}_test"] for seed in sorted(own)]


def _sentence(arm: str, threshold: int, other: int, test: Paired, p: float) -> str:
    way = "higher" if test.difference > 0 else "lower"
    shown = way if p < 0.05 else "not shown to differ"
    return (
        f"{ARMS[arm].capitalize()}: test error at the threshold, width {threshold}, minus that at width "
        f"{other}: {test.difference:+.4f} {test.interval} (paired over {test.pairs} seeds, corrected "
        f"p = {p:.2g}): {shown}."
    )


def _chart(runs: Runs, threshold: int | None) -> Chart:
    def series(name: str, words: str) -> Series:
        found = [mean_interval([record[name] for record in own.values()]) for own in runs.values()]
        return Series(
            name=words,
            x=list(runs),
            y=[_mean(own, name) for own in runs.values()],
            low=[one.low for one in found],
            high=[one.high for one in found],
        )

    return Line(
        title="Error over the width of the network",
        x_label="hidden units",
        y_label="error",
        x_scale="log",
        percent=True,
        from_zero=True,
        series=[
            series("plain_test", "test"),
            series("decayed_test", "test, with weight decay"),
            series("plain_train", "training"),
        ],
        right=[
            Series(
                name="norm of the weights",
                x=list(runs),
                y=[_mean(own, "plain_norm") for own in runs.values()],
            )
        ],
        right_label="norm",
        marks=[]
        if threshold is None
        else [Mark(name="fits all training samples", x=float(threshold))],
    )
