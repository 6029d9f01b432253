"""The linear failure theorem: weights of any norm, far from the truth, that generalize."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import Claim, InputError, Record, Study, Table, Trial, generator, number, option

DOUBLE = torch.float64
UNIT = torch.finfo(DOUBLE).eps
PRECISIONS = (0.0, 1e-6, 0.5)  # ε
DISTANCES = (0.0, 10.0, 1e6)  # δ
ROUNDING = 100.0  # times unit, norm of M and norm of w: what products of this size may be off by


@dataclasses.dataclass(frozen=True)
class Design:
    """Sizes of a linear problem: training rows, test rows, weights, and the rank of all rows."""

    name: str
    train: int
    test: int
    weights: int
    rank: int


DESIGNS = (
    Design("more weights than rows", 20, 30, 80, 50),
    Design("as many weights as training rows", 40, 30, 40, 40),
    Design("fewer weights than rows, low rank", 50, 40, 12, 5),
    Design("fewer weights than rows, full rank", 50, 40, 12, 12),
)


class LinearFailure(Study):
    r"""Construct linear models that fit any labels, and useless weights that still generalize.

    Formula: $\mathrm{rank}\,\Phi = m \Rightarrow \forall Y \, \exists w: \Phi w = Y; \quad
    \mathrm{rank} M < n \Rightarrow \forall \epsilon, \delta \, \exists w: \lVert M (w - w^*)
    \rVert_F \le \epsilon, \, \lVert w \rVert_F \ge \delta, \, \lVert w - w^* \rVert_F \ge \delta$

    Reading: With M = [Φ; Φ_test] both parts are built and checked in double precision. Part (i):
    if the m training rows are independent, random labels are fitted. Part (ii): if w* fits training
    and test data and some direction is missing in all rows, there are weights as long and as far
    from w* as one likes that fit both within ε. So no norm of the weights explains linear
    generalization by itself. The slide asks for rank M < n in part (i), where it is not needed, and
    leaves out that w* fits both.

    Assumes: Nothing but the stated ranks. Where the rank of M is n, part (ii) is refused.

    >>> len(LinearFailure(seeds=2).trials())
    8
    """

    method = ("K8",)
    cites = ("kawaguchi2017generalization",)
    reproduces = ("darc: Linear models",)

    seeds: int = option(10, help="problems per design", low=1)
    outputs: int = option(3, help="columns of the labels", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial per design and seed."""
        return [
            Trial(parameters={"design": design.name}, seed=seed)
            for design in DESIGNS
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Construct both parts for one problem and measure how well they hold."""
        design = next(one for one in DESIGNS if one.name == trial["design"])
        features, test, truth = _problem(design, self.outputs, trial.seed)
        labels = _normal(design.train, self.outputs, generator(trial.seed + 10**6))
        return {
            "rank": rank(torch.cat([features, test])),
            "train_rank": rank(features),
            "random_labels": _misfit(features, labels),
            "cases": [
                _checked(features, test, truth, epsilon, delta, trial.seed)
                for epsilon in PRECISIONS
                for delta in DISTANCES
            ],
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per design: ranks, part (i), part (ii)."""
        rows = tuple(
            _row(design, [record for trial, record in records if trial["design"] == design.name])
            for design in DESIGNS
        )
        built = [case for _, record in records for case in record["cases"] if not case["refused"]]
        held = sum(case["held"] for case in built)
        independent = [row for row in rows if row[4] == str(row[1])]  # rank Φ = m
        return Table(
            title="Linear models: fitting any labels, and useless weights that generalize",
            columns=(
                *("design", "m", "m test", "n", "rank Φ", "rank M"),
                *("(i) relative misfit of random labels", "(i) holds"),
                *("(ii) built", "(ii) holds", "(ii) largest excess over ε, relative"),
            ),
            rows=rows,
            claims=(
                Claim.counted(
                    "Any labels are fitted if the training rows are independent.",
                    sum(row[7] == "yes" for row in independent),
                    len(independent),
                ),
                Claim.counted(
                    "Weights of any size fit and generalize if a direction is missing.",
                    held,
                    len(built),
                ),
            ),
            notes=(
                f"(ii) holds in {held} of {len(built)} constructions: ε of "
                f"{', '.join(f'{one:g}' for one in PRECISIONS)}, δ of "
                f"{', '.join(f'{one:g}' for one in DISTANCES)}.",
                "The tolerance grows with δ, because products with weights of this length are "
                f"rounded: {ROUNDING:g} · 2.2e-16 · ‖M‖₂ · ‖w‖. The last column is the excess over "
                "ε in units of ‖M‖₂ · ‖w‖.",
                "(i) needs rank Φ = m alone: with as many weights as training rows rank M is n, "
                "and random labels are fitted all the same. (ii) also holds for fewer weights than "
                "rows if rank M < n, and is refused where rank M = n.",
            ),
        )

    def tiny(self) -> Self:
        """Use one problem per design."""
        return self.replace(seeds=1)


def useless_weights(
    features: Tensor,
    test: Tensor,
    truth: Tensor,
    *,
    epsilon: float,
    delta: float,
    seed: int = 0,
) -> Tensor:
    """Construct weights that fit training and test data within ε, and are at least δ from all.

    Args:
        features: Φ, one row per training sample.
        test: The rows of the test samples.
        truth: w*, which fits both: Y = Φ w*.
        epsilon: How much the fit may be off, in Frobenius norm.
        delta: The least norm of the weights, and their least distance from w*.
        seed: Seed of the directions.

    >>> one, two = torch.tensor([[1.0, 0.0], [2.0, 0.0]]).double().split(1)
    >>> found = useless_weights(one, two, torch.ones(2, 1), epsilon=0.0, delta=100.0)
    >>> float((one @ found).sum()), float(found.norm()) >= 100
    (1.0, True)
    """
    rows, random = torch.cat([features, test]).to(DOUBLE), generator(seed)
    full = rank(rows)
    if full >= rows.shape[1]:
        raise InputError(
            f"The rows must miss a direction, rank M < n, got rank {full} for n = {rows.shape[1]}. "
            "Take more weights or fewer samples."
        )
    basis = torch.linalg.svd(rows).Vh
    missed = basis[full:].T @ _normal(rows.shape[1] - full, truth.shape[1], random)
    seen = basis[:full].T @ _normal(full, truth.shape[1], random)
    # All of ε may be used on training and test rows together, so each alone stays within it.
    seen = seen * number("epsilon", epsilon) / (rows @ seen).norm()
    length = number("delta", delta) + truth.norm() + seen.norm()
    weights: Tensor = truth.to(DOUBLE) + seen + length * missed / missed.norm()
    return weights


def rank(rows: Tensor) -> int:
    """Count the singular values above NumPy's threshold."""
    values = torch.linalg.svdvals(rows.to(DOUBLE))
    return int((values > values.max() * max(rows.shape) * UNIT).sum())


def _problem(design: Design, outputs: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    random, rows = generator(seed), design.train + design.test
    matrix = _normal(rows, design.rank, random) @ _normal(design.rank, design.weights, random)
    truth = _normal(design.weights, outputs, random)
    return matrix[: design.train], matrix[design.train :], truth


def _normal(rows: int, columns: int, random: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, generator=random, dtype=DOUBLE)


def _misfit(features: Tensor, labels: Tensor) -> float:
    weights = torch.linalg.pinv(features) @ labels
    return float((features @ weights - labels).norm() / labels.norm())


def _checked(
    features: Tensor, test: Tensor, truth: Tensor, epsilon: float, delta: float, seed: int
) -> dict[str, Any]:
    """Build the weights of part (ii) and measure every claim about them."""
    try:
        weights = useless_weights(
            features, test, truth, epsilon=epsilon, delta=delta, seed=seed + 1
        )
    except InputError:
        return {"refused": True, "held": False}
    misfit = max(float((part @ (weights - truth)).norm()) for part in (features, test))
    scale = float(torch.linalg.matrix_norm(torch.cat([features, test]), 2) * weights.norm())
    far = min(float(weights.norm()), float((weights - truth).norm()))
    excess = max(misfit - epsilon, 0.0) / scale
    held = excess <= ROUNDING * UNIT and far >= delta * (1 - ROUNDING * UNIT)
    return {"refused": False, "held": held, "excess": excess, "norm": far}


def _row(design: Design, records: Sequence[Record]) -> tuple[Any, ...]:
    built = [case for record in records for case in record["cases"] if not case["refused"]]
    misfit = max(record["random_labels"] for record in records)
    ranks = [sorted({record[name] for record in records}) for name in ("train_rank", "rank")]
    return (
        *(design.name, design.train, design.test, design.weights),
        *(", ".join(map(str, one)) for one in ranks),
        misfit,
        "yes" if misfit < 1e-9 else "no",
        f"{len(built)}" if built else "refused",
        sum(case["held"] for case in built) if built else None,
        max(case["excess"] for case in built) if built else None,
    )
