"""Attacks next to foolbox, torchattacks, ART and the leanest loop in torch.

A small convolutional net on MNIST is attacked by FGSM and by PGD in L∞ from a fixed start, all sides
with the same radius, step and number of steps, and the same samples at once. The sides take turns in
several rounds, every round in another order; a ratio is the median over the rounds of CPU seconds over
mindgap's in the same round, with its quartiles. Loops should have at least 1/1.05, and packages 1. One
thread. Every side ends with the pass that tells which predictions broke: torchattacks and ART leave it to
their user.
"All steps" returns the last point, as the peers do; "as shipped" stops with samples that are broken.
Besides, mindgap hands images over with their channels last in memory, which speeds up convolutions and
pooling; "leanest loop, channels last" is the loop with the same trick.
Adversarial predictions are compared sample by sample. The last rows hide the gradient behind a softmax of
100 times the logits.

    python benchmarks/attacks.py --json attacks.json

The peers need an environment of their own, because they pin other packages:

    pip install --no-deps foolbox==3.3.4 eagerpy torchattacks==3.5.1 adversarial-robustness-toolbox==1.20.1 \
        GitPython gitdb smmap six
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import timing
import torch
from torch import Tensor, nn

from mindgap import Subject, attack, data
from mindgap.ops.attacks.descent import fgsm, pgd
from mindgap.ops.attacks.threat import Threat
from mindgap.ops.attacks.victim import Victim

EPSILON, STEPS, STEP = 0.1, 20, 0.0125
Side = Callable[[], Tensor]


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def trained(x: Tensor, y: Tensor) -> nn.Module:
    torch.manual_seed(0)
    model = convolutional()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(3):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


class Saturated(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(100 * self.model(x), 1)


class ChannelsLast(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.view(len(x), 28, 28, 1).movedim(-1, 1))


def leanest(model: nn.Module, x: Tensor, y: Tensor, steps: int, step: float) -> Tensor:
    low, high, point = (x - EPSILON).clamp(0), (x + EPSILON).clamp(max=1), x
    for _ in range(steps):
        point = point.detach().requires_grad_()
        loss = nn.functional.cross_entropy(model(point), y, reduction="sum")
        (slope,) = torch.autograd.grad(loss, point)
        with torch.no_grad():
            point = torch.clamp(point + step * slope.sign(), low, high)
    return told(model, point)


def told(model: nn.Module, points: Tensor) -> Tensor:
    with torch.no_grad():
        model(points).argmax(1)
    return points


def sides(model: nn.Module, x: Tensor, y: Tensor, steps: int, step: float) -> dict[str, Side]:
    victim, threat = Victim.of(model), Threat(epsilon=EPSILON, low=0.0, high=1.0)
    plan: dict[str, Any] = {"steps": steps, "step": step / EPSILON, "random_start": False}
    own: dict[str, Side] = {
        "mindgap, all steps": lambda: (
            fgsm(victim, x, y, threat).points if steps == 1
            else pgd(victim, x, y, threat, keep="last", **plan).points
        ),
        "mindgap, as shipped": lambda: pgd(victim, x, y, threat, **plan).points,
        "leanest loop": lambda: leanest(model, x, y, steps, step),
        "leanest loop, channels last": lambda: leanest(ChannelsLast(model), x, y, steps, step),
    }  # fmt: skip
    return own | peers(model, x, y, steps, step)


def peers(model: nn.Module, x: Tensor, y: Tensor, steps: int, step: float) -> dict[str, Side]:
    """The peers that are installed; the others are named and left out."""
    found = dict[str, Side]()
    for name, make in (("foolbox", fool), ("torchattacks", torch_attacks), ("ART", art)):
        try:
            found[name] = make(model, x, y, steps, step)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    return found


def fool(model: nn.Module, x: Tensor, y: Tensor, steps: int, step: float) -> Side:
    import foolbox

    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    plan = foolbox.attacks.LinfPGD(steps=steps, abs_stepsize=step, random_start=False)
    return lambda: plan(wrapped, x, y, epsilons=EPSILON)[1]


def torch_attacks(model: nn.Module, x: Tensor, y: Tensor, steps: int, step: float) -> Side:
    import torchattacks

    plan = torchattacks.PGD(model, EPSILON, step, steps, random_start=False)
    return lambda: told(model, plan(x, y))


def art(model: nn.Module, x: Tensor, y: Tensor, steps: int, step: float) -> Side:
    from art.attacks.evasion import ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    wrapped = PyTorchClassifier(
        model, nn.CrossEntropyLoss(), (1, 28, 28), 10, clip_values=(0, 1), device_type="cpu"
    )
    plan = ProjectedGradientDescentPyTorch(
        wrapped, eps=EPSILON, eps_step=step, max_iter=steps, batch_size=512, verbose=False
    )
    return lambda: told(model, torch.from_numpy(plan.generate(x.numpy(), y.numpy())))


def compared(
    name: str, made: dict[str, Side], model: nn.Module, y: Tensor, rounds: int
) -> list[dict[str, Any]]:
    points, seconds = dict[str, Tensor](), {side: list[float]() for side in made}
    order = random.Random(0)
    for _ in range(rounds):
        for side in order.sample(list(made), len(made)):
            points[side], cpu, _ = timing.timed(made[side])
            seconds[side].append(cpu)
    own = "mindgap, all steps"
    with torch.no_grad():
        answers = {side: model(point).argmax(1) for side, point in points.items()}
    rows = list[dict[str, Any]]()
    for side in made:
        ratios = [theirs / ours for theirs, ours in zip(seconds[side], seconds[own], strict=True)]
        rows.append(
            {
                "name": f"{name}: {side}",
                "cpu_seconds": statistics.median(seconds[side]),
                "cpu_ratio": statistics.median(ratios),
                "ratio_quartiles": statistics.quantiles(ratios, n=4)[::2],
                **({} if side.startswith("mindgap") else {"wanted_ratio": wanted(side)}),
                "rounds": rounds,
                "robust_accuracy": float((answers[side] == y).double().mean()),
                "same_predictions": float((answers[side] == answers[own]).double().mean()),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def wanted(side: str) -> float:
    """At most 1.05 times as long as a loop of one's own, and not longer than a package."""
    return 1 / 1.05 if side.startswith("leanest") else 1.0


