"""Whether the Gauss–Newton matrix has the Hessian's diagonal: networks that do not bend."""

import torch
from torch import Tensor

from mindgap.core import generator
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.hessian_diagonal import output_hessians
from mindgap.ops.curvature.products import AT_ONCE, differentiating, pulled

FEW = 32  # samples on which the bend of the network is looked at
NUMBERS = 2**25  # of the directions that are multiplied together
NOTHING = 1e-6  # of the largest entry; what is smaller is rounding


def is_straight(flat: FlatLoss, *, seed: int = 0, samples: int = FEW) -> bool:
    r"""Tell whether the outputs are linear in the weights of every tensor by itself, in pieces.

    Networks of ReLU, leaky ReLU, max-pooling and batch normalization with fixed statistics are:
    each tensor is used once, in a linear layer. There the Hessian of the outputs has zero blocks on
    its diagonal, so that the Hessian of the loss has the diagonal of the Gauss–Newton matrix. A
    random quadratic form vanishes with probability zero if its matrix does not, so one random
    direction per tensor decides, for a random mixture of the outputs of some samples. The loss must
    be convex in the outputs, which is looked at for all samples.

    Args:
        flat: The loss.
        seed: Seed of the directions.
        samples: On how many samples the bend is looked at.

    >>> from torch import nn
    >>> from mindgap.core import Subject
    >>> data = (torch.ones(2, 3), torch.ones(2, 1))
    >>> def tried(bend):
    ...     net = nn.Sequential(nn.Linear(3, 4), bend, nn.Linear(4, 1))
    ...     return is_straight(FlatLoss(Subject(net, "mse", data)))
    >>> tried(nn.LeakyReLU()), tried(nn.Tanh())
    (True, False)
    """
    return _no_bend(flat, generator(seed), samples) and _is_convex(flat)


def _no_bend(flat: FlatLoss, source: torch.Generator, samples: int) -> bool:
    at = flat.point.requires_grad_()
    few = next(flat.batches(torch.arange(min(samples, flat.samples))))
    at_once = max(1, min(AT_ONCE, NUMBERS // len(at)))
    with differentiating(flat):
        outputs = flat.outputs(at, few.inputs)
        mixture = torch.randn(outputs.shape, generator=source).to(outputs)
        (slope,) = torch.autograd.grad((outputs * mixture).sum(), at, create_graph=True)
        blocks = torch.arange(len(flat.sizes)).repeat_interleave(torch.tensor(flat.sizes))
        return all(
            _vanishes(slope, at, part, blocks.to(at.device), source)
            for part in torch.arange(len(flat.sizes)).split(at_once)
        )


def _vanishes(
    slope: Tensor, at: Tensor, part: Tensor, blocks: Tensor, source: torch.Generator
) -> bool:
    """Multiply one direction per tensor, and look at what comes back to the same tensor."""
    own = blocks == part.to(at.device)[:, None]
    rows = torch.randn(own.shape, generator=source).to(at) * own
    found = pulled(slope, at, rows).abs()
    return bool(((found * own).amax(1) <= NOTHING * found.amax(1)).all())


def _is_convex(flat: FlatLoss) -> bool:
    own = flat.subject.outputs(flat.which)  # known from the first pass
    for batch in flat.batches():
        outputs = own[batch.index.to(own.device)]
        values = torch.linalg.eigvalsh(output_hessians(flat, outputs, batch.target))
        if bool((values[:, 0] < -NOTHING * values.abs().amax(1)).any()):
            return False
    return True
