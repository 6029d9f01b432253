"""Random noise, attacks by gradient and attacks on a surrogate, before and after adversarial training."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch

from mindgap.core import (
    Chart,
    Claim,
    Gallery,
    Line,
    Paired,
    Recipe,
    Record,
    Remedy,
    Sample,
    Series,
    Study,
    Table,
    Trial,
    holm,
    mean_interval,
    option,
    paired,
)
from mindgap.data.mnist import mnist
from mindgap.nets.lenet import LeNet5
from mindgap.ops.attacks.controls import train_surrogate
from mindgap.ops.attacks.robustness import Level, Settings, levels, unattacked
from mindgap.ops.attacks.scene import Scene, attackable, scene_of
from mindgap.ops.images import as_images
from mindgap.remedies.perturbation.adversarial_training import AdversarialTraining
from mindgap.training.fit import fit

KINDS = {"noise": "random noise", "transfer": "attack on a surrogate", "gradient": "PGD"}
LEARNED = 2000  # training images whose predictions the surrogate learns from
SHOWN = 4  # images of the figure
ALPHA = 0.05
NOTES = (
    "LeNet-5 on a subset of MNIST, pixels from 0 to 1, changes of at most ε per pixel. PGD takes "
    "20 steps from a random start; noise is the worst of ten draws. The surrogate is a perceptron "
    "that learns from the network's answers alone.",
    "Published claims (slides): vision models are robust to random noise and extremely fragile to "
    "well-crafted noise, also where the attacker does not know the weights; training on attacked "
    "images helps. Differences are paired by seed, and p-values corrected by Holm.",
)
Runs = Mapping[str, Sequence[Record]]


class AdversarialExamples(Study):
    r"""Accuracy under noise, attacks on a surrogate and PGD, plain and with adversarial training.

    Formula: $\frac{1}{n} \sum_i \mathbb{1}\left[ \hat y(x_i + \delta_i) = y_i \right], \qquad
    \lVert \delta_i \rVert_\infty \le \epsilon$

    Reading: Noise and attacks change every pixel by the same amount. What separates their curves is
    direction, not size. An attack finds an upper bound of robust accuracy, never the value itself.

    Assumes: Small changes of a pixel do not change the digit. Adversarial training has the same
    number of steps as plain training; each of them costs about twice as much.

    >>> [trial["arm"] for trial in AdversarialExamples(seeds=2).trials()[:2]]
    ['plain', 'adversarial training']
    """

    method = ("S4",)
    cites = ("goodfellow2015explaining", "madry2018towards")
    reproduces = ("stability: Adversarial examples",)

    seeds: int = option(5, help="paired runs, each with images of its own", low=2)
    samples: int = option(4000, help="training images", low=50)
    attacked: int = option(500, help="test images under attack", low=10)
    epochs: int = option(10, help="passes over the training images", low=1)
    radii: tuple[float, ...] = option(
        (0.02, 0.05, 0.1, 0.2, 0.3), help="sizes ε of the change", low=0
    )
    judged: float = option(0.1, help="the size at which the claims are judged", above=0)
    strength: float = option(0.4, help="ε of adversarial training, in standard deviations", low=0)

    def prepare(self) -> None:
        """See that MNIST is here."""
        mnist(10, 10)

    def trials(self) -> Sequence[Trial]:
        """Both arms with every seed."""
        return [
            Trial(parameters={"arm": arm}, seed=seed)
            for seed in range(self.seeds)
            for arm in self._arms()
        ]

    def _arms(self) -> dict[str, list[Remedy]]:
        return {
            "plain": [],
            "adversarial training": [AdversarialTraining(epsilon=self.strength)],
        }

    def run(self, trial: Trial) -> Record:
        """Train one network and attack it at all sizes."""
        data = mnist(self.samples, self.attacked, trial.seed)
        recipe = Recipe(
            model=LeNet5,
            train=data.train,
            test=data.test,
            epochs=self.epochs,
            batch_size=64,
            learning_rate=0.002,
        )
        remedies = self._arms()[trial["arm"]]
        subject = fit(recipe, remedies, seed=trial.seed, evaluate_every=0).subject()
        scene = scene_of(subject, "test", norm="linf", samples=self.attacked, seed=trial.seed)
        how = Settings(seed=trial.seed)
        inputs = attackable(subject, "train", torch.arange(min(LEARNED, len(subject.train))))
        surrogate = train_surrogate(scene.victim, inputs, seed=trial.seed)
        found = levels(scene, sorted({*self.radii, self.judged}), how, surrogate)
        record = {
            "clean": unattacked(scene, how).robust_accuracy,
            "radii": [level.epsilon for level in found],
            **{kind: [_accuracy(level, kind) for level in found] for kind in KINDS},
        }
        if trial.seed == 0:
            record["figure"] = _figure(scene, self._level(found), how)
        return record

    def _level(self, found: Sequence[Level]) -> Level:
        return min(found, key=lambda level: abs(level.epsilon - self.judged))

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per arm, kind of change and size."""
        runs: dict[str, list[Record]] = {arm: [] for arm in self._arms()}
        for trial, record in records:
            runs[trial["arm"]].append(record)
        return Table(
            title=f"Accuracy of LeNet-5 under small changes, {self.samples} training images",
            columns=("arm", "change", "ε", "accuracy", "low", "high"),
            rows=tuple(row for arm, own in runs.items() for row in _rows(arm, own)),
            notes=NOTES,
            claims=self._claims(runs),
            charts=(
                *(_curves(arm, own) for arm, own in runs.items() if own),
                *(
                    _gallery(arm, own[0]["figure"], self.judged)
                    for arm, own in runs.items()
                    if own and own[0].get("figure")
                ),
            ),
        )

    def _claims(self, runs: Runs) -> tuple[Claim, ...]:
        """Judge the claims at one size, by paired differences over seeds."""
        plain, hard = runs.values()
        if len(plain) < 2 or len(plain) != len(hard):
            return ()
        clean = [run["clean"] for run in plain]
        noise, gradient, transfer = (
            self._at(plain, kind) for kind in ("noise", "gradient", "transfer")
        )
        tests = [
            paired(gradient, noise),
            paired(transfer, noise),
            paired(self._at(hard, "gradient"), gradient),
        ]
        p_values = holm([test.p_value for test in tests])
        loss = paired(clean, noise)
        at = f"at ε = {self.judged:g}"
        return (
            Claim.shown(
                f"Networks are robust to random noise: it costs {_points(loss)} {at}.",
                loss.interval.high < 0.05,
            ),
            Claim.shown(
                f"They are fragile to noise that follows the gradient: PGD costs "
                f"{_points(tests[0], -1)} more {at}.",
                tests[0].difference < 0 and p_values[0] < ALPHA,
            ),
            Claim.shown(
                f"Attacks work without the weights: those on a surrogate cost {_points(tests[1], -1)} "
                f"more than noise {at}.",
                tests[1].difference < 0 and p_values[1] < ALPHA,
            ),
            Claim.shown(
                f"Training on attacked images helps: accuracy under PGD is {_points(tests[2])} higher "
                f"{at}.",
                tests[2].difference > 0 and p_values[2] < ALPHA,
            ),
        )

    def _at(self, runs: Sequence[Record], kind: str) -> list[float]:
        place = min(
            range(len(runs[0]["radii"])), key=lambda k: abs(runs[0]["radii"][k] - self.judged)
        )
        return [run[kind][place] for run in runs]

    def tiny(self) -> Self:
        """Two seeds, few images, one epoch and one size."""
        return self.replace(seeds=2, samples=50, attacked=10, epochs=1, radii=(0.1,), judged=0.1)


