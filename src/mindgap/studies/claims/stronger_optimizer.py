"""L-BFGS against SGD and Adam: lower training loss, and what test data say."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from mindgap.core import (
    Chart,
    Claim,
    Paired,
    Points,
    Record,
    Scatter,
    Study,
    Table,
    Trial,
    holm,
    mean_interval,
    option,
    paired,
    seeded,
)
from mindgap.nets.mlp import MLP
from mindgap.studies.conditioning.steps import Pair, Problem
from mindgap.studies.double_descent.features import CLASSES, noisy_digits

POOL = 1797  # all digits
SMALLEST = 1e-8  # of losses: smaller ones are rounding
# As many settings each: learning rates, and sizes of the memory of L-BFGS.
SETTINGS: Mapping[str, tuple[float, ...]] = {
    "SGD": (0.1, 0.3, 1.0),
    "Adam": (0.003, 0.01, 0.03),
    "L-BFGS": (5, 10, 20),
}
STRONG, CONTROLS = "L-BFGS", ("SGD", "Adam")
NOTES = (
    "Published claim (lecture slides): a stronger optimizer is not necessarily a stronger learner. So "
    "L-BFGS should have a lower training loss than SGD, and no lower test error.",
    "Every arm has three settings and takes the one with the lowest training loss: it is tuned as an "
    "optimizer. Test labels are clean, and nothing is chosen by them. Differences are paired by seed, "
    "with 95 % intervals that allow for the digits that draws share; p-values are corrected by Holm.",
)
Key = tuple[float, str, int]
Runs = Mapping[Key, Mapping[int, Record]]
Tests = Mapping[str, tuple[tuple[Paired, float], tuple[Paired, float]]]  # of loss and error


class StrongerOptimizer(Study):
    r"""Compare L-BFGS on all samples with SGD and Adam on batches, at two equal budgets.

    Formula: $\Delta_{train} = \hat L(w_{LBFGS}) - \hat L(w_{SGD}), \qquad \Delta_{test} =
    R(w_{LBFGS}) - R(w_{SGD})$

    Reading: The training loss says which optimizer is stronger, the test error which is the better
    learner. If the first is below zero and the second is not, the claim holds.

    Assumes: An MLP on few digits, without and with wrong labels. Gradients of single samples are
    counted. At equal CPU, L-BFGS takes more of them, because a large batch is cheaper per sample;
    the results list the CPU seconds of every trial.

    >>> len(StrongerOptimizer(seeds=2).trials())
    24
    """

    method = ("E4",)
    cites = ("bottou2008tradeoffs", "liu1989limited")
    reproduces = ("expressivity: Stronger optimizer",)

    seeds: int = option(
        10, help="draws of digits, wrong labels, initial weights and batches", low=2
    )
    samples: int = option(256, help="training digits", low=32, high=1000)
    noise: tuple[float, ...] = option((0.0, 0.2), help="shares of wrong labels", low=0, high=0.9)
    width: int = option(64, help="hidden units", low=1)
    passes: int = option(24, help="gradients per training digit", low=1)
    batch_size: int = option(32, help="batch size of SGD and Adam", low=1)
    factor: int = option(
        4, help="how many times as many gradients L-BFGS takes in the CPU time of SGD", low=2
    )

    def trials(self) -> Sequence[Trial]:
        """Every share of wrong labels, arm and budget with every seed."""
        return [
            Trial(parameters={"noise": noise, "arm": arm, "passes": passes}, seed=seed)
            for noise in self.noise
            for arm in SETTINGS
            for passes in (self.passes, self.factor * self.passes)
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train with all settings, and keep the one with the lowest training loss."""
        data = noisy_digits(self.samples, trial["noise"], trial.seed)
        train, test = (data.inputs, data.labels), (data.test_inputs, data.test_labels)
        runs = list[tuple[float, float, nn.Module, int]]()
        for setting in SETTINGS[trial["arm"]]:
            model, gradients = self._trained(trial, setting, train)
            loss = _scores(model, train)[0]
            runs.append((loss if math.isfinite(loss) else math.inf, setting, model, gradients))
        loss, setting, model, gradients = min(runs, key=lambda run: run[0])
        test_loss, test_error = _scores(model, test)
        return {
            "setting": setting,
            "gradients": gradients,
            "train_loss": loss,
            "train_error": _scores(model, train)[1],
            "test_loss": test_loss,
            "test_error": test_error,
        }

    def _trained(self, trial: Trial, setting: float, train: Pair) -> tuple[nn.Module, int]:
        """Train one network; return it with the number of gradients of samples."""

        def build() -> nn.Module:
            return MLP((train[0].shape[1], self.width, CLASSES))

        arm, samples = trial["arm"], len(train[1])
        if arm == STRONG:
            with seeded(trial.seed):
                model = build()
            return model, samples * quasi_newton(model, train, int(setting), trial["passes"])
        steps = trial["passes"] * samples // self.batch_size
        posed = Problem(
            model=build, train=train, batch_size=self.batch_size, target=0.0, limit=steps
        )
        model = posed.learn(arm, setting, trial.seed, whole=True).model
        return model, steps * self.batch_size

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per share of wrong labels, arm and budget."""
        runs: dict[Key, dict[int, Record]] = {}
        for trial, record in records:
            key = trial["noise"], trial["arm"], trial["passes"]
            runs.setdefault(key, {})[trial.seed] = record
        overlap = self.samples / (POOL - self.samples)
        tests = _compared(runs, self._asked(runs), overlap)
        return Table(
            title=f"A stronger optimizer on {self.samples} digits",
            columns=(
                *("wrong labels", "arm", "budget", "gradients", "training loss"),
                *("training error", "test loss", "test error", "95 % interval"),
            ),
            rows=tuple(_row(key, own, self.samples) for key, own in runs.items()),
            notes=(*NOTES, *_judged(tests)),
            claims=_claims(tests) if tests else (),
            charts=tuple(_chart(noise, runs) for noise in dict.fromkeys(key[0] for key in runs)),
        )

    def _asked(self, runs: Runs) -> dict[str, tuple[Key, Key]]:
        """Pairs of L-BFGS and a control: as many gradients, and more of them at equal CPU."""
        few, many = self.passes, self.factor * self.passes
        budgets = {
            f"{few} gradients per digit": (few, few),
            f"{many} gradients per digit": (many, many),
            f"equal CPU, {many} and {few} gradients per digit": (many, few),
        }
        pairs = {
            f"{100 * noise:g} % wrong labels, {words}, {STRONG} minus {control}": (
                (noise, STRONG, own),
                (noise, control, other),
            )
            for noise in self.noise
            for words, (own, other) in budgets.items()
            for control in CONTROLS
        }
        return {
            words: pair
            for words, pair in pairs.items()
            if set(runs.get(pair[0], ())) == set(runs.get(pair[1], ())) and pair[0] in runs
        }

    def tiny(self) -> Self:
        """Two seeds, one share of wrong labels and few gradients."""
        few = {"samples": 32, "width": 4, "passes": 2, "batch_size": 16, "factor": 2}
        return self.replace(**few, seeds=2, noise=(0.2,))


def quasi_newton(model: nn.Module, train: Pair, memory: int, evaluations: int) -> int:
    """Minimize the mean cross-entropy on all samples by L-BFGS with strong Wolfe line search.

    Args:
        model: Changed in place.
        train: Inputs and labels.
        memory: Pairs of steps and gradients that it keeps.
        evaluations: Gradients after which it stops; it ends the line search that it is in.

    Returns:
        How many gradients it took: fewer if it converged.
    """
    optimizer = torch.optim.LBFGS(
        model.parameters(),
        max_iter=evaluations,
        max_eval=evaluations,
        history_size=memory,
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )
    count = 0

    def closure() -> Tensor:
        nonlocal count
        count += 1
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(train[0]), train[1])
        loss.backward()
        return loss

    optimizer.step(closure)
    return count


@torch.no_grad()
def _scores(model: nn.Module, data: Pair) -> tuple[float, float]:
    """Return loss and error."""
    logits = model(data[0])
    wrong = (logits.argmax(1) != data[1]).double().mean()
    return float(nn.functional.cross_entropy(logits.double(), data[1])), float(wrong)


def _mean(own: Mapping[int, Record], name: str) -> float:
    return math.fsum(record[name] for record in own.values()) / len(own)


def _row(key: Key, own: Mapping[int, Record], samples: int) -> tuple[Any, ...]:
    names = ("train_loss", "train_error", "test_loss", "test_error")
    interval = mean_interval([record["test_error"] for record in own.values()])
    return (
        *(f"{100 * key[0]:g} %", key[1], key[2] * samples, _mean(own, "gradients")),
        *(_mean(own, name) for name in names),
        str(interval),
    )


def _compared(runs: Runs, asked: Mapping[str, tuple[Key, Key]], overlap: float) -> Tests:
    """Compare pairs of arms by the logarithm of the training loss and by the test error."""
    tests = [
        paired(*(_values(runs[key], name) for key in pair), overlap=overlap)
        for pair in asked.values()
        for name in ("train_loss", "test_error")
    ]
    found = list(zip(tests, holm([test.p_value for test in tests]), strict=True))
    return dict(zip(asked, zip(found[::2], found[1::2], strict=True), strict=True))


def _claims(tests: Tests) -> tuple[Claim, ...]:
    """Look for pairs where L-BFGS is stronger as an optimizer and not better as a learner."""
    stronger = [test for train, test in tests.values() if _lower(*train)]
    not_better = sum(not _lower(*test) for test in stronger)
    if not stronger:
        return (Claim("A stronger optimizer is not a stronger learner (none was stronger).", "no"),)
    text = "Where L-BFGS has the lower training loss, no lower test error is shown."
    return (Claim.counted(text, not_better, len(stronger)),)


def _lower(test: Paired, p_value: float) -> bool:
    return test.difference < 0 and p_value < 0.05


def _judged(tests: Tests) -> list[str]:
    told = []
    for words, ((train, p_train), (test, p_test)) in tests.items():
        told.append(
            f"{words}: log10 of the training loss {train.difference:+.2f} {train.interval} (p = "
            f"{p_train:.2g}), test error {100 * test.difference:+.2f} points "
            f"[{100 * test.interval.low:.2f}, {100 * test.interval.high:.2f}] (p = {p_test:.2g}): "
            f"{'stronger' if _lower(train, p_train) else 'not shown to be stronger'} as an optimizer, "
            f"{_learner(test.difference, p_test)} learner."
        )
    return told


def _learner(difference: float, p_value: float) -> str:
    if p_value >= 0.05:
        return "not shown to be a better"
    return "a better" if difference < 0 else "a worse"


def _values(own: Mapping[int, Record], name: str) -> list[float]:
    """Return one number per seed; losses span powers of ten, so their logarithm."""
    values = [own[seed][name] for seed in sorted(own)]
    return [math.log10(max(one, SMALLEST)) for one in values] if name == "train_loss" else values


def _chart(noise: float, runs: Runs) -> Chart:
    return Scatter(
        title=f"Training loss and test error, {100 * noise:g} % wrong labels",
        x_label="training loss",
        y_label="test error",
        x_scale="log",
        caption="One point per seed.",
        points=[
            Points(
                name=f"{arm}, {passes} per digit",
                x=[max(record["train_loss"], SMALLEST) for record in own.values()],
                y=[record["test_error"] for record in own.values()],
            )
            for (share, arm, passes), own in runs.items()
            if share == noise
        ],
    )
