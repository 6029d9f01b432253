"""Products of the Hessian and of the Gauss–Newton matrix of the mean loss with many vectors."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.func import grad, jvp, vjp
from torch.nn.attention import SDPBackend, sdpa_kernel

from mindgap.core import Batch, InputError, Subject, evaluating, implements, integer
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.models.parameters import vmap_or_loop

HELD = 2**29  # bytes of intermediate results that are kept from one product to the next
AT_ONCE = 16  # vectors that are multiplied together
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
    model in chunks. The graphs of the gradients are kept between products while they fit in half a
    gigabyte, so that later products cost one backward pass.

    Assumes: A loss that is twice differentiable almost everywhere. What is flat in pieces, as the
    slope of ReLU is, counts as zero in second derivatives.

    Args:
        flat: The loss, with the weights that the Hessian is restricted to.
        point: Where the Hessian is taken; the model's own weights if None.
        chunk: Samples that go through the model at once.

    >>> from torch import nn
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> flat = FlatLoss(Subject(nn.Linear(2, 1, bias=False), "mse", data))
    >>> hessian_products(flat)(torch.eye(2).double()).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    check_deterministic(flat.subject)
    where = flat.point if point is None else point
    graphs = _Graphs(flat, where, chunk)

    def multiply(rows: Tensor) -> Tensor:
        found = torch.zeros(rows.shape, dtype=torch.float64, device=where.device)
        for at, gradient in graphs:
            found += _second(at, gradient, rows.to(where)).double()
        return (found / flat.samples).to(rows.device)

    return Operator(size=len(where), multiply=multiply)


class _Graphs:
    """The gradients of all chunks with their graphs, of which the first are kept while they fit."""

    def __init__(self, flat: FlatLoss, point: Tensor, chunk: int) -> None:
        self.flat, self.point, self.chunk = flat, point, integer("chunk", chunk)
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.free = HELD

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from self.kept
        rest = torch.arange(self.flat.samples)[len(self.kept) * self.chunk :]
        for batch in self.flat.batches(rest, self.chunk) if len(rest) else ():
            pair, size = self._graph(batch)
            if size <= self.free:
                self.kept.append(pair)
            self.free = self.free - size if size <= self.free else 0
            yield pair

    def _graph(self, batch: Batch) -> tuple[tuple[Tensor, Tensor], int]:
        """Differentiate a chunk once, and count the bytes that the graph holds."""
        seen: dict[int, int] = {}

        def count(saved: Tensor) -> Tensor:
            seen[saved.data_ptr()] = saved.numel() * saved.element_size()
            return saved

        at = self.point.detach().requires_grad_()
        hooks = torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved)
        with differentiating(self.flat), hooks:
            value = self.flat.sum(at, batch)
            (gradient,) = torch.autograd.grad(value, at, create_graph=True)
        return (at, gradient), sum(seen.values())


def _second(at: Tensor, gradient: Tensor, rows: Tensor) -> Tensor:
    """Differentiate the gradient along every row."""
    if not gradient.requires_grad:  # a loss that is linear in the weights
        return torch.zeros_like(rows)
    many = len(rows) > 1
    along = rows if many else rows[0]
    (found,) = torch.autograd.grad(gradient, at, along, retain_graph=True, is_grads_batched=many)
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
    differentiate forward.

    Args:
        flat: The loss, with the weights that the matrix is restricted to.
        point: Where it is taken; the model's own weights if None.
        chunk: Samples that go through the model at once.

    >>> from torch import nn
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> flat = FlatLoss(Subject(nn.Linear(2, 1, bias=False), "mse", data))
    >>> gauss_newton_products(flat)(torch.eye(2).double()).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    check_deterministic(flat.subject)
    where = flat.point if point is None else point

    def multiply(rows: Tensor) -> Tensor:
        found = torch.zeros(rows.shape, dtype=torch.float64, device=where.device)
        with differentiating(flat):
            for batch in flat.batches(size=integer("chunk", chunk)):
                found += _gauss_newton(flat, where, batch, rows.to(where)).double()
        return (found / flat.samples).to(rows.device)

    return Operator(size=len(where), multiply=multiply)


def _gauss_newton(flat: FlatLoss, point: Tensor, batch: Batch, rows: Tensor) -> Tensor:
    def outputs(at: Tensor) -> Tensor:
        return flat.outputs(at, batch.inputs)

    def loss(output: Tensor) -> Tensor:
        return flat.subject.loss(output, batch.target).sum()

    here, back, *_ = vjp(outputs, point)

    def one(row: Tensor) -> Tensor:
        _, moved, *_ = jvp(outputs, (point,), (row,))
        # Backward twice, because some losses, such as Huber's, lack forward second derivatives.
        bent = grad(lambda output: (grad(loss)(output) * moved).sum())(here)
        found: Tensor = back(bent)[0]
        return found

    return vmap_or_loop(one, rows).detach()


@contextlib.contextmanager
def differentiating(flat: FlatLoss) -> Iterator[None]:
    """Run the model in evaluation mode, with gradients and with attention that has second ones.

    Args:
        flat: Its model is switched.
    """
    # The fused kernels of attention have a first derivative only.
    with evaluating(flat.model), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
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
