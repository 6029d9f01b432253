"""The gradients of single samples, some samples at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.func import grad

from mindgap.core import Batch, Inputs, evaluating
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.hessian_diagonal import AT_ONCE, single
from mindgap.ops.models.parameters import vmap_or_loop


def sample_gradients(flat: FlatLoss, point: Tensor) -> Iterator[Tensor]:
    """Yield the gradients of the samples' losses, one per row, in double precision.

    Args:
        flat: The loss.
        point: The weights, as one flat vector.

    >>> from torch import nn
    >>> from mindgap.core import Subject
    >>> subject = Subject(nn.Linear(1, 1, bias=False), "mse", (torch.ones(2, 1), torch.zeros(2, 1)))
    >>> [rows.tolist() for rows in sample_gradients(FlatLoss(subject), torch.tensor([3.0]))]
    [[[6.0], [6.0]]]
    """

    def one(inputs: Inputs, target: Tensor) -> Tensor:
        batch = Batch(single(inputs), target[None], torch.arange(1))
        found: Tensor = grad(lambda at: flat.sum(at, batch))(point)
        return found

    size = max(1, min(AT_ONCE // len(point), 256))
    with evaluating(flat.model):
        for batch in flat.batches(size=size):
            yield vmap_or_loop(one, batch.inputs, batch.target).detach().double()
