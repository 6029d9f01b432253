"""Rescaling of ReLU layers after Dinh et al. 2017: how the Hessian, Ψ and bound (8) change."""

import math
from collections.abc import Mapping, Sequence
from typing import Self

import torch

from mindgap.core import (
    Claim,
    Line,
    Recipe,
    Record,
    Series,
    Study,
    Subject,
    Table,
    Trial,
    mean_interval,
    option,
)
from mindgap.data import digits
from mindgap.measures.curvature.pacgen import Pacgen
from mindgap.nets import MLP
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.hessian_diagonal import hessian_diagonal
from mindgap.ops.curvature.pacgen import radii
from mindgap.ops.curvature.products import hessian_products
from mindgap.ops.curvature.spectrum import top_eigenpairs
from mindgap.ops.models.rescaling import rescaled
from mindgap.ops.pac_bayes.hessian import lemma3
from mindgap.training.fit import fit

DELTA = 0.05
QUANTITIES = {
    "eigenvalue": "largest Hessian eigenvalue",
    "trace": "Hessian trace",
    "norm": "weight norm",
    "squared-gradient": "Ψ, squared gradients",
    "gauss-newton": "Ψ, true diagonal",
    "null": "Ψ, Hessian zero",
    "bound": "bound (8)",
}
HEADS = (
    *("factor α", "output moves", "λ max", "trace", "‖w‖"),
    *("Ψ, g²", "Ψ, true", "Ψ, H = 0", "bound (8)"),
)
SLOW = 2.5  # growth over the outer half of ln α by that over the inner: 1 for a logarithm
CLAIM = (
    "The paper claims (section 5, without numbers) that for a ReLU network 'the bound only changes "
    "approximately with a speed of logarithmic factor'. Dinh et al. (2017) show that rescaling "
    "makes the spectrum of the Hessian arbitrarily large."
)


