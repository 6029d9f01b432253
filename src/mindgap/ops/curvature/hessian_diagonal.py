r"""The diagonal of the Hessian of the mean training loss, or what is taken for it, in four ways.

- ``"squared-gradient"``, the paper's: the mean square of the gradient of a random batch, which
  Adam's running mean follows. With batches of B drawn with replacement that is :math:`\bar g_i^2 +
  \mathrm{Var}(g_i)/B`, computed here exactly from the gradients of single samples. It is a
  curvature only for a likelihood at its optimum, and 1/B of it.
- ``"exact"``: row by row, in as many backward passes as there are weights.
- ``"gauss-newton"``: :math:`\sum_k (J^\top s_k)_i^2` with :math:`\sum_k s_k s_k^\top` the Hessian
  of the loss by the outputs; for cross entropy it is the Fisher information. Where the outputs are
  piecewise linear in every single weight (ReLU, max-pooling, batch normalization with fixed
  statistics) it *is* the exact diagonal, for a fraction of the cost.
- ``"hutchinson"``: the mean of :math:`v \odot Hv` over random signs v, unbiased.
"""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, jacrev, vjp, vmap

from mindgap.core import Batch, InputError, Inputs, choice, evaluating, generator, integer, number
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.models.parameters import all_at_once

Curvature = Literal["squared-gradient", "exact", "gauss-newton", "hutchinson"]
CURVATURES: tuple[Curvature, ...] = ("squared-gradient", "exact", "gauss-newton", "hutchinson")
MOST_EXACT = 50_000  # weights; beyond it the exact diagonal takes hours
ROWS = 64  # rows of the Hessian computed together
AT_ONCE = 8_000_000  # numbers of single-sample gradients that are held together
BETA = 0.999  # of the paper's running mean


def hessian_diagonal(
    flat: FlatLoss,
    place: Tensor,
    kind: Curvature = "gauss-newton",
    *,
    batch_size: int = 128,
    probes: int = 16,
    seed: int = 0,
) -> Tensor:
    """The diagonal at ``place``, in double precision. ``batch_size`` is for squared gradients, ``probes`` and
    ``seed`` are for Hutchinson's estimate.

    >>> from torch import nn
    >>> from mindgap.core.subject import Subject
    >>> subject = Subject(
    ...     nn.Linear(2, 1, bias=False), "mse", (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    ... )
    >>> flat = FlatLoss(subject)
    >>> [
    ...     hessian_diagonal(flat, flat.place, kind).round(decimals=4).tolist()
    ...     for kind in ("exact", "gauss-newton")
    ... ]
    [[2.0, 8.0], [2.0, 8.0]]
    """
    choice("curvature", kind, CURVATURES)
    if kind == "exact":
        if len(place) > MOST_EXACT:
            raise InputError(
                f"The exact diagonal must have at most {MOST_EXACT} entries, got {len(place)} "
                "weights. Choose "
                "'gauss-newton', which is the same for ReLU networks, or 'hutchinson'."
            )
        return exact(flat, place)
    if kind == "gauss-newton":
        return _by_blocks(flat, place, gauss_newton_rows)
    if kind == "hutchinson":
        return hutchinson(flat, place, probes=probes, seed=seed)
    slope = flat.gradient(place)
    square = _by_blocks(flat, place, gradient_rows)
    return slope.square() + (square - slope.square()).clamp(min=0) / integer(
        "batch_size", batch_size
    )


def exact(flat: FlatLoss, place: Tensor) -> Tensor:
    """Every second derivative by one weight."""

    def of_batch(at: Tensor, batch: Batch) -> Tensor:
        there = at.detach().requires_grad_()
        return second_derivatives(flat.sum(there, batch), there)

    return flat.total(of_batch, place)


def second_derivatives(value: Tensor, place: Tensor) -> Tensor:
    """The diagonal of the Hessian of a scalar, exactly: some rows of the Hessian at a time.

    >>> place = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> second_derivatives((place**3).sum() + place.prod(), place).tolist()
    [6.0, 12.0]
    """
    (slope,) = torch.autograd.grad(value, place, create_graph=True)
    parts = []
    for index in torch.arange(len(place)).split(ROWS):
        rows = F.one_hot(index, len(place)).to(slope)
        (product,) = torch.autograd.grad(
            slope, place, rows, retain_graph=True, is_grads_batched=True
        )
        parts.append(product.gather(1, index[:, None]).squeeze(1))
    return torch.cat(parts).detach()


