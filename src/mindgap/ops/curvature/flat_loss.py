"""The mean loss as a function of one flat vector of weights; the model stays untouched."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mindgap.core import Batch, InputError, Inputs, Subject, Which, call, evaluating, typed


class FlatLoss:
    """The loss of a subject at any point: a flat vector of all trained weights.

    The model runs in evaluation mode. Buffers and weights without gradient stay as they are.

    Args:
        subject: Model, loss and data.
        which: The split whose loss is computed.

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
            return functional_call(self.model, self.weights(point), given, named)

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


def largest_eigenvalue(flat: FlatLoss, point: Tensor, *, steps: int = 40, seed: int = 0) -> float:
    """Estimate the Hessian's eigenvalue of largest absolute value by the Lanczos method.

    The result is a lower bound on that absolute value. It is exact to many digits after a few dozen
    products, unless the random initial vector happens to be orthogonal to the eigenvector.

    Args:
        flat: The loss.
        point: Where the Hessian is taken.
        steps: Largest number of Hessian products.
        seed: Seed of the initial vector.

    >>> subject = Subject(nn.Linear(1, 1, bias=False), "mse", (torch.ones(2, 1), torch.zeros(2, 1)))
    >>> flat = FlatLoss(subject)
    >>> round(largest_eigenvalue(flat, flat.point), 6)
    2.0
    """
    source = torch.Generator().manual_seed(seed)
    start = torch.randn(len(point), generator=source, dtype=torch.float64)
    basis, columns = [start / start.norm()], list[Tensor]()
    for step in range(min(steps, len(point))):
        product = flat.products(point, basis[step][None])[0].cpu()
        columns.append(product)
        # Rounding lets the basis lose its orthogonality, and false copies of an eigenvalue appear.
        # Orthogonalizing against all earlier vectors, twice, prevents that.
        rest = product.clone()
        for _ in range(2):
            known = torch.stack(basis)
            rest = rest - known.T @ (known @ rest)
        if float(rest.norm()) <= 1e-10 * max(float(product.norm()), 1e-300):
            break
        basis.append(rest / rest.norm())
    known = torch.stack(basis[: len(columns)])
    small = known @ torch.stack(columns).T
    values = torch.linalg.eigvalsh((small + small.T) / 2)
    return float(values[values.abs().argmax()])
