"""Products of the Hessian and of the Gauss–Newton matrix of the mean loss with many vectors."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import torch
from torch import Tensor

from mindgap.core import Batch, InputError, Subject, evaluating, implements, integer
from mindgap.ops.curvature.flat_loss import FlatLoss

HELD = 2**29  # bytes of intermediate results that are kept from one product to the next
PARTS = 4  # chunks at least that share it
FEW = 8  # samples that tell how large a graph is
AT_ONCE = 16  # vectors that are multiplied together
Graph = TypeVar("Graph")
CHUNK = 250  # samples; larger chunks leave the caches of a CPU


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """A symmetric matrix that is known by its products with vectors alone.

    Args:
        size: Its number of rows.
        multiply: Takes some vectors, one per row, in double precision, and returns their products.

    >>> matrix = Operator(size=2, multiply=lambda rows: rows * torch.tensor([1.0, 3.0]).double())
    >>> matrix(torch.ones(1, 2).double()).tolist()
    [[1.0, 3.0]]
    """

    size: int
    multiply: Callable[[Tensor], Tensor]

    def __call__(self, rows: Tensor) -> Tensor:
        """Multiply the matrix with every row."""
        return torch.cat([self.multiply(part) for part in rows.split(AT_ONCE)])


@implements("E4", cites=("pearlmutter1994fast",))
def hessian_products(
    flat: FlatLoss, point: Tensor | None = None, *, chunk: int = CHUNK
) -> Operator:
    r"""Make the Hessian of the mean loss an operator; no Hessian is ever stored.

    Formula: $H v = \nabla_w \left( \nabla_w \hat L(w)^\top v \right)$

    Reading: One product costs about as much as three gradients. The samples stream through the
    model in chunks, smaller ones where graphs are large. The graphs of the gradients are kept between
    products while they fit in half a gigabyte, so that later products cost one backward pass.

    Assumes: A loss that is twice differentiable almost everywhere. What is flat in pieces, as the
    slope of ReLU is, counts as zero in second derivatives.

    Args:
        flat: The loss, with the weights that the Hessian is restricted to.
        point: Where the Hessian is taken; the model's own weights if None.
        chunk: The largest number of samples that go through the model at once.

    >>> from torch import nn
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> flat = FlatLoss(Subject(nn.Linear(2, 1, bias=False), "mse", data))
    >>> hessian_products(flat)(torch.eye(2).double()).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    check_deterministic(flat.subject)
    where = flat.point if point is None else point

    def gradient(batch: Batch) -> tuple[Tensor, Tensor]:
        at = where.detach().requires_grad_()
        (found,) = torch.autograd.grad(flat.sum(at, batch), at, create_graph=True)
        return at, found

    graphs = _Graphs(flat, gradient, chunk)

    def multiply(rows: Tensor) -> Tensor:
        found = torch.zeros(rows.shape, dtype=torch.float64, device=where.device)
        for at, slope in graphs:
            found += pulled(slope, at, rows.to(where)).double()
        return (found / flat.samples).to(rows.device)

    return Operator(size=len(where), multiply=multiply)


