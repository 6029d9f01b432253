r"""The diagonal of the Hessian of the training loss, exactly or by one of three estimates.

- ``"squared-gradient"``, the paper's estimate: the mean square of the gradient of a random batch,
  which Adam's running mean follows. With batches of B samples drawn with replacement it is
  :math:`\bar g_i^2 + \mathrm{Var}(g_i)/B`, computed here exactly from the gradients of single
  samples. It is a curvature only for a likelihood at its optimum, and there 1/B of it.
- ``"exact"``: row by row, in as many backward passes as there are weights.
- ``"gauss-newton"``: :math:`\sum_k (J^\top s_k)_i^2`, where :math:`\sum_k s_k s_k^\top` is the
  Hessian of the loss with respect to the outputs. For cross entropy it is the Fisher information.
  Where the outputs are piecewise linear in every single weight (ReLU, max-pooling, batch
  normalization with fixed statistics) it *is* the exact diagonal, for a fraction of the cost.
- ``"hutchinson"``: the mean of :math:`v \odot Hv` over random signs v, unbiased.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, jacrev, vjp, vmap

from mindgap.core import Batch, InputError, Inputs, choice, evaluating, generator, integer, number
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.layerwise import gauss_newton_sums, layers_of
from mindgap.ops.models.parameters import vmap_or_loop

Curvature = Literal["squared-gradient", "exact", "gauss-newton", "hutchinson"]
CURVATURES: tuple[Curvature, ...] = ("squared-gradient", "exact", "gauss-newton", "hutchinson")
MOST_EXACT = 50_000  # weights; beyond it the exact diagonal takes hours
ROWS = 64  # rows of the Hessian computed together
AT_ONCE = 8_000_000  # entries of per-sample gradients that are held together
LAYERWISE = 50  # samples of one block, layer by layer
NOTHING = 1e-6  # of the largest entry of a root
BETA = 0.999  # of the paper's running mean


def hessian_diagonal(
    flat: FlatLoss,
    point: Tensor,
    kind: Curvature = "gauss-newton",
    *,
    batch_size: int = 128,
    probes: int = 16,
    seed: int = 0,
) -> Tensor:
    """Compute or estimate the diagonal of the Hessian at a point, in double precision.

    Args:
        flat: The loss.
        point: The weights, as one flat vector.
        kind: ``"squared-gradient"``, ``"exact"``, ``"gauss-newton"`` or ``"hutchinson"``.
        batch_size: Batch size that ``"squared-gradient"`` describes.
        probes: Number of random sign vectors of ``"hutchinson"``.
        seed: Seed of ``"hutchinson"``.

    >>> from torch import nn
    >>> from mindgap.core.subject import Subject
    >>> subject = Subject(
    ...     nn.Linear(2, 1, bias=False), "mse", (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    ... )
    >>> flat = FlatLoss(subject)
    >>> [
    ...     hessian_diagonal(flat, flat.point, kind).round(decimals=4).tolist()
    ...     for kind in ("exact", "gauss-newton")
    ... ]
    [[2.0, 8.0], [2.0, 8.0]]
    """
    choice("curvature", kind, CURVATURES)
    if kind == "exact":
        if len(point) > MOST_EXACT:
            raise InputError(
                f"The exact diagonal must have at most {MOST_EXACT} entries, got {len(point)} "
                "weights. Choose 'gauss-newton', which is the same for ReLU networks, or "
                "'hutchinson'."
            )
        return exact(flat, point)
    if kind == "gauss-newton":
        return _mean(gauss_newton_parts(flat, point), flat)
    if kind == "hutchinson":
        return _hutchinson(flat, point, probes=probes, seed=seed)
    mean = flat.gradient(point).square()
    square = _mean(_by_blocks(flat, point, _squared_gradient_sums), flat)
    return mean + (square - mean).clamp(min=0) / integer("batch_size", batch_size)


def exact(flat: FlatLoss, point: Tensor) -> Tensor:
    """Compute the second derivative with respect to every single weight.

    Args:
        flat: The loss.
        point: The weights, as one flat vector.
    """

    def of_batch(at: Tensor, batch: Batch) -> Tensor:
        leaf = at.detach().requires_grad_()
        return _second_derivatives(flat.sum(leaf, batch), leaf)

    return flat.total(of_batch, point)


def _second_derivatives(value: Tensor, point: Tensor) -> Tensor:
    """Compute the diagonal of the Hessian of a scalar, some rows of the Hessian at a time.

    Args:
        value: A scalar that depends on ``point``.
        point: A vector that requires gradients.

    >>> point = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> _second_derivatives((point**3).sum() + point.prod(), point).tolist()
    [6.0, 12.0]
    """
    (gradient,) = torch.autograd.grad(value, point, create_graph=True)
    parts = []
    for index in torch.arange(len(point)).split(ROWS):
        rows = F.one_hot(index, len(point)).to(gradient)
        (product,) = torch.autograd.grad(
            gradient, point, rows, retain_graph=True, is_grads_batched=True
        )
        parts.append(product.gather(1, index[:, None]).squeeze(1))
    return torch.cat(parts).detach()


def _hutchinson(flat: FlatLoss, point: Tensor, *, probes: int, seed: int) -> Tensor:
    source = generator(seed)
    signs = 2.0 * torch.randint(0, 2, (integer("probes", probes), len(point)), generator=source) - 1
    signs = signs.to(point)
    return (signs.double() * flat.products(point, signs)).mean(0)


def running_squares(
    flat: FlatLoss, point: Tensor, *, batch_size: int = 128, beta: float = BETA, seed: int = 0
) -> Tensor:
    """Compute the paper's estimate, a bias-corrected running mean of squared batch gradients.

    One pass over the data in random order, which the result depends on. It estimates what
    ``hessian_diagonal(..., "squared-gradient")`` computes.

    Args:
        flat: The loss.
        point: The weights, as one flat vector.
        batch_size: Samples per gradient.
        beta: Decay of the running mean.
        seed: Seed of the order.
    """
    found, weight = torch.zeros(len(point), dtype=torch.float64, device=point.device), 1.0
    order, keep = (
        torch.randperm(flat.samples, generator=generator(seed)),
        number("beta", beta, 0, 1),
    )
    with evaluating(flat.model), torch.enable_grad():
        for batch in flat.batches(order, integer("batch_size", batch_size)):
            at = point.detach().requires_grad_()
            gradient = torch.autograd.grad(flat.losses(at, batch).mean(), at)[0].double()
            found, weight = keep * found + (1 - keep) * gradient.square(), weight * keep
    return found / (1 - weight)


def sample_gradients(flat: FlatLoss, point: Tensor) -> Iterator[Tensor]:
    """Yield the gradients of the samples' losses, one per row, in double precision.

    Args:
        flat: The loss.
        point: The weights, as one flat vector.

    >>> from torch import nn
    >>> from mindgap.core.subject import Subject
    >>> subject = Subject(nn.Linear(1, 1, bias=False), "mse", (torch.ones(2, 1), torch.zeros(2, 1)))
    >>> [rows.tolist() for rows in sample_gradients(FlatLoss(subject), torch.tensor([3.0]))]
    [[[6.0], [6.0]]]
    """

    def one(inputs: Inputs, target: Tensor) -> Tensor:
        found: Tensor = grad(lambda at: _alone(flat, at, inputs, target))(point)
        return found

    size = max(1, min(AT_ONCE // len(point), 256))
    with evaluating(flat.model):
        for batch in flat.batches(size=size):
            yield vmap_or_loop(one, batch.inputs, batch.target).detach().double()


def _squared_gradient_sums(flat: FlatLoss, point: Tensor, batch: Batch) -> Tensor:
    """Sum the squared gradients of single samples over a batch."""

    def one(inputs: Inputs, target: Tensor) -> Tensor:
        gradient: Tensor = grad(lambda at: _alone(flat, at, inputs, target))(point)
        return gradient.square()

    return vmap_or_loop(one, batch.inputs, batch.target).double().sum(0)


def _gauss_newton_sums(flat: FlatLoss, point: Tensor, batch: Batch) -> Tensor:
    """Sum the diagonals of JᵀSJ over a batch; S is the loss's Hessian by the outputs."""

    def one(inputs: Inputs, roots: Tensor) -> Tensor:
        _, back, *_ = vjp(lambda at: flat.outputs(at, single(inputs))[0], point)
        (rows,) = vmap(back)(roots)
        found: Tensor = rows.square().sum(0)
        return found

    with torch.no_grad():
        outputs = flat.outputs(point, batch.inputs)
    return (
        vmap_or_loop(one, batch.inputs, output_roots(flat, outputs, batch.target)).double().sum(0)
    )


def gauss_newton_parts(flat: FlatLoss, point: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield the Gauss–Newton diagonal summed over a few samples, and how many they are.

    Args:
        flat: The loss.
        point: The weights, as one flat vector.

    >>> from mindgap.core.subject import Subject
    >>> model, data = nn.Linear(1, 1, bias=False), (torch.ones(2, 1), torch.zeros(2, 1))
    >>> flat = FlatLoss(Subject(model.double(), "mse", data))
    >>> [(round(float(part), 6), count) for part, count in gauss_newton_parts(flat, flat.point)]
    [(4.0, 2)]
    """
    layers = _usable_layers(flat, point)
    if layers is None:
        yield from _by_blocks(flat, point, _gauss_newton_sums)
        return
    for batch in flat.batches(size=LAYERWISE):
        with evaluating(flat.model):
            found = _layer_sums(flat, point, batch, layers)
            if found is None:  # a layer is called in another way for these samples
                found = _gauss_newton_sums(flat, point, batch)
        yield found, len(batch.target)


def _usable_layers(flat: FlatLoss, point: Tensor) -> dict[str, nn.Module] | None:
    """Return the layers if the diagonal can be computed one by one; None if it cannot."""
    layers = layers_of(flat)
    if layers is None:
        return None
    with evaluating(flat.model):
        return layers if _agrees(flat, point, layers) else None


def _layer_sums(
    flat: FlatLoss, point: Tensor, batch: Batch, layers: dict[str, nn.Module]
) -> Tensor | None:
    def roots(outputs: Tensor) -> Tensor:
        """Leave out what is zero for all samples: the outputs' sum does not matter to softmax."""
        found = output_roots(flat, outputs, batch.target)
        sizes = found.abs().flatten(2).amax((0, 2))
        return found[:, sizes > NOTHING * sizes.max()]

    return gauss_newton_sums(flat, point, batch, roots, layers)


def _agrees(flat: FlatLoss, point: Tensor, layers: dict[str, nn.Module]) -> bool:
    """Compare both ways on few samples: a weight may be used outside of its layer, too."""
    few = next(flat.batches(torch.arange(min(2, flat.samples))))
    quick, slow = _layer_sums(flat, point, few, layers), _gauss_newton_sums(flat, point, few)
    close = 1e-4 * float(slow.max())
    return quick is not None and torch.allclose(quick, slow, rtol=1e-3, atol=close)


def output_roots(flat: FlatLoss, outputs: Tensor, target: Tensor) -> Tensor:
    """Factor each sample's Hessian by the outputs into Σ s_k s_kᵀ; negative parts are dropped.

    Args:
        flat: Its loss.
        outputs: The outputs of some samples.
        target: Their targets.
    """
    shape = outputs.shape[1:]
    values, vectors = torch.linalg.eigh(output_hessians(flat, outputs, target))
    roots = (vectors * values.clamp(min=0).sqrt()[:, None, :]).transpose(1, 2)
    rows: Tensor = roots.reshape(len(outputs), shape.numel(), *shape).to(outputs)
    return rows


def output_hessians(flat: FlatLoss, outputs: Tensor, target: Tensor) -> Tensor:
    """Compute each sample's Hessian of the loss by the outputs, in double precision.

    Args:
        flat: Its loss.
        outputs: The outputs of some samples.
        target: Their targets.
    """
    size = outputs.shape[1:].numel()

    def loss(output: Tensor, truth: Tensor) -> Tensor:
        return flat.subject.loss(output[None], truth[None]).sum()

    found: Tensor = vmap(jacrev(jacrev(loss)))(
        outputs.double(), target.double() if target.is_floating_point() else target
    )
    return found.reshape(len(outputs), size, size)


def _by_blocks(
    flat: FlatLoss, point: Tensor, sums: Callable[[FlatLoss, Tensor, Batch], Tensor]
) -> Iterator[tuple[Tensor, int]]:
    """Yield sums over batches whose per-sample gradients fit in memory, and their sizes."""
    first, most = next(flat.batches(torch.arange(1))), LAYERWISE
    with evaluating(flat.model):
        width = flat.outputs(point, first.inputs).numel()
    if sums is _squared_gradient_sums:
        width, most = 1, 256
    size = max(1, AT_ONCE // (len(point) * width))
    for batch in flat.batches(size=min(size, most)):
        with evaluating(flat.model):
            yield sums(flat, point, batch), len(batch.target)


def _mean(parts: Iterator[tuple[Tensor, int]], flat: FlatLoss) -> Tensor:
    total = next(parts)[0].clone()
    for part, _ in parts:
        total += part
    return total / flat.samples


def _alone(flat: FlatLoss, point: Tensor, inputs: Inputs, target: Tensor) -> Tensor:
    return flat.sum(point, Batch(single(inputs), target[None], torch.arange(1)))


def single(inputs: Inputs) -> Inputs:
    """Make a batch of one sample."""
    if isinstance(inputs, dict):
        return {name: value[None] for name, value in inputs.items()}
    return tuple(value[None] for value in inputs)
