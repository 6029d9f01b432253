"""The mean loss as a function of one flat vector of weights; the model stays untouched."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mindgap.core import (
    Batch,
    InputError,
    Inputs,
    Subject,
    Which,
    call,
    evaluating,
    typed,
    with_weights,
)


class FlatLoss:
    """The loss of a subject at any point: a flat vector of all trained weights.

    The model runs in evaluation mode. Buffers and weights without gradient stay as they are.

    Args:
        subject: Model, loss and data.
        which: The split whose loss is computed.
        only: Names of parameters or of layers whose weights make up the vector; all if empty.

    >>> subject = Subject(nn.Linear(1, 1, bias=False), "mse", (torch.ones(2, 1), torch.zeros(2, 1)))
    >>> flat = FlatLoss(subject)
    >>> [float(flat.sum(torch.tensor([3.0]), batch)) for batch in flat.batches()]
    [18.0]
    """

    def __init__(
        self, subject: Subject, which: Which = "train", *, only: Sequence[str] = ()
    ) -> None:
        self.subject, self.which, self.model = subject, which, subject.model
        trained = {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}
        self.named = chosen(trained, only)
        if not self.named:
            raise InputError(
                "Curvature needs weights that are trained, got a model without any. Set "
                "requires_grad."
            )
        self.sizes = [p.numel() for p in self.named.values()]
        self.samples = len(subject.split(which))

    @property
    def point(self) -> Tensor:
        """The model's own weights."""
        return torch.cat([p.flatten() for p in self.named.values()]).clone()

    def batches(self, order: Tensor | None = None, size: int = 0) -> Iterator[Batch]:
        """Yield the samples, or those of ``order``, with targets as the loss takes them."""
        like = next(iter(self.named.values()))
        for batch in self.subject.split(self.which).batches(size or self.subject.batch_size, order):
            yield Batch(batch.inputs, typed(batch.target, self.subject.task, like), batch.index)

    def weights(self, point: Tensor) -> dict[str, Tensor]:
        """Cut the vector into named tensors, which share its memory."""
        parts = point.split(self.sizes)
        return {
            name: part.view(p.shape)
            for (name, p), part in zip(self.named.items(), parts, strict=True)
        }

    def outputs(self, point: Tensor, inputs: Inputs) -> Tensor:
        """Compute the model's outputs with these weights."""

        def answer(*given: Tensor, **named: Tensor) -> Any:
            return with_weights(self.model, self.weights(point), given, named)

        with plain_attention():
            return call(cast("nn.Module", answer), inputs, point)

    def losses(self, point: Tensor, batch: Batch) -> Tensor:
        """Compute one loss per sample."""
        return self.subject.loss(self.outputs(point, batch.inputs), batch.target)

    def sum(self, point: Tensor, batch: Batch) -> Tensor:
        """Sum the losses of a batch."""
        return self.losses(point, batch).sum()

    def total(self, of_batch: Callable[[Tensor, Batch], Tensor], point: Tensor) -> Tensor:
        """Average over all samples what ``of_batch`` sums over a batch, in double precision."""
        found: Any = 0.0
        with evaluating(self.model), torch.enable_grad():
            for batch in self.batches():
                found = found + of_batch(point, batch).detach().double()
        return cast("Tensor", found / self.samples)

    def gradient(self, point: Tensor) -> Tensor:
        """Compute the gradient of the mean loss."""
        return self.total(self._gradient, point)

    def _gradient(self, point: Tensor, batch: Batch) -> Tensor:
        at = point.detach().requires_grad_()
        return torch.autograd.grad(self.sum(at, batch), at)[0]

    def products(self, point: Tensor, directions: Tensor) -> Tensor:
        """Multiply the Hessian of the mean loss with each row of ``directions``.

        All rows share one backward pass per batch.

        Args:
            point: Where the Hessian is taken.
            directions: Vectors, one per row.
        """
        return self.total(functools.partial(self._products, directions.to(point)), point)

    def _products(self, directions: Tensor, point: Tensor, batch: Batch) -> Tensor:
        at = point.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self.sum(at, batch), at, create_graph=True)
        if not gradient.requires_grad:  # a loss that is linear in the weights
            return torch.zeros_like(directions)
        (found,) = torch.autograd.grad(gradient, at, directions, is_grads_batched=True)
        return found


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """Let attention take a way that has second derivatives; fused kernels have one or none.

    >>> with plain_attention():
    ...     torch.backends.mha.get_fastpath_enabled()
    False
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def chosen(weights: Mapping[str, Tensor], only: Sequence[str] = ()) -> dict[str, Tensor]:
    """Choose the weights with these names, or that belong to layers with these names.

    Args:
        weights: Tensors by name.
        only: Names of parameters or of layers; all weights if empty.

    >>> weights = {
    ...     "body.0.weight": torch.ones(1),
    ...     "body.0.bias": torch.ones(1),
    ...     "head": torch.ones(1),
    ... }
    >>> list(chosen(weights, ["body.0"])), len(chosen(weights))
    (['body.0.weight', 'body.0.bias'], 3)
    """
    for wanted in only:
        if not any(_belongs(name, wanted) for name in weights):
            raise InputError(
                f"only must name trained weights or their layers, got {wanted!r}. This model has "
                f"{', '.join(weights)}."
            )
    return {
        name: value
        for name, value in weights.items()
        if not only or any(_belongs(name, wanted) for wanted in only)
    }


def _belongs(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}.")
