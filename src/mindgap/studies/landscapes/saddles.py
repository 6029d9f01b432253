"""Saddles: how optimizers pass them, where critical points lie, and how alike final losses are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from mindgap.core import (
    Chart,
    Claim,
    Line,
    Points,
    Recipe,
    Record,
    Scatter,
    Series,
    Study,
    Table,
    Trial,
    mean_interval,
    option,
    same_environment,
    spearman,
)
from mindgap.data import digits
from mindgap.nets import MLP
from mindgap.training.ensemble import ensemble

RATE = 0.05
STARTS = (1e-1, 1e-3, 1e-6, 1e-9, 0.0)
NOISE = 0.01
STEPS = 2_000
Rule = Callable[[Sequence[Tensor]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Rule] = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=RATE),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=RATE, momentum=0.9),
    "Adam": lambda weights: torch.optim.Adam(weights, lr=RATE),
    "SGD with noise": lambda weights: torch.optim.SGD(weights, lr=RATE),
}
NOTES = (
    "Escape: steps on f(u, v) = (u² − v²) / 2 from (1, v₀) until |v| ≥ 1, learning rate "
    f"{RATE:g}; '—' means none of {STEPS:,} did. Noise has standard deviation {NOISE:g} in every "
    "gradient; its row is the mean over seeds. From v₀ = 0 only noise leaves the saddle.",
    "Critical points: Levenberg–Marquardt steps minimize ‖∇L‖² of a small tanh network, from random "
    "weights after a random number of steps of Adam (Dauphin et al., 2014, use Newton steps). A point "
    "counts if ‖∇L‖ < 1e-7. The index is the share of negative eigenvalues of the Hessian. "
    "Published: it grows with the loss.",
    "Final losses: perceptrons with one hidden layer on the 8×8 digits, from different seeds. The "
    "slides: different seeds yield similar final losses, the more so the wider the network.",
)


class Saddles(Study):
    r"""Measure saddles: escape from one, index against loss, and final losses over seeds.

    Formula: $\mathrm{index}(w) = \frac{1}{d} \#\{k : \lambda_k(\nabla^2 L(w)) < 0\}
    \;\text{where}\; \nabla L(w) = 0$

    Reading: Critical points of high loss are saddles with many ways down; those of low loss have
    few. Momentum leaves a saddle in fewer steps than SGD, Adam hardly feels how small the gradient
    is, and noise leaves even from a point without any.

    Assumes: A quadratic saddle, a network of 17 weights, and small perceptrons.

    >>> sum(trial["part"] == "escape" for trial in Saddles().trials())
    4
    """

    method = ("E3",)
    cites = ("dauphin2014identifying", "ollion2018learning")
    reproduces = ("expressivity: Saddles",)

    seeds: int = option(10, help="data sets whose critical points are searched", low=2)
    starts: int = option(200, help="random weights to search from, per data set", low=4)
    descent: int = option(2_000, help="largest number of steps of Adam before a search", low=0)
    iterations: int = option(400, help="steps of each search", low=1)
    members: int = option(40, help="networks per width whose final losses are compared", low=2)
    epochs: int = option(100, help="passes over the digits", low=1)
    widths: tuple[int, ...] = option((2, 4, 8, 16, 32, 64), help="hidden units to compare", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial per optimizer, per data set and per width."""
        escapes = [Trial(parameters={"part": "escape", "optimizer": name}) for name in OPTIMIZERS]
        points = [Trial(parameters={"part": "index"}, seed=seed) for seed in range(self.seeds)]
        losses = [Trial(parameters={"part": "spread", "width": width}) for width in self.widths]
        return [*escapes, *points, *losses]

    def run(self, trial: Trial) -> Record:
        """Run one of the three parts."""
        if trial["part"] == "escape":
            return _escape(trial["optimizer"], self.members)
        if trial["part"] == "index":
            return critical_points(trial.seed, self.starts, self.descent, self.iterations)
        return self._spread(trial["width"])

    def _spread(self, width: int) -> dict[str, Any]:
        recipe = Recipe(
            model=lambda: MLP((64, width, 10)),
            train=digits().train,
            epochs=self.epochs,
            learning_rate=5e-3,
        )
        members = ensemble(recipe, range(self.members), keep_history=False)
        return {"losses": [member.subject().mean_loss() for member in members]}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """Rows of three kinds: steps, rank correlations, spreads."""
        parts: dict[str, list[tuple[Trial, Record]]] = {"escape": [], "index": [], "spread": []}
        for trial, record in records:
            parts[trial["part"]].append((trial, record))
        rows = [row for trial, record in parts["escape"] for row in _escape_rows(trial, record)]
        rows += _index_rows([record for _, record in parts["index"]])
        rows += [_spread_row(trial, record) for trial, record in parts["spread"]]
        return Table(
            title="Saddles: escape, index of critical points, spread of final losses",
            columns=("part", "setting", "quantity", "value", "low", "high"),
            rows=tuple(rows),
            notes=NOTES,
            charts=tuple(_charts(parts)),
            claims=_claims(parts),
        )

    def tiny(self) -> Self:
        """Few starts, steps, members and widths."""
        return self.replace(
            seeds=2, starts=8, descent=20, iterations=60, members=2, epochs=2, widths=(2, 4)
        )


