"""Plain and residual networks of 20 and 56 layers: Hessian spectrum, gradients, steps to a loss."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import nn

from mindgap.core import (
    Chart,
    Claim,
    Line,
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
from mindgap.data import digits
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import hessian_products
from mindgap.ops.curvature.spectrum import density, top_eigenpairs
from mindgap.studies.conditioning.normalization import with_statistics
from mindgap.studies.conditioning.steps import Problem, compared, spoken, tuned
from mindgap.studies.landscapes.skip_connections import network

ARMS = {True: "residual", False: "plain"}
NOTES = (
    "Published claims (lecture slides; He et al., 2016): the gradients of the first layers of a deep "
    "plain network are small, and skip connections repair the conditioning, so that 56 layers train "
    "as easily as 20.",
    "λ_max and λ_min are the ends of the spectrum of the Hessian at the initial weights, with batch "
    "normalization at the statistics of the training data; 'spread' is λ_max over the root mean "
    "squared eigenvalue. 'First/last' is the ratio of the root mean squared gradient "
    "of the first convolution to that of the last.",
    "Steps are those of SGD with momentum at the best of several learning rates, chosen on other "
    "seeds. 'Ratio' is plain over residual at the same depth, paired by seed; runs at the limit "
    "count with the limit.",
)

ASKED = {"steps": "fewer steps", "largest": "smaller λ_max"}
Found = Mapping[tuple[int, bool], Record]


class ConditioningDepth(Study):
    r"""Compare plain and residual networks of 20 and 56 layers by curvature and speed.

    Formula: $x_{l+1} = \mathrm{relu}(F_l(x_l) + x_l)$ against $x_{l+1} = \mathrm{relu}(F_l(x_l))$

    Reading: Skip connections pass gradients by every block. Where they help, the spectrum at the
    start is narrower and the loss falls in fewer steps, the more so the deeper the network.

    Assumes: Networks of He et al. with batch normalization and few channels, on the 8×8 digits: a
    small problem, on which only the direction of the claims can be judged.

    >>> len(ConditioningDepth().trials())
    4
    """

    method = ("E4",)
    cites = ("he2016deep", "ioffe2015batch")
    reproduces = ("expressivity: Deeper ConvNets",)

    depths: tuple[int, ...] = option((20, 56), help="weighted layers, 6n + 2 each", low=8)
    seeds: int = option(5, help="fresh seeds per network", low=2)
    search: int = option(1, help="seeds on which the learning rate is chosen", low=1)
    rates: int = option(5, help="learning rates per network, a factor of 3.16 apart", low=1)
    width: int = option(4, help="channels of the first stage; 16 in the paper", low=1)
    most_steps: int = option(200, help="the most steps", low=10)
    target: float = option(0.5, help="the training loss to reach", above=0)
    samples: int = option(128, help="training samples of the Hessian", low=2)

    def trials(self) -> Sequence[Trial]:
        """One trial per depth, with and without skips."""
        return [
            Trial(parameters={"depth": depth, "skips": skips})
            for depth in self.depths
            for skips in ARMS
        ]

    def run(self, trial: Trial) -> Record:
        """Measure curvature and gradients at the start, then count steps with fresh seeds."""
        data = digits()
        images = data.inputs.view(-1, 1, 8, 8).repeat(1, 3, 1, 1)
        problem = Problem(
            model=lambda: network(trial["depth"], self.width, trial["skips"]),
            train=(images, data.targets),
            batch_size=64,
            target=self.target,
            limit=self.most_steps,
        )
        rate, at_end = tuned(problem, "momentum", rates=self.rates, search=self.search)
        steps = [problem.learn("momentum", rate, seed).steps for seed in range(self.seeds)]
        starts = [self._start(problem, seed) for seed in range(self.seeds)]
        return {
            "rate": rate,
            "at_end": at_end,
            "steps": steps,
            "density": starts[0].pop("density"),
            **{
                name: [start[name] for start in starts]
                for name in ("largest", "smallest", "spread", "gradients")
            },
        }

    def _start(self, problem: Problem, seed: int) -> dict[str, Any]:
        with seeded(seed):
            model = with_statistics(problem.model(), problem.train)
        images, labels = (piece[: self.samples] for piece in problem.train)
        # In single precision, 56 layers without skips lose three digits.
        flat = FlatLoss(Subject(model.double(), "cross_entropy", (images.double(), labels)))
        matrix = hessian_products(flat)
        ends = top_eigenpairs(matrix, 1, smallest=1, tolerance=1e-2)
        found = density(matrix, probes=2, steps=30, seed=seed)
        places, heights = found.curve(120)
        values = ends.values.tolist()
        return {
            "largest": max(values),
            "smallest": min(values),
            "spread": max(values) / math.sqrt(found.moment(2)),
            "gradients": _first_over_last(model, flat),
            "density": [places.tolist(), heights.tolist()],
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per network, with plain against residual."""
        found = {(trial["depth"], trial["skips"]): record for trial, record in records}
        return Table(
            title="Plain and residual networks: curvature at the start and steps to a loss",
            columns=(
                *("depth", "network", "λ_max", "λ_min", "spread", "first/last", "learning rate"),
                *("steps", "ratio", "p"),
            ),
            rows=tuple(self._row(found, depth, skips) for depth, skips in found),
            notes=(*NOTES, *_judged(found)),
            charts=(_chart(found),),
            claims=_claims(found),
        )

    def _row(self, found: Found, depth: int, skips: bool) -> tuple[object, ...]:
        record = found[depth, skips]
        steps = {arm: found[depth, arm]["steps"] for arm in ARMS if (depth, arm) in found}
        return (
            *(depth, ARMS[skips]),
            *(_middle(record[name]) for name in ("largest", "smallest", "spread", "gradients")),
            *(record["rate"], spoken(record["steps"], self.most_steps)),
            *(compared(steps, True)[False] if not skips and len(steps) == 2 else ("—", "—")),
        )

    def tiny(self) -> Self:
        """Use two shallow networks, two seeds and ten steps."""
        return self.replace(depths=(8,), seeds=2, rates=1, width=1, most_steps=10, samples=2)