def hutchinson(flat: FlatLoss, place: Tensor, *, probes: int, seed: int) -> Tensor:
    """The mean over ``probes`` of v ⊙ Hv; the rows of all probes pass together."""
    source = generator(seed)
    signs = 2.0 * torch.randint(0, 2, (integer("probes", probes), len(place)), generator=source) - 1
    signs = signs.to(place)
    return (signs.double() * flat.products(place, signs)).mean(0)


def running_squares(
    flat: FlatLoss, place: Tensor, *, batch_size: int = 128, beta: float = BETA, seed: int = 0
) -> Tensor:
    """The paper's own estimate: a running mean of squared batch gradients over one random pass, as Adam corrects it.

    Depends on the order of the samples; what it estimates is ``"squared-gradient"``.
    """
    found, weight = torch.zeros(len(place), dtype=torch.float64, device=place.device), 1.0
    order, keep = (
        torch.randperm(flat.samples, generator=generator(seed)),
        number("beta", beta, 0, 1),
    )
    with evaluating(flat.model), torch.enable_grad():
        for batch in flat.batches(order, integer("batch_size", batch_size)):
            at = place.detach().requires_grad_()
            slope = torch.autograd.grad(flat.losses(at, batch).mean(), at)[0].double()
            found, weight = keep * found + (1 - keep) * slope.square(), weight * keep
    return found / (1 - weight)


def gradient_rows(flat: FlatLoss, place: Tensor, batch: Batch) -> Tensor:
    """The squared gradient of every sample, summed over the batch."""

    def one(inputs: Inputs, target: Tensor) -> Tensor:
        slope: Tensor = grad(lambda at: _alone(flat, at, inputs, target))(place)
        return slope.square()

    return all_at_once(one, batch.inputs, batch.target).double().sum(0)


def gauss_newton_rows(flat: FlatLoss, place: Tensor, batch: Batch) -> Tensor:
    """The diagonal of JᵀSJ of every sample, S the loss's Hessian by the outputs, summed over the batch."""

    def one(inputs: Inputs, roots: Tensor) -> Tensor:
        _, back, *_ = vjp(lambda at: flat.outputs(at, _single(inputs))[0], place)
        (rows,) = vmap(back)(roots)
        found: Tensor = rows.square().sum(0)
        return found

    with torch.no_grad():
        outputs = flat.outputs(place, batch.inputs)
    return all_at_once(one, batch.inputs, output_roots(flat, outputs, batch.target)).double().sum(0)


def output_roots(flat: FlatLoss, outputs: Tensor, target: Tensor) -> Tensor:
    """Rows s_k of every sample with Σ s_k s_kᵀ the Hessian of its loss by its outputs; negative parts are left out."""
    shape = outputs.shape[1:]

    def loss(output: Tensor, truth: Tensor) -> Tensor:
        return flat.subject.loss(output[None], truth[None]).sum()

    bend = vmap(jacrev(jacrev(loss)))(
        outputs.double(), target.double() if target.is_floating_point() else target
    )
    values, vectors = torch.linalg.eigh(bend.reshape(len(outputs), shape.numel(), shape.numel()))
    roots = (vectors * values.clamp(min=0).sqrt()[:, None, :]).transpose(1, 2)
    rows: Tensor = roots.reshape(len(outputs), shape.numel(), *shape).to(outputs)
    return rows


def _by_blocks(
    flat: FlatLoss, place: Tensor, rows: Callable[[FlatLoss, Tensor, Batch], Tensor]
) -> Tensor:
    """The mean over all samples, so many at a time that their gradients fit."""
    first = next(flat.batches(torch.arange(1)))
    with evaluating(flat.model):
        width = flat.outputs(place, first.inputs).numel() if rows is gauss_newton_rows else 1
    size = max(1, AT_ONCE // (len(place) * width))
    found = torch.zeros(len(place), dtype=torch.float64, device=place.device)
    with evaluating(flat.model):
        for batch in flat.batches(size=min(size, 256)):
            found += rows(flat, place, batch)
    return found / flat.samples


def _alone(flat: FlatLoss, place: Tensor, inputs: Inputs, target: Tensor) -> Tensor:
    return flat.sum(place, Batch(_single(inputs), target[None], torch.arange(1)))


def _single(inputs: Inputs) -> Inputs:
    if isinstance(inputs, dict):
        return {name: value[None] for name, value in inputs.items()}
    return tuple(value[None] for value in inputs)