def _escape(name: str, seeds: int) -> dict[str, Any]:
    """Count the steps from every start; noise is drawn for several seeds."""
    noise = NOISE if name == "SGD with noise" else 0.0
    draws = seeds if noise else 1
    found = {
        f"{start:g}": steps_to_escape(OPTIMIZERS[name], start, noise, draws) for start in STARTS
    }
    return {"steps": found}


def steps_to_escape(
    rule: Rule, start: float, noise: float = 0.0, draws: int = 1
) -> list[int | None]:
    """Count the steps past the saddle (u² − v²) / 2 from (1, start), until |v| is at least one.

    Args:
        rule: Makes the optimizer.
        start: The first v.
        noise: Standard deviation of what is added to every gradient.
        draws: How many runs, each with noise of its own.

    >>> steps_to_escape(OPTIMIZERS["SGD"], 0.1), round(float(np.log(10) / np.log(1 + RATE)), 1)
    ([48], 47.2)
    """
    source = torch.Generator().manual_seed(0)
    place = torch.tensor([[1.0, start]] * draws, dtype=torch.float64, requires_grad=True)
    optimizer, found = rule([place]), [None] * draws
    steps: list[int | None] = list(found)
    for step in range(1, STEPS + 1):
        with torch.no_grad():
            drawn = torch.randn(place.shape, generator=source, dtype=torch.float64)
            place.grad = place * torch.tensor([1.0, -1.0]) + noise * drawn
        optimizer.step()
        for k in (place[:, 1].abs() >= 1).nonzero().flatten().tolist():
            steps[k] = step if steps[k] is None else steps[k]
        if None not in steps:
            break
    return steps


def critical_points(seed: int, starts: int, descent: int, iterations: int) -> dict[str, Any]:
    """Search critical points of a small network, and find the loss and index of each.

    Args:
        seed: Seed of data and initial weights.
        starts: Number of searches.
        descent: Largest number of steps of Adam before a search.
        iterations: Steps of each search.
    """
    loss = _small_loss(seed)
    source = torch.Generator().manual_seed(seed + 1)
    drawn = torch.randn(starts, WEIGHTS, generator=source, dtype=torch.float64)
    steps = (descent * torch.rand(starts, generator=source) ** 3).long()
    points = _searched(loss, _descended(loss, drawn, steps), iterations)
    slopes, matrices = _derivatives(loss, points)
    kept = (slopes.norm(dim=1) < 1e-7) & (points.abs().amax(1) < 1e3)
    values = torch.linalg.eigvalsh(matrices[kept])
    tiny = 1e-6 * values.abs().amax(1, keepdim=True)
    return {
        "starts": starts,
        "losses": [float(value) for value in torch.vmap(loss)(points[kept])],
        "index": (values < -tiny).double().mean(1).tolist(),
    }