def _first_over_last(model: nn.Module, flat: FlatLoss) -> float:
    slopes = flat.weights(flat.gradient(flat.point))
    names = [f"{name}.weight" for name, one in model.named_modules() if isinstance(one, nn.Conv2d)]
    first, last = (float(slopes[names[k]].square().mean().sqrt()) for k in (0, -1))
    return first / last


def _middle(values: Sequence[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).median())


def _tests(found: Found) -> list[tuple[int, str, float, float]]:
    """Compare steps and curvature with and without skips: depth, quantity, difference, p-value."""
    depths = sorted({depth for depth, _ in found})
    asked = [(depth, name) for depth in depths for name in ASKED]
    tests = [paired(*(found[depth, arm][name] for arm in (True, False))) for depth, name in asked]
    corrected = holm([test.p_value for test in tests])
    return [
        (*one, test.difference, p) for one, test, p in zip(asked, tests, corrected, strict=True)
    ]


def _judged(found: Found) -> list[str]:
    """Say, for every depth, whether skips narrow the spectrum and save steps."""
    verdicts = [
        f"depth {depth}, {ASKED[name]}: {_verdict(difference, p)} (corrected p {p:.2g})"
        for depth, name, difference, p in _tests(found)
    ]
    return [f"With skips, at {'; '.join(verdicts)}."]


def _claims(found: Found) -> tuple[Claim, ...]:
    tests = _tests(found)
    depths = sorted({depth for depth, _ in found})
    small = [_middle(found[depth, False]["gradients"]) < 1 for depth in depths]
    counts = {
        name: sum(_verdict(d, p) == "yes" for _, own, d, p in tests if own == name)
        for name in ASKED
    }
    return (
        Claim.counted("Skip connections save steps.", counts["steps"], len(depths)),
        Claim.counted("Skip connections lower the curvature.", counts["largest"], len(depths)),
        Claim.counted(
            "In plain networks the first layer's gradient is below the last one's.",
            sum(small),
            len(depths),
        ),
    )


def _verdict(difference: float, p: float) -> str:
    if p >= 0.05:
        return "not shown"
    return "yes" if difference < 0 else "no, the opposite"


def _chart(found: Found) -> Chart:
    series = tuple(
        Series(
            name=f"{ARMS[skips]}, {depth} layers",
            x=tuple(record["density"][0]),
            y=tuple(max(value, 1e-12) for value in record["density"][1]),
            mode="lines",
        )
        for (depth, skips), record in found.items()
    )
    return Line(
        title="Density of the Hessian's eigenvalues at the start (first seed)",
        series=series,
        x_label="eigenvalue",
        y_label="density",
        y_scale="log",
    )
