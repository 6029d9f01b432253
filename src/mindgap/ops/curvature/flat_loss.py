"""A subject's mean training loss as a function of one flat row of weights; the model itself is never touched."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mindgap.core import Batch, InputError, Inputs, Subject, Which, call, evaluating, typed


class FlatLoss:
    """The loss of a subject at any place: a row of all weights that are trained, in the model's order.

    Evaluation mode; weights that are not trained, and buffers, stay as they are.

    >>> subject = Subject(nn.Linear(1, 1, bias=False), "mse", (torch.ones(2, 1), torch.zeros(2, 1)))
    >>> flat = FlatLoss(subject)
    >>> [float(flat.sum(torch.tensor([3.0]), batch)) for batch in flat.batches()]
    [18.0]
    """

    def __init__(self, subject: Subject, which: Which = "train") -> None:
        self.subject, self.which, self.model = subject, which, subject.model
        self.named = {
            name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad
        }
        if not self.named:
            raise InputError(
                "Curvature needs weights that are trained, got a model without. Set requires_grad."
            )
        self.sizes = [p.numel() for p in self.named.values()]
        self.samples = len(subject.split(which))

    @property
    def place(self) -> Tensor:
        """Where the model stands."""
        return torch.cat([p.flatten() for p in self.named.values()]).clone()

    def batches(self, order: Tensor | None = None, size: int = 0) -> Iterator[Batch]:
        """The samples, or those of ``order``, with targets in the type that the loss takes."""
        like = next(iter(self.named.values()))
        for batch in self.subject.split(self.which).batches(size or self.subject.batch_size, order):
            yield Batch(batch.inputs, typed(batch.target, self.subject.task, like), batch.index)

    def weights(self, place: Tensor) -> dict[str, Tensor]:
        """The row cut into named tensors, which share its memory."""
        parts = place.split(self.sizes)
        return {
            name: part.view(p.shape)
            for (name, p), part in zip(self.named.items(), parts, strict=True)
        }

    def outputs(self, place: Tensor, inputs: Inputs) -> Tensor:
        """The model's outputs with these weights."""

        def answer(*given: Tensor, **named: Tensor) -> Any:
            return functional_call(self.model, self.weights(place), given, named)

        return call(cast("nn.Module", answer), inputs, place)

    def losses(self, place: Tensor, batch: Batch) -> Tensor:
        """One loss a sample."""
        return self.subject.loss(self.outputs(place, batch.inputs), batch.target)

    def sum(self, place: Tensor, batch: Batch) -> Tensor:
        """The sum of the losses of a batch."""
        return self.losses(place, batch).sum()

    def total(self, of_batch: Callable[[Tensor, Batch], Tensor], place: Tensor) -> Tensor:
        """The mean over all samples of what ``of_batch`` sums over a batch, in double precision."""
        found: Any = 0.0
        with evaluating(self.model), torch.enable_grad():
            for batch in self.batches():
                found = found + of_batch(place, batch).detach().double()
        return cast("Tensor", found / self.samples)

    def gradient(self, place: Tensor) -> Tensor:
        """The gradient of the mean loss."""
        return self.total(self._slope, place)

    def _slope(self, place: Tensor, batch: Batch) -> Tensor:
        at = place.detach().requires_grad_()
        return torch.autograd.grad(self.sum(at, batch), at)[0]

    def products(self, place: Tensor, directions: Tensor) -> Tensor:
        """The Hessian of the mean loss times each row of ``directions``, all rows in one backward pass a batch."""
        return self.total(functools.partial(self._products, directions.to(place)), place)

    def _products(self, directions: Tensor, place: Tensor, batch: Batch) -> Tensor:
        at = place.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.sum(at, batch), at, create_graph=True)
        if not slope.requires_grad:  # linear in the weights
            return torch.zeros_like(directions)
        (found,) = torch.autograd.grad(slope, at, directions, is_grads_batched=True)
        return found


def largest_eigenvalue(flat: FlatLoss, place: Tensor, *, steps: int = 40, seed: int = 0) -> float:
    """The eigenvalue of the Hessian that is largest in size, by Lanczos' method with full orthogonalization.

    A lower limit of its size that is exact to many digits after a few dozen products, unless the
    start, which is random, happens to be orthogonal to the eigenvector.
    """
    source = torch.Generator().manual_seed(seed)
    start = torch.randn(len(place), generator=source, dtype=torch.float64)
    basis, columns = [start / start.norm()], list[Tensor]()
    for step in range(min(steps, len(place))):
        product = flat.products(place, basis[step][None])[0].cpu()
        columns.append(product)
        rest = product.clone()
        for _ in range(2):  # once more, against rounding
            known = torch.stack(basis)
            rest = rest - known.T @ (known @ rest)
        if float(rest.norm()) <= 1e-10 * max(float(product.norm()), 1e-300):
            break
        basis.append(rest / rest.norm())
    known = torch.stack(basis[: len(columns)])
    small = known @ torch.stack(columns).T
    values = torch.linalg.eigvalsh((small + small.T) / 2)
    return float(values[values.abs().argmax()])