HIDDEN = 4
WEIGHTS = 4 * HIDDEN + 1


@same_environment()
def _descended(loss: Callable[[Tensor], Tensor], points: Tensor, steps: Tensor) -> Tensor:
    """Train each of the points for its own number of steps."""
    place, found = points.clone().requires_grad_(), points.clone()
    optimizer = torch.optim.Adam([place], lr=0.02)
    for step in range(int(steps.max()) + 1):
        found = torch.where((steps == step)[:, None], place.detach(), found)
        place.grad = torch.vmap(torch.func.grad(loss))(place.detach())
        optimizer.step()
    return found


def _small_loss(seed: int) -> Callable[[Tensor], Tensor]:
    """Mean squared error of a 2-4-1 tanh network on fifty samples with noisy targets."""
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(50, 2, generator=source, dtype=torch.float64)
    noise = torch.randn(50, generator=source, dtype=torch.float64)
    y = torch.sin(2 * x[:, 0]) * x[:, 1] + 0.3 * noise

    def loss(weights: Tensor) -> Tensor:
        first, bias, last, shift = weights.split([2 * HIDDEN, HIDDEN, HIDDEN, 1])
        hidden = torch.tanh(x @ first.view(2, HIDDEN) + bias)
        error: Tensor = hidden @ last + shift - y
        return error.square().mean()

    return loss


