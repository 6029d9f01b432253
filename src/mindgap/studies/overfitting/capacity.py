"""Trees, polynomials and networks over capacity: bias, variance, noise, steps and cost."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch

from mindgap.core import (
    Chart,
    Claim,
    Line,
    Recipe,
    Record,
    Series,
    Study,
    Table,
    Trial,
    generator,
    option,
)
from mindgap.core.chart.parts import Scale
from mindgap.core.stats import mean_interval
from mindgap.data.generators import heteroscedastic_mean, heteroscedastic_std
from mindgap.nets import MLP
from mindgap.studies.overfitting.predictors import Values, polynomial, polynomial_parts, split, tree
from mindgap.training.ensemble import ensemble

NOISE = 0.5
PLACES = 400  # where predictions are compared with the truth
SHOWN = 60  # places of the figure
FRESH = 1000  # noisy test samples per training set
FAMILIES = ("tree depth", "polynomial degree", "MLP width", "MLP depth")
NETWORKS = {
    "MLP width": "Adding hidden units does not lead to more over-fitting.",
    "MLP depth": "Adding layers does not lead to much more over-fitting.",
}
NOTES = (
    "y = sin(πx) + (3 + 2x)/5 · ε/2 at evenly spaced x; the noise is drawn anew for every training "
    "set. Bias², variance and noise are averages over 400 places; the test error is that of noisy "
    "samples which none of the three has seen, with a 95 % interval over training sets.",
    "'Closed form' is the expected test error of a polynomial from its hat matrix.",
    "MLPs are ReLU networks trained by Adam (rate 0.01, all samples in a batch) for a fixed number "
    "of steps. 'Steps' is the median number until the training loss is at the noise variance; "
    "'cost per pass' are the multiply–adds of forward and backward over all samples.",
)


class OverfittingCapacity(Study):
    r"""Split the error of trees, polynomials and networks into bias², variance and noise.

    Formula: $E\,(y - \hat f(x))^2 = (E \hat f(x) - f^*(x))^2 + \mathrm{Var}\,\hat f(x) +
    \sigma^2(x)$

    Reading: Trees and polynomials trade bias for variance: their test error has a minimum, then
    grows. The slides say that networks do not over-fit more with more units or layers, and need
    fewer, more expensive steps. The notes say what was seen.

    Assumes: One input, known truth and noise, evenly spaced inputs. The variance of networks
    includes that of their initial weights.

    >>> [trial["family"] for trial in OverfittingCapacity(trees=(1,), degrees=(3,)).trials()[:2]]
    ['tree depth', 'polynomial degree']
    """

    method = ("E5",)
    cites = ("geman1992neural", "neal2018modern")
    reproduces = ("expressivity: Capacity",)

    trees: tuple[int, ...] = option((0, 1, 2, 3, 4, 5, 6), help="depths of trees", low=0)
    degrees: tuple[int, ...] = option(
        (0, 1, 2, 3, 5, 7, 9, 12, 15), help="degrees of polynomials", low=0
    )
    widths: tuple[int, ...] = option(
        (1, 2, 4, 8, 16, 32, 64, 128, 256), help="widths of networks with one hidden layer", low=1
    )
    layers: tuple[int, ...] = option((1, 2, 3, 4), help="hidden layers of width 32", low=1)
    samples: int = option(50, help="training samples", low=4)
    draws: int = option(30, help="training sets of every network", low=3)
    more: int = option(400, help="training sets of every tree and polynomial", low=3)
    steps: int = option(2000, help="steps of a network", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial per predictor."""
        lists = zip(FAMILIES, (self.trees, self.degrees, self.widths, self.layers), strict=True)
        return [
            Trial(parameters={"family": family, "capacity": capacity})
            for family, capacities in lists
            for capacity in capacities
        ]

    def run(self, trial: Trial) -> Record:
        """Train on all draws and split the error."""
        world = World(self.samples, self._draws(trial["family"]))
        if trial["family"].startswith("MLP"):
            return self._networks(trial, world)
        fit = tree if trial["family"] == "tree depth" else polynomial
        made = [fit(world.inputs, targets, trial["capacity"]) for targets in world.targets]
        found = world.judged(
            np.stack([np.concatenate([one(x) for x in world.places]) for one in made])
        )
        return found | (world.closed_form(trial["capacity"]) if fit is polynomial else {})

    def _draws(self, family: str) -> int:
        return self.draws if family.startswith("MLP") else self.more

    def _networks(self, trial: Trial, world: "World") -> dict[str, Any]:
        capacity = int(trial["capacity"])
        hidden = (32,) * capacity if trial["family"] == "MLP depth" else (capacity,)
        places = torch.tensor(np.concatenate(world.places), dtype=torch.float32)[:, None]
        rows, steps = list[Values](), list[float]()
        for seed, targets in enumerate(world.targets):
            recipe = Recipe(
                model=lambda: MLP((1, *hidden, 1)),
                train=tuple(
                    torch.tensor(part, dtype=torch.float32)[:, None]
                    for part in (world.inputs, targets)
                ),
                loss="mse",
                epochs=self.steps,
                batch_size=self.samples,
                learning_rate=0.01,
            )
            (member,) = ensemble(recipe, [seed])
            with torch.no_grad():
                rows.append(member.model(places)[:, 0].double().numpy())
            losses = [row["running_loss"] for row in member.history]
            near = (k for k, loss in enumerate(losses, 1) if loss <= 31 / 75 * NOISE**2)
            steps.append(next(near, float(self.steps)))
        products = sum(a * b for a, b in pairwise((1, *hidden, 1)))
        cost = 3 * self.samples * products  # backward costs about twice as much as forward
        return world.judged(np.stack(rows)) | {"steps": float(np.median(steps)), "cost": cost}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per predictor, and a chart per family."""
        return Table(
            title=f"Bias, variance and noise over capacity, {self.samples} samples",
            columns=(
                *("family", "capacity", "training error", "test error", "low", "high"),
                *("bias²", "variance", "noise", "sum", "sum in the interval", "closed form"),
                *("steps", "cost per pass"),
            ),
            rows=tuple(_row(trial, record) for trial, record in records),
            notes=(*_judgments(records), *NOTES),
            claims=_claims([_row(trial, record) for trial, record in records]),
            charts=tuple(
                chart
                for family in FAMILIES
                for chart in _charts(family, [(t, r) for t, r in records if t["family"] == family])
            ),
        )

    def tiny(self) -> Self:
        """Use two trees and polynomials, one network each, and few steps."""
        few = {"trees": (1, 3), "degrees": (1, 3), "widths": (4,), "layers": (2,)}
        return self.replace(**few, samples=12, draws=3, more=5, steps=10)


class World:
    """Evenly spaced inputs with many draws of the noise, and places to judge predictions.

    Args:
        samples: Training samples.
        draws: Training sets.
    """

    def __init__(self, samples: int, draws: int) -> None:
        random = generator(0)
        inputs = (torch.arange(samples, dtype=torch.float64) + 0.5) * 2 / samples - 1
        # Evenly spaced as well: random places would add an error that all training sets share.
        fresh = (torch.arange(FRESH, dtype=torch.float64) + 0.5) * 2 / FRESH - 1
        grid = (torch.arange(PLACES, dtype=torch.float64) + 0.5) * 2 / PLACES - 1
        self.inputs: Values = inputs.numpy()
        self.targets = self._noisy(inputs, draws, random)
        self.places: tuple[Values, ...] = (self.inputs, grid.numpy(), fresh.numpy())
        self.truth: Values = heteroscedastic_mean(grid).numpy()
        self.noise: Values = heteroscedastic_std(grid, NOISE).square().numpy()
        self.fresh = self._noisy(fresh, draws, random)

    def _noisy(self, inputs: torch.Tensor, draws: int, random: torch.Generator) -> Values:
        epsilon = torch.randn(draws, len(inputs), generator=random, dtype=torch.float64)
        found: Values = (
            heteroscedastic_mean(inputs) + heteroscedastic_std(inputs, NOISE) * epsilon
        ).numpy()
        return found

    def judged(self, predictions: Values) -> dict[str, Any]:
        """Judge predictions at the inputs, the grid and the fresh places, one row per draw."""
        ends = np.cumsum([len(part) for part in self.places])[:-1]
        own, grid, fresh = np.split(predictions, ends, axis=1)
        parts = split(grid, self.truth, self.noise)
        every = slice(None, None, -(-PLACES // SHOWN))
        return {
            "train": float(((own - self.targets) ** 2).mean()),
            "test": ((fresh - self.fresh) ** 2).mean(1).tolist(),
            "bias": parts.bias,
            "variance": parts.variance,
            "noise": parts.noise,
            "mean": grid.mean(0)[every].tolist(),
            "spread": grid.std(0, ddof=1)[every].tolist(),
        }

    def closed_form(self, degree: int) -> dict[str, float]:
        """Compute the expected test error of a polynomial."""
        inputs = torch.tensor(self.inputs)
        means = heteroscedastic_mean(inputs).numpy(), self.truth
        variances = heteroscedastic_std(inputs, NOISE).square().numpy(), self.noise
        found = polynomial_parts(self.inputs, means, variances, self.places[1], degree)
        return {"closed_form": found.total}


def _row(trial: Trial, record: Record) -> tuple[Any, ...]:
    interval = mean_interval(record["test"])
    total = record["bias"] + record["variance"] + record["noise"]
    return (
        *(trial["family"], trial["capacity"], record["train"], float(np.mean(record["test"]))),
        *(interval.low, interval.high, record["bias"], record["variance"], record["noise"], total),
        "yes" if interval.low <= total <= interval.high else "no",
        *(record.get(name) for name in ("closed_form", "steps", "cost")),
    )


def _judgments(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    rows = [_row(trial, record) for trial, record in records]
    inside = sum(row[10] == "yes" for row in rows)
    told = [
        f"Bias² + variance + noise is within the 95 % interval of the test error in {inside} of "
        f"{len(rows)} cases. Both use the same training sets, so they agree more closely than that."
    ]
    for family in FAMILIES:
        own = [row for row in rows if row[0] == family]
        if len(own) < 2:
            continue
        best, last = min(own, key=lambda row: float(row[3])), own[-1]
        worse = _over_fits(own)
        told.append(
            f"{family}: lowest test error {best[3]:.4f} at {best[1]}, {last[3]:.4f} at {last[1]}: "
            f"{'over-fits with capacity' if worse else 'no over-fitting with capacity shown'}."
        )
    return told


def _over_fits(own: Sequence[tuple[Any, ...]]) -> bool:
    """Whether the largest predictor is worse than the best one, with intervals apart."""
    best = min(own, key=lambda row: float(row[3]))
    return bool(own[-1][4] > best[5])


def _claims(rows: Sequence[tuple[Any, ...]]) -> tuple[Claim, ...]:
    families = {family: [row for row in rows if row[0] == family] for family in FAMILIES}
    several = {family: own for family, own in families.items() if len(own) > 1}
    told = [
        # That networks do not over-fit cannot be shown, only that they are not seen to.
        Claim(NETWORKS[family], "no" if _over_fits(own) else "direction")
        if family in NETWORKS
        else Claim.shown(f"Test error grows with a large {family}.", _over_fits(own))
        for family, own in several.items()
    ]
    if wide := several.get("MLP width"):
        first, last = wide[0], wide[-1]
        told.append(Claim.shown("Wider networks need fewer steps.", last[12] < first[12]))
        told.append(Claim.shown("Their steps are more expensive.", last[13] > first[13]))
    return tuple(told)


def _charts(family: str, found: Sequence[tuple[Trial, Mapping[str, Any]]]) -> list[Chart]:
    if not found:
        return []
    x = [trial["capacity"] for trial, _ in found]
    spread = [mean_interval(record["test"]) for _, record in found]
    scale: Scale = "log" if family == "MLP width" else "linear"
    parts = [
        Series(name=label, x=x, y=[record[key] for _, record in found])
        for key, label in (("train", "training error"), ("bias", "bias²"), ("variance", "variance"))
    ]
    test = Series(
        name="test error",
        x=x,
        y=[float(np.mean(record["test"])) for _, record in found],
        low=[row.low for row in spread],
        high=[row.high for row in spread],
    )
    errors = Line(
        title=f"Error by {family}",
        x_label=family,
        y_label="squared error (cut at 1)",
        x_scale=scale,
        series=[_cut(row) for row in (test, *parts)],
        wide=False,
    )
    return [errors, _fits(family, found)]


def _cut(row: Series) -> Series:
    def below(values: Sequence[Any]) -> list[Any]:
        return [None if value is None or value > 1 else value for value in values]

    return Series(name=row.name, x=row.x, y=below(row.y), low=below(row.low), high=below(row.high))


def _fits(family: str, found: Sequence[tuple[Trial, Mapping[str, Any]]]) -> Line:
    """Draw the mean prediction of the smallest, the best and the largest predictor."""
    best = min(range(len(found)), key=lambda k: float(np.mean(found[k][1]["test"])))
    grid = ((np.arange(PLACES) + 0.5) * 2 / PLACES - 1)[:: -(-PLACES // SHOWN)].tolist()
    series = [
        Series(
            name=f"{family} {found[k][0]['capacity']}",
            x=grid,
            y=found[k][1]["mean"],
            low=[m - s for m, s in zip(found[k][1]["mean"], found[k][1]["spread"], strict=True)],
            high=[m + s for m, s in zip(found[k][1]["mean"], found[k][1]["spread"], strict=True)],
            mode="lines",
        )
        for k in sorted({0, best, len(found) - 1})
    ]
    truth = heteroscedastic_mean(torch.tensor(grid)).tolist()
    return Line(
        title=f"Mean prediction ± standard deviation by {family}",
        x_label="x",
        y_label="prediction",
        series=[Series(name="truth", x=grid, y=truth, mode="lines"), *series],
        wide=False,
    )