def _accuracy(level: Level, kind: str) -> float:
    found = {"noise": level.noise, "transfer": level.black_box, "gradient": level.found}[kind]
    assert found is not None
    return found.robust_accuracy


def _points(test: Paired, sign: int = 1) -> str:
    ends = sorted(sign * 100 * end for end in (test.interval.low, test.interval.high))
    return f"{sign * 100 * test.difference:.1f} points [{ends[0]:.1f}, {ends[1]:.1f}]"


def _rows(arm: str, runs: Sequence[Record]) -> list[tuple[Any, ...]]:
    if not runs:
        return []
    rows: list[tuple[Any, ...]] = [(arm, "none", 0.0, *_mean([run["clean"] for run in runs]))]
    for kind, words in KINDS.items():
        for place, radius in enumerate(runs[0]["radii"]):
            rows.append((arm, words, radius, *_mean([run[kind][place] for run in runs])))
    return rows


def _mean(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None, None
    ends = mean_interval(values)
    return mean, max(ends.low, 0.0), min(ends.high, 1.0)


def _curves(arm: str, runs: Sequence[Record]) -> Chart:
    series = []
    for kind, words in KINDS.items():
        columns = [[run["clean"], *run[kind]] for run in runs]
        means = [_mean(row) for row in zip(*columns, strict=True)]
        series.append(
            Series(
                name=words,
                x=[0.0, *runs[0]["radii"]],
                y=[mean for mean, _, _ in means],
                low=[low for _, low, _ in means] if len(runs) > 1 else [],
                high=[high for _, _, high in means] if len(runs) > 1 else [],
            )
        )
    return Line(
        title=f"Accuracy over the size of the change: {arm}",
        x_label="largest change of a pixel, ε",
        y_label="accuracy",
        percent=True,
        series=series,
        caption="Bands are 95 % intervals over seeds.",
    )


def _figure(scene: Scene, level: Level, how: Settings) -> list[dict[str, Any]]:
    """Keep the first images that were right and that PGD broke, with noise and with the change."""
    clean = unattacked(scene, how).outputs.argmax(1)
    chosen = (level.found.broken & (clean == scene.targets)).nonzero().flatten()[:SHOWN]
    before, noisy, after = scene.inputs[chosen], level.noise, level.found
    points = torch.cat([before, noisy.points[chosen], after.points[chosen]])
    answers = torch.cat([clean[chosen], *(one.outputs[chosen].argmax(1) for one in (noisy, after))])
    words = [word for word in ("original", "random noise", "attack") for _ in chosen]
    return [
        {"image": image, "caption": f"{word}: {answer}"}
        for image, word, answer in zip(as_images(points), words, answers.tolist(), strict=True)
    ]


def _gallery(arm: str, figure: Sequence[Mapping[str, str]], epsilon: float) -> Chart:
    return Gallery(
        title=f"Images and predictions: {arm}",
        samples=[Sample(image=row["image"], caption=row["caption"]) for row in figure],
        caption=f"Originals, random noise and attacks with ε = {epsilon:g}, of the first seed.",
    )