class _Graphs(Generic[Graph]):
    """What is differentiated of every chunk; the first are kept while they fit in memory."""

    def __init__(self, flat: FlatLoss, make: Callable[[Batch], Graph], chunk: int) -> None:
        self.flat, self.make, self.most = flat, make, integer("chunk", chunk)
        self.kept: list[Graph] = []
        self.free = HELD

    @functools.cached_property
    def chunk(self) -> int:
        """How many samples have a graph of a fraction of the memory, as a few of them tell."""
        few = min(FEW, self.flat.samples)
        if self.most <= few:
            return self.most
        _, size = self._counted(next(self.flat.batches(torch.arange(few), few)))
        return max(1, min(self.most, HELD // PARTS * few // max(1, size)))

    def __iter__(self) -> Iterator[Graph]:
        yield from self.kept
        rest = torch.arange(self.flat.samples)[len(self.kept) * self.chunk :]
        for batch in self.flat.batches(rest, self.chunk) if len(rest) else ():
            graph, size = self._counted(batch)
            if size <= self.free:
                self.kept.append(graph)
            self.free = self.free - size if size <= self.free else 0
            yield graph

    def _counted(self, batch: Batch) -> tuple[Graph, int]:
        """Differentiate a chunk, and count the bytes that its graph holds."""
        seen: dict[int, int] = {}

        def count(saved: Tensor) -> Tensor:
            seen[saved.data_ptr()] = saved.numel() * saved.element_size()
            # An output that comes back with its own graph would keep itself alive for good.
            return saved.detach()

        hooks = torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved)
        with differentiating(self.flat), hooks:
            graph = self.make(batch)
        return graph, sum(seen.values())


def pulled(values: Tensor, at: Tensor, rows: Tensor) -> Tensor:
    """Multiply every row with the derivative of ``values``, from the left.

    Args:
        values: A vector with a graph.
        at: What it is differentiated by.
        rows: Vectors, one per row.

    >>> at = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> pulled(at.square(), at, torch.eye(2)).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    if not values.requires_grad:  # they do not depend on the weights at all
        return at.new_zeros(len(rows), *at.shape)
    many = len(rows) > 1
    (found,) = torch.autograd.grad(
        values,
        at,
        rows if many else rows[0],
        retain_graph=True,
        is_grads_batched=many,
        allow_unused=True,
        materialize_grads=True,
    )
    return found if many else found[None]


@implements("E4", cites=("schraudolph2002fast",))
def gauss_newton_products(
    flat: FlatLoss, point: Tensor | None = None, *, chunk: int = CHUNK
) -> Operator:
    r"""Make the generalized Gauss–Newton matrix of the mean loss an operator.

    Formula: $G v = \frac{1}{n} \sum_i J_i^\top \nabla^2_o \ell(o_i) J_i v$

    Reading: The Hessian without the curvature of the network itself. It is positive semi-definite
    if the loss is convex in the outputs, and the Fisher information matrix for cross entropy.

    Assumes: A loss that is twice differentiable in the outputs, and layers that torch can
    differentiate twice.

    Args:
        flat: The loss, with the weights that the matrix is restricted to.
        point: Where it is taken; the model's own weights if None.
        chunk: The largest number of samples that go through the model at once.

    >>> from torch import nn
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> flat = FlatLoss(Subject(nn.Linear(2, 1, bias=False), "mse", data))
    >>> gauss_newton_products(flat)(torch.eye(2).double()).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    check_deterministic(flat.subject)
    where = flat.point if point is None else point
    graphs = _Graphs(flat, lambda batch: Linearized(flat, where, batch), chunk)

    def multiply(rows: Tensor) -> Tensor:
        found = torch.zeros(rows.shape, dtype=torch.float64, device=where.device)
        for graph in graphs:
            found += graph.back(graph.bent(graph.moved(rows.to(where)))).double()
        return (found / flat.samples).to(rows.device)

    return Operator(size=len(where), multiply=multiply)


class Linearized:
    """The outputs and losses of a batch as linear functions of small moves of the weights.

    Two backward passes do the work of a forward derivative, which some layers and losses lack.

    Args:
        flat: The loss.
        point: The weights, as one flat vector.
        batch: The samples.
    """

    def __init__(self, flat: FlatLoss, point: Tensor, batch: Batch) -> None:
        self.at = point.detach().requires_grad_()
        self.outputs = flat.outputs(self.at, batch.inputs)
        self.dummy = torch.zeros_like(self.outputs, requires_grad=True)
        self.pulled = _pulled_with_graph(self.outputs, self.at, self.dummy)
        self.here = self.outputs.detach().requires_grad_()
        losses = flat.subject.loss(self.here, batch.target).sum()
        self.slope = _pulled_with_graph(losses, self.here, torch.ones_like(losses))

    def moved(self, rows: Tensor) -> Tensor:
        """Return how the outputs move along every row of directions: J v."""
        return pulled(self.pulled, self.dummy, rows)

    def bent(self, rows: Tensor) -> Tensor:
        """Multiply every row of moves of the outputs with the losses' Hessian by the outputs."""
        return pulled(self.slope, self.here, rows)

    def back(self, rows: Tensor) -> Tensor:
        """Multiply every row of outputs with the transposed Jacobian: Jᵀ u."""
        return pulled(self.outputs, self.at, rows)


def _pulled_with_graph(values: Tensor, at: Tensor, row: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(
        values, at, row, create_graph=True, allow_unused=True, materialize_grads=True
    )
    return found


@contextlib.contextmanager
def differentiating(flat: FlatLoss) -> Iterator[None]:
    """Run the model in evaluation mode, with gradients.

    Args:
        flat: Its model is switched.
    """
    with evaluating(flat.model), torch.enable_grad():
        yield


def check_deterministic(subject: Subject) -> None:
    """Refuse a model whose outputs are not a function of the sample alone.

    Args:
        subject: Its model runs in evaluation mode, so that ordinary dropout is off.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(1, 1))
    >>> _ = net.register_forward_hook(lambda _, x, y: y + torch.rand_like(y))
    >>> check_deterministic(Subject(net, "mse", (torch.ones(2, 1), torch.ones(2, 1))))
    Traceback (most recent call last):
    mindgap.core.errors.InputError: Curvature needs outputs that depend on the weights and the \
sample alone, got a model where the same samples give other outputs when asked again. Switch \
dropout and noise off in evaluation mode, as F.dropout(x, training=self.training) does.
    """
    reason = subject.cached("curvature-instability", subject.instability)
    if reason:
        raise InputError(
            "Curvature needs outputs that depend on the weights and the sample alone, got a model "
            f"where {reason}. {_advice(reason)}"
        )


def _advice(reason: str) -> str:
    if "asked again" in reason:
        return (
            "Switch dropout and noise off in evaluation mode, as F.dropout(x, "
            "training=self.training) does."
        )
    return "Let normalization use running statistics in evaluation mode."
