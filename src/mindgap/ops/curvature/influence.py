r"""What one Newton step predicts for the model without a sample, from its outputs' derivatives.

With the Jacobian :math:`J_i` of a sample's outputs, the Hessian :math:`\Lambda_i` of its loss by
its outputs, and :math:`A = \sum_j J_j^\top \Lambda_j J_j + n \mu I`, removing sample i moves the
minimum of the quadratic model by :math:`A^{-1} J_i^\top (I - \Lambda_i L_i)^{-1} r_i`, where
:math:`L_i = J_i A^{-1} J_i^\top` is the sample's leverage and :math:`r_i` the gradient of its loss.
The bracket is Cook's correction. Without it the sample would still be in the matrix A.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import jacrev, vjp, vmap

from mindgap.core import InputError, Inputs, Subject, evaluating
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.hessian_diagonal import output_roots, single
from mindgap.ops.models.head import find_head, head_features, head_outputs, layer_of
from mindgap.ops.models.parameters import vmap_or_loop

LARGEST = 3000  # rows of a matrix whose eigenvalues are computed
ENTRIES = 100_000_000  # of a Jacobian that is held in memory
AT_ONCE = 8_000_000  # entries of the Jacobian of a block of samples

Rows = Callable[[Tensor], Tensor]


def output_derivatives(flat: FlatLoss) -> tuple[Tensor, Tensor]:
    """Compute gradient and Hessian of every sample's loss by its outputs, in double precision.

    Negative curvature counts as none.

    Args:
        flat: The loss.

    Returns:
        Tensors of shape (samples, outputs) and (samples, outputs, outputs).
    """
    outputs, targets = flat.subject.outputs(flat.which), flat.subject.targets(flat.which)
    roots = output_roots(flat, outputs, targets).flatten(2).double()

    def loss(output: Tensor, truth: Tensor) -> Tensor:
        return flat.subject.loss(output[None], truth[None]).sum()

    truth = targets.double() if targets.is_floating_point() else targets
    gradient = vmap(jacrev(loss))(outputs.double(), truth).flatten(1)
    return gradient, roots.transpose(1, 2) @ roots


def jacobian_rows(subject: Subject) -> tuple[Rows, int]:
    """Return a function that computes Jacobians by all weights, and the number of weights.

    Args:
        subject: Model and training data.
    """
    flat = FlatLoss(subject)
    point = flat.point

    def one(inputs: Inputs) -> Tensor:
        outputs, back, *_ = vjp(lambda at: flat.outputs(at, single(inputs)).flatten(), point)
        (found,) = vmap(back)(torch.eye(len(outputs)).to(outputs))
        rows: Tensor = found
        return rows

    def rows(index: Tensor) -> Tensor:
        with evaluating(subject.model), torch.enable_grad():
            return vmap_or_loop(one, subject.train.take(index).inputs).detach().double()

    return rows, len(point)


def head_rows(subject: Subject) -> tuple[Rows, int]:
    """Return a function that computes Jacobians by the last layer, and the number of its weights.

    Args:
        subject: Model and training data; the last layer's output must be the model's.
    """
    name = find_head(subject)
    layer, features = layer_of(subject.model, name), head_features(subject)
    outputs = subject.outputs("train")
    outputs = outputs.reshape(len(outputs), -1)
    if not torch.allclose(head_outputs(subject, features, name), outputs, atol=1e-5):
        raise InputError(
            f"The influence of the last layer needs a model that ends with it, got {name!r}, whose "
            "output is not the model's. Choose weights='all'."
        )
    inputs = features.double()
    if layer.bias is not None:
        inputs = torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
    count = outputs.shape[1]

    def rows(index: Tensor) -> Tensor:
        eye = torch.eye(count).to(inputs)
        return (eye[None, :, :, None] * inputs[index][:, None, None, :]).flatten(2)

    return rows, count * inputs.shape[1]


def leverages(rows: Rows, weights: int, curvature: Tensor, dampings: Sequence[float]) -> Tensor:
    """Compute the leverage J A⁻¹ Jᵀ of every sample, for several dampings.

    The eigenvalues are those of the smaller side: weights, or samples times outputs.

    Args:
        rows: Computes the Jacobians of the samples at some places: (places, outputs, weights).
        weights: The number of weights.
        curvature: The Hessian of every sample's loss by its outputs.
        dampings: Values of μ.

    Returns:
        A tensor of shape (dampings, samples, outputs, outputs).

    >>> x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    >>> found = leverages(lambda index: x[index][:, None], 1, torch.ones(2, 1, 1).double(), [0.5])
    >>> found.flatten().tolist()  # x² / (1 + 4 + 2 · 0.5)
    [0.16666666666666666, 0.6666666666666666]
    """
    samples, outputs = curvature.shape[:2]
    answers = samples * outputs
    if answers <= min(weights, LARGEST) and answers * weights <= ENTRIES:
        return _by_outputs(rows(torch.arange(samples)), curvature, dampings)
    if weights <= LARGEST:
        return _by_weights(rows, weights, curvature, dampings)
    raise InputError(
        f"Influence of all weights needs at most {LARGEST:,} weights or {LARGEST:,} outputs of all "
        f"samples together, got {weights:,} and {answers:,}. Choose weights='head'."
    )


def _by_weights(rows: Rows, weights: int, curvature: Tensor, dampings: Sequence[float]) -> Tensor:
    samples, outputs = curvature.shape[:2]
    blocks = torch.arange(samples).split(max(1, AT_ONCE // (weights * outputs)))
    total = torch.zeros(weights, weights, dtype=torch.float64, device=curvature.device)
    for index in blocks:
        block = rows(index)
        total += (curvature[index] @ block).flatten(0, 1).T @ block.flatten(0, 1)
    values, vectors = torch.linalg.eigh((total + total.T) / 2)
    found = []
    for index in blocks:
        turned = rows(index) @ vectors
        scales = [1 / (values.clamp(min=0) + samples * damping) for damping in dampings]
        found.append(torch.stack([(turned * one) @ turned.transpose(1, 2) for one in scales]))
    return torch.cat(found, 1)


def _by_outputs(block: Tensor, curvature: Tensor, dampings: Sequence[float]) -> Tensor:
    """Use (JᵀBBᵀJ + εI)⁻¹ = (I − JᵀB(εI + BᵀJJᵀB)⁻¹BᵀJ)/ε, where BBᵀ is the curvature."""
    samples, outputs = curvature.shape[:2]
    values, vectors = torch.linalg.eigh(curvature)
    root = torch.block_diag(*(vectors * values.clamp(min=0).sqrt()[:, None, :]))
    flat = block.flatten(0, 1)
    gram = flat @ flat.T
    known, basis = torch.linalg.eigh(root.T @ gram @ root)
    turned = (gram @ root @ basis).view(samples, outputs, -1)
    own = block @ block.transpose(1, 2)
    found = []
    for damping in dampings:
        ridge = samples * damping
        inner = (turned / (ridge + known.clamp(min=0))) @ turned.transpose(1, 2)
        found.append((own - inner) / ridge)
    return torch.stack(found)


def removal_shifts(
    leverage: Tensor, curvature: Tensor, gradient: Tensor, *, corrected: bool = True
) -> Tensor:
    """Predict how much the outputs of every sample move when it is removed.

    Args:
        leverage: J A⁻¹ Jᵀ of every sample.
        curvature: The Hessian of its loss by its outputs.
        gradient: The gradient of its loss by its outputs.
        corrected: Whether the sample also leaves the matrix A.

    >>> one = torch.ones(1, 1, 1)  # squared loss: half of the fit is due to the sample itself
    >>> removal_shifts(one / 4, 2 * one, one[0]).tolist()
    [[0.5]]
    """
    if corrected:
        eye = torch.eye(leverage.shape[1]).to(leverage)
        gradient = torch.linalg.solve(eye - curvature @ leverage, gradient[..., None])[..., 0]
    return (leverage @ gradient[..., None])[..., 0]


def removal_rises(subject: Subject, shifts: Tensor) -> Tensor:
    """Compute the exact loss of every training sample at its moved outputs, minus the present one.

    Args:
        subject: Model, loss and data.
        shifts: How much the outputs move.
    """
    outputs, targets = subject.outputs("train").double(), subject.targets("train")
    truth = targets.double() if targets.is_floating_point() else targets
    moved = outputs + shifts.view(outputs.shape)
    return (subject.loss(moved, truth) - subject.loss(outputs, truth)).detach().cpu()