def _derivatives(loss: Callable[[Tensor], Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
    slopes = torch.vmap(torch.func.grad(loss))(points)
    matrices = torch.vmap(torch.func.jacrev(torch.func.grad(loss)))(points)
    return slopes, matrices


def _searched(loss: Callable[[Tensor], Tensor], points: Tensor, iterations: int) -> Tensor:
    """Minimize ‖∇L‖² by Levenberg–Marquardt steps, all starts at once, each with its own damping."""
    damping = torch.ones(len(points), dtype=torch.float64)
    slopes, matrices = _derivatives(loss, points)
    for _ in range(iterations):
        # (H² + μ I)⁻¹ H g by eigenvectors, which also exist where H is singular.
        values, vectors = torch.linalg.eigh(matrices)
        factors = values / (values.square() + damping[:, None])
        along = (vectors.mT @ slopes[..., None])[..., 0]
        tried = points - (vectors @ (factors * along)[..., None])[..., 0]
        new_slopes, new_matrices = _derivatives(loss, tried)
        better = new_slopes.norm(dim=1) < slopes.norm(dim=1)
        damping = torch.where(better, damping / 3, damping * 2).clamp(1e-15, 1e6)
        points = torch.where(better[:, None], tried, points)
        slopes = torch.where(better[:, None], new_slopes, slopes)
        matrices = torch.where(better[:, None, None], new_matrices, matrices)
    return points


def _escape_rows(trial: Trial, record: Record) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for start, steps in record["steps"].items():
        quantity = f"steps from v₀ = {start}"
        if None in steps:
            rows.append(("escape", trial["optimizer"], quantity, None, None, None))
            continue
        spread = mean_interval(steps)
        ends = (spread.low, spread.high) if len(steps) > 1 else (None, None)
        rows.append(("escape", trial["optimizer"], quantity, float(np.mean(steps)), *ends))
    return rows


def _claims(parts: Mapping[str, Sequence[tuple[Trial, Record]]]) -> tuple[Claim, ...]:
    steps = {trial["optimizer"]: record["steps"] for trial, record in parts["escape"]}
    told = list[Claim]()
    if {"SGD", "momentum"} <= steps.keys():
        pairs = [(steps["momentum"][start][0], steps["SGD"][start][0]) for start in steps["SGD"]]
        faster = [a < b for a, b in pairs if None not in (a, b)]
        told.append(
            Claim.counted("Momentum leaves a saddle sooner than SGD.", sum(faster), len(faster))
        )
    ranks = [row for row in _index_rows([r for _, r in parts["index"]]) if "rank" in str(row[2])]
    told += [
        Claim.shown("Critical points of high loss have more ways down.", float(str(row[4])) > 0)
        for row in ranks
        if row[4] is not None
    ]
    spread = [float(str(_spread_row(*one)[3])) for one in parts["spread"]]
    if len(spread) > 1:
        # One number per width has no interval, so that no more than the direction can be shown.
        closer = spread[-1] < spread[0]
        text = "Final losses of wide networks differ less over seeds."
        told.append(Claim(text, "direction" if closer else "no"))
    return tuple(told)


def _index_rows(records: Sequence[Record]) -> list[tuple[object, ...]]:
    """Rank correlation of index and loss, and how many searches ended at a critical point."""
    ranks = [
        spearman(record["index"], record["losses"])
        for record in records
        if len(set(record["index"])) > 1 and len(set(record["losses"])) > 1
    ]
    found = [len(record["losses"]) / record["starts"] for record in records]
    saddles = [
        float((np.array(record["index"]) > 0).mean()) for record in records if record["index"]
    ]
    named = {
        "rank correlation of index and loss": ranks,
        "share of searches that found a point": found,
        "share of the points that are saddles": saddles,
    }
    return [
        ("index", f"{len(values)} data sets", name, float(np.mean(values)), *_ends(values))
        for name, values in named.items()
        if values
    ]


def _ends(values: Sequence[float]) -> tuple[float | None, float | None]:
    spread = mean_interval(values)
    return (spread.low, spread.high) if len(values) > 1 else (None, None)


def _spread_row(trial: Trial, record: Record) -> tuple[object, ...]:
    losses = np.array(record["losses"])
    ratio = float(losses.std(ddof=1) / losses.mean())
    setting = f"width {trial['width']}, mean loss {losses.mean():.3g}"
    return ("spread", setting, "standard deviation over mean", ratio, None, None)


def _charts(parts: Mapping[str, Sequence[tuple[Trial, Record]]]) -> list[Chart]:
    charts: list[Chart] = []
    if parts["escape"]:
        charts.append(_escape_chart(parts["escape"]))
    groups = [
        Points(name=f"data {trial.seed}", x=record["losses"], y=record["index"])
        for trial, record in parts["index"]
        if record["losses"]
    ]
    if groups:
        charts.append(
            Scatter(
                title="Index of critical points against their loss",
                x_label="loss",
                y_label="share of negative eigenvalues",
                points=groups[:6],
            )
        )
    if parts["spread"]:
        charts.append(_spread_chart(parts["spread"]))
    return charts


def _escape_chart(found: Sequence[tuple[Trial, Record]]) -> Line:
    shown = [f"{start:g}" for start in STARTS if start]
    return Line(
        title="Steps past a saddle",
        x_label="distance from the saddle's ridge at the start",
        y_label="steps",
        x_scale="log",
        series=[
            Series(
                name=trial["optimizer"],
                x=[float(start) for start in shown],
                y=[
                    None
                    if None in record["steps"][start]
                    else float(np.mean(record["steps"][start]))
                    for start in shown
                ],
            )
            for trial, record in found
        ],
    )


def _spread_chart(found: Sequence[tuple[Trial, Record]]) -> Line:
    losses = {trial["width"]: np.array(record["losses"]) for trial, record in found}
    return Line(
        title="Final training losses over seeds: median and 10 % to 90 %",
        x_label="hidden units",
        y_label="training loss",
        x_scale="log",
        y_scale="log",
        series=[
            Series(
                name="final loss",
                x=list(losses),
                y=[float(np.median(row)) for row in losses.values()],
                low=[float(np.quantile(row, 0.1)) for row in losses.values()],
                high=[float(np.quantile(row, 0.9)) for row in losses.values()],
            )
        ],
    )