def masked(
    model: nn.Module, train: tuple[Tensor, Tensor], x: Tensor, y: Tensor
) -> list[dict[str, Any]]:
    hidden = Saturated(model).eval()
    truth = pgd(
        Victim.of(model), x, y, Threat(epsilon=EPSILON, low=0.0, high=1.0), random_start=False
    )
    rows = [{"name": "the same net without the softmax", "robust_accuracy": truth.robust_accuracy}]
    for side, run in peers(hidden, x, y, STEPS, STEP).items():
        points = run()  # outside of no_grad, because peers set no mode of their own
        with torch.no_grad():
            held = float((hidden(points).argmax(1) == y).double().mean())
        rows.append({"name": f"softmax of 100 times the logits: {side}", "robust_accuracy": held})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = attack(Subject(hidden, "cross_entropy", train, (x, y)), epsilons=[EPSILON])
    rows.append({"name": "softmax of 100 times the logits: mindgap", "robust_accuracy": found.robust_accuracy,
                 "signs": [sign.name for sign in found.signs if sign.found]})  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", metavar="PATH", help="write the figures here")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5, help="of PGD; FGSM has 20 times as many")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found = data.load("mnist")
    (x, y), (t, z) = found.train, found.test
    x, y, t, z = (
        x[:4000].float(),
        y[:4000].long(),
        t[: arguments.samples].float(),
        z[: arguments.samples].long(),
    )
    with timing.alone():
        model = trained(x, y)
        rows = [
            row
            for name, steps, step in (("FGSM", 1, EPSILON), ("PGD", STEPS, STEP))
            for row in compared(
                name, sides(model, t, z, steps, step), model, z, arguments.rounds * 20 // steps
            )
        ]
        rows += masked(model, (x, y), t, z)
    for row in rows[-5:]:
        print(json.dumps(row))
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
