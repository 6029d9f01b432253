"""The terms of the risk: three that add up to the excess risk, four that add up to the risk."""

import dataclasses
import math
from collections.abc import Sequence

from torch import Tensor

from mindgap.core import Interval, two_way
from mindgap.core.special import student_quantile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Term:
    """A part of the risk.

    Args:
        name: What it is called.
        value: Its mean over training sets.
        interval: Its 95 % interval, over training sets, seeds and samples.
    """

    name: str
    value: float
    interval: Interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Losses:
    """The losses from which all terms follow, in double precision.

    ``pool`` are the samples on which the risk is estimated; nothing was trained on them.

    Args:
        run: Losses of the actual runs on the pool, of shape (draws, pool).
        minimizer: Those of the empirical minimizers, of the same shape.
        best: Those of the best members of the class that were found, (references, pool).
        run_train: Mean loss of every run on its own training set, (draws,).
        minimizer_train: The same for the empirical minimizers.
        best_train: Mean loss of every reference on every training set, (references, draws).
        floor: Losses of the best predictor on the pool, (pool,); or its risk as a single number;
            None if it is unknown.
    """

    run: Tensor
    minimizer: Tensor
    best: Tensor
    run_train: Tensor
    minimizer_train: Tensor
    best_train: Tensor
    floor: Tensor | None = None

    @property
    def risk(self) -> Term:
        """The risk of the actual runs."""
        return _term("risk", self.run)

    @property
    def gap(self) -> Term:
        """How far the runs' training loss is above that of the empirical minimizers: ρ."""
        return _term("tolerance", self._tall(self.run_train - self.minimizer_train))

    @property
    def excess(self) -> tuple[Term, ...]:
        r"""Approximation, estimation and optimization error; without the first if f* is unknown.

        .. math:: R(\tilde f_n) - R(f^*) = [R(f_F) - R(f^*)] + [R(f_n) - R(f_F)] + [R(\tilde f_n) -
            R(f_n)]
        """
        best = self.best.mean(0)
        known = (
            ()
            if self.floor is None
            else (_term("approximation", self._wide(best - self.floor), self.best.mean(1)),)
        )
        return (
            *known,
            _term("estimation", self.minimizer - best, -self.best.mean(1)),
            _term("optimization", self.run - self.minimizer),
        )

    @property
    def whole(self) -> tuple[Term, ...]:
        r"""Generalization, optimization, statistical and approximation error.

        .. math:: R(\tilde f_n) = [R(\tilde f_n) - R_n(\tilde f_n)] + [R_n(\tilde f_n) - R_n(f_F)] +
            [R_n(f_F) - R(f_F)] + R(f_F)
        """
        best, on_train = self.best.mean(0), self.best_train.mean(0)
        return (
            _term("generalization", self.run - self.run_train[:, None]),
            _term("optimization", self._tall(self.run_train - on_train), -self.best_train.mean(1)),
            _term(
                "statistical",
                on_train[:, None] - best,
                self.best_train.mean(1) - self.best.mean(1),
            ),
            _term("approximation", self._wide(best), self.best.mean(1)),
        )

    def _tall(self, values: Tensor) -> Tensor:
        """One number per training set, for all samples of the pool."""
        return values[:, None].expand(self.run.shape)

    def _wide(self, values: Tensor) -> Tensor:
        """One number per sample of the pool, for all training sets."""
        return values.expand(self.run.shape)


def _term(name: str, table: Tensor, references: Tensor | None = None) -> Term:
    """The mean of a table of training sets × samples.

    Args:
        name: Of the term.
        table: One row per training set, one column per sample of the pool.
        references: What every reference adds to the term, one number each.
    """
    found = two_way(table.numpy())
    parts = [(found.standard_error**2, found.freedom)]
    if references is not None and len(references) > 1:
        parts.append((float(references.var()) / len(references), len(references) - 1))
    half = _half(parts)
    value = float(table.mean())
    return Term(name=name, value=value, interval=Interval(low=value - half, high=value + half))


def _half(parts: Sequence[tuple[float, float]]) -> float:
    """Half a 95 % interval from independent variances, with Satterthwaite's degrees of freedom."""
    variance = math.fsum(part for part, _ in parts)
    if not variance:
        return 0.0
    freedom = variance**2 / math.fsum(part**2 / own for part, own in parts)
    return student_quantile(0.95, freedom) * math.sqrt(variance)


def total(terms: Sequence[Term]) -> float:
    """Add up the values of terms.

    >>> point = Interval(low=0.0, high=1.0)
    >>> total([Term(name=name, value=0.5, interval=point) for name in "ab"])
    1.0
    """
    return math.fsum(term.value for term in terms)


def excess_risk(losses: Losses) -> float | None:
    """Compute the risk of the runs above that of the best predictor; None if that is unknown.

    >>> import torch
    >>> one = torch.ones(2, 3, dtype=torch.float64)
    >>> rest = {"run_train": one[:, 0], "minimizer_train": one[:, 0], "best_train": one[:1, :2]}
    >>> excess_risk(Losses(run=one, minimizer=one, best=one[:1], floor=0.5 * one[0, 0], **rest))
    0.5
    """
    if losses.floor is None:
        return None
    return float((losses.run - losses.floor).mean())
