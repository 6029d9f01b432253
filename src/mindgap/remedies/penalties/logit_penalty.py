"""DARC1 and its family: a penalty on the size of the logits."""

from typing import Literal

import torch
from torch import Tensor

from mindgap.core import InputError, Remedy, TrainingState, option

Form = Literal["darc1", "darc", "mean", "squared"]
_ROUNDING = 1e-3  # of a sum of probabilities in half precision


class LogitPenalty(Remedy):
    r"""Penalizes large logits: DARC1, DARC with random signs, or their mean size.

    Formula: $\frac{1}{n} \sum_{i} \ell(h(x_i), y_i) + \lambda \max_k \frac{1}{n} \sum_{i=1}^{n}
    |h_k(x_i)|$

    Reading: DARC1 holds down the class whose logits are largest over the batch. It is the largest
    value that the batch's Rademacher complexity can take. ``darc`` estimates that complexity with
    random signs, λ E max_k (1/n) Σ ξ_i h_k(x_i). It is smaller by a
    factor that grows like the root of the batch size, so its λ is another one. ``mean`` and
    ``squared`` take the mean of |h_k| or h_k² over all classes: the controls without a
    maximum. Zero turns it off.

    Assumes: Outputs that are logits. Probabilities and their logarithms are refused at the first
    step. Samples with a weight enter in proportion to it.

    >>> logits = torch.tensor([[3.0, -1.0], [-1.0, 0.0]])
    >>> state = TrainingState(model=torch.nn.Identity(), optimizer=None)
    >>> for form in ("darc1", "mean", "squared"):
    ...     penalty = LogitPenalty(factor=1.0, form=form).penalty(state, logits, None, None)
    ...     print(form, penalty.item())
    darc1 2.0
    mean 1.25
    squared 2.75
    """

    method = ("K7",)
    cites = ("kawaguchi2017generalization",)
    strength = "factor"
    treats = frozenset({"over-fitting", "over-confidence"})
    cost = 1.05

    factor: float = option(0.1, help="factor λ of the penalty; 0 is off", low=0)
    form: Form = option("darc1", help="what of the logits is held down")
    draws: int = option(1, help="random signs per sample and step, for 'darc'", low=1)
    as_published: bool = option(
        False, help="sum over the batch instead of its mean, as the authors' code does"
    )

    def penalty(
        self,
        state: TrainingState,
        output: Tensor,
        target: Tensor,  # noqa: ARG002
        weights: Tensor | None,
    ) -> Tensor:
        """Compute λ times the size of the batch's logits."""
        logits = output[:, None] if output.ndim == 1 else output
        if state.step <= 1:
            _refuse_probabilities(logits)
        shares = self._shares(logits, weights)
        if self.form == "darc":
            return (
                self.factor * (self._signs(state, logits) * shares @ _rows(logits)).amax(1).mean()
            )
        sizes = shares @ _rows(logits.square() if self.form == "squared" else logits.abs())
        return self.factor * (sizes.amax() if self.form == "darc1" else sizes.mean())

    def _shares(self, logits: Tensor, weights: Tensor | None) -> Tensor:
        """With which factor every sample enters: 1/n, or its part of all weights."""
        factors = logits.new_ones(len(logits)) if weights is None else weights.to(logits)
        if self.as_published:
            return factors
        # Weights may all be zero in a batch of left-out samples, which is then without a penalty.
        return factors / factors.sum().clamp_min(torch.finfo(factors.dtype).tiny)

    def _signs(self, state: TrainingState, logits: Tensor) -> Tensor:
        random = torch.Generator().manual_seed(state.random(self.name))
        bits = torch.randint(0, 2, (self.draws, len(logits)), generator=random)
        return (2 * bits - 1).to(logits)


def _rows(values: Tensor) -> Tensor:
    """One row per sample and one column per class: the mean over positions, if there are any."""
    return values if values.ndim == 2 else values.flatten(2).mean(2)


def _refuse_probabilities(logits: Tensor) -> None:
    """A penalty on probabilities would ask for balanced classes, not for small logits."""
    values = logits.detach().double()
    if values.shape[1] < 2:
        return
    kind = "log-probabilities" if _sum_to_one(values.exp()) else "probabilities"
    if kind == "log-probabilities" or (bool((values >= 0).all()) and _sum_to_one(values)):
        raise InputError(
            f"A penalty on logits must see them before the softmax, got {kind}. Remove the softmax "
            "from the model and use the loss 'cross_entropy'."
        )


def _sum_to_one(values: Tensor) -> bool:
    return bool(((values.sum(1) - 1).abs() < _ROUNDING).all())