class PacgenRescaling(Study):
    r"""Rescaling two ReLU layers by α and 1/α: same function, different sharpness.

    Formula: $f(x; \alpha W_1, \alpha b_1, W_2/\alpha) = f(x; W_1, b_1, W_2) \quad \text{for every }
    \alpha > 0$

    Reading: A quantity cannot explain generalization by itself if it changes without limit while
    the function stays the same. The largest eigenvalue and the trace of the Hessian grow with α²,
    or with 1/α² for α below 1. Ψ and bound (8) change by at most a few ln α per weight. That is
    much less, but not negligible: there are thousands of weights.

    Assumes: An MLP with ReLU trained on the 8×8 digits. Bound (8) is computed as in the paper's
    figures: with η = √(mn), τ = |w| + κ, the Hessian of the cross entropy and an estimated ρ. It is
    therefore not a valid bound here.

    >>> len(PacgenRescaling().trials())
    5
    """

    method = ("P8", "P6")
    cites = ("wang2018identifying", "dinh2017sharp")
    reproduces = ("pacgen: Section 5",)

    seeds: int = option(5, help="number of networks", low=2)
    width: int = option(32, help="hidden units", low=1)
    epochs: int = option(40, help="passes over the training data", low=1)
    decades: int = option(
        3, help="the factors α range from 10 ** -decades to 10 ** decades", low=1, high=6
    )

    def trials(self) -> Sequence[Trial]:
        """One network per trial."""
        return [Trial(parameters={}, seed=seed) for seed in range(self.seeds)]

    def run(self, trial: Trial) -> Record:
        """Train one network and measure it under every factor, in double precision."""
        data, width = digits(), self.width
        recipe = Recipe(
            model=lambda: MLP(widths=(64, width, 10), activation="relu"),
            train=(data.inputs, data.targets),
            epochs=self.epochs,
            learning_rate=0.003,
        )
        model = fit(recipe, seed=trial.seed).model.double()
        before = Subject(model, "cross_entropy", (data.inputs, data.targets)).outputs("train")
        rows = []
        for factor in self._factors():
            subject = Subject(rescaled(model, factor), "cross_entropy", (data.inputs, data.targets))
            moved = float((subject.outputs("train") - before).abs().max() / before.abs().max())
            rows.append({"factor": factor, "moved": moved, **_quantities(subject, trial.seed)})
        return {"rows": rows, "weights": sum(p.numel() for p in model.parameters())}

    def _factors(self) -> list[float]:
        return [10.0 ** (step / 2) for step in range(-2 * self.decades, 2 * self.decades + 1)]

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per factor, averaged over networks."""
        runs = [record["rows"] for _, record in records]
        rows = tuple(
            (
                f"{column[0]['factor']:.3g}",
                max(row["moved"] for row in column),
                *(_mean(column, name) for name in QUANTITIES),
            )
            for column in zip(*runs, strict=True)
        )
        return Table(
            title="Rescaling the layers of a ReLU network: same function, new values (8×8 digits)",
            columns=HEADS,
            rows=rows,
            notes=(
                CLAIM,
                f"Columns after 'output moves', in this order: {', '.join(QUANTITIES.values())}.",
                *_notes(runs, records[0][1]["weights"]),
            ),
            charts=(_growth(runs), _shift(runs, records[0][1]["weights"])),
            claims=_claims(runs),
        )

    def tiny(self) -> Self:
        """Use two networks of one hidden unit and five factors."""
        return self.replace(seeds=2, width=1, epochs=1, decades=1)


def _quantities(subject: Subject, seed: int) -> Record:
    flat = FlatLoss(subject)
    place = flat.point
    diagonal = hessian_diagonal(flat, place)
    newton = Pacgen(curvature="gauss-newton", seed=seed)(subject)
    assert newton.value is not None
    ends = top_eigenpairs(hessian_products(flat, place), smallest=1, tolerance=1e-6, seed=seed)
    return {
        "eigenvalue": float(ends.values[ends.values.abs().argmax()]),
        "trace": float(diagonal.sum()),
        "norm": newton.terms["weight_norm"],
        "squared-gradient": Pacgen(seed=seed)(subject).value,
        "gauss-newton": newton.value,
        "null": newton.terms["null"],
        "rho": newton.terms["rho"],
        "bound": _bound(subject, place, diagonal, newton.terms["rho"]),
    }


def _bound(subject: Subject, place: torch.Tensor, diagonal: torch.Tensor, rho: float) -> float:
    radius, samples = radii(place), len(subject.train)
    return lemma3(
        min(subject.mean_loss("train"), 1.0),
        place,
        diagonal,
        radius,
        place.abs() + radius,
        lipschitz=rho,
        eta=math.sqrt(len(place) * samples),
        samples=samples,
        delta=DELTA,
    ).bound


def _mean(column: Sequence[Mapping[str, float]], name: str) -> float:
    return math.fsum(row[name] for row in column) / len(column)


def _claims(runs: Sequence[Sequence[Mapping[str, float]]]) -> tuple[Claim, ...]:
    """Compare growth over the outer half of the factors, in logarithm, with that over the inner."""

    def halves(run: Sequence[Mapping[str, float]], name: str) -> tuple[float, float]:
        values = [row[name] for row in run[len(run) // 2 :]]
        middle = len(values) // 2
        return values[middle] - values[0], values[-1] - values[middle]

    logs = [halves(run, "bound") for run in runs]
    powers = [
        run[-1]["eigenvalue"] > run[-1]["factor"] * run[len(run) // 2]["eigenvalue"] for run in runs
    ]
    # A logarithm grows as much over the second half as over the first, a power by far more.
    slow = [outer <= SLOW * max(inner, 0.0) for inner, outer in logs]
    return (
        Claim.counted("The bound changes by a logarithm of the factor.", sum(slow), len(slow)),
        Claim.counted("The Hessian's largest eigenvalue grows faster.", sum(powers), len(powers)),
    )


def _notes(runs: Sequence[Sequence[Mapping[str, float]]], weights: int) -> list[str]:
    ends = [(run[0], run[len(run) // 2], run[-1]) for run in runs]
    factor, notes = runs[0][-1]["factor"], []
    for name in ("eigenvalue", "trace", "norm"):
        ratio = [max(low[name], high[name]) / middle[name] for low, middle, high in ends]
        notes.append(
            f"{QUANTITIES[name]}: up to {_spread(ratio)} times as large at α = {factor:g} or "
            f"1/{factor:g}."
        )
    for name in ("squared-gradient", "gauss-newton", "null", "bound"):
        rate = [
            max(abs(low[name] - middle[name]), abs(high[name] - middle[name])) / math.log(factor)
            for low, middle, high in ends
        ]
        one = rate if name == "bound" else [value / weights for value in rate]
        unit = "" if name == "bound" else " and weight"
        notes.append(f"{QUANTITIES[name]}: changes by up to {_spread(one)} per unit of ln α{unit}.")
    return notes


def _spread(values: Sequence[float]) -> str:
    return f"{math.fsum(values) / len(values):.3g} {mean_interval(list(values))}"


def _growth(runs: Sequence[Sequence[Mapping[str, float]]]) -> Line:
    return Line(
        title="Each quantity over its value at α = 1, mean over networks",
        x_label="factor α",
        y_label="times its value at α = 1",
        x_scale="log",
        y_scale="log",
        series=[
            _series(runs, name, lambda row, base, n=name: row[n] / base[n]) for name in QUANTITIES
        ],
    )


def _shift(runs: Sequence[Sequence[Mapping[str, float]]], weights: int) -> Line:
    names = ("squared-gradient", "gauss-newton", "null")
    return Line(
        title="Ψ minus its value at α = 1, per weight, mean over networks",
        x_label="factor α",
        y_label="change of Ψ per weight",
        x_scale="log",
        series=[
            _series(runs, name, lambda row, base, n=name: (row[n] - base[n]) / weights)
            for name in names
        ],
    )


def _series(runs: Sequence[Sequence[Mapping[str, float]]], name: str, of: object) -> Series:
    columns = [
        [of(row, run[len(run) // 2]) for row, run in zip(column, runs, strict=True)]  # type: ignore[operator]
        for column in zip(*runs, strict=True)
    ]
    spread = [mean_interval(values) for values in columns]
    return Series(
        name=QUANTITIES[name],
        x=[row["factor"] for row in runs[0]],
        y=[math.fsum(values) / len(values) for values in columns],
        low=[found.low for found in spread],
        high=[found.high for found in spread],
    )
