"""The Gram engine: linear least squares, where no step touches the samples.

With G = 2 Σᵢ wᵢ xᵢxᵢᵀ/n and h = 2 Σᵢ wᵢ yᵢxᵢ/n the gradient is Gθ - h and the loss θᵀ(Gθ - 2h)/2 +
c. So n samples shrink to a matrix of (d+1) × (d+1) numbers. Sums run in double precision, because
the difference of two large terms is small near the optimum.
"""

import torch
from torch import Tensor

from mindgap.core import Inputs
from mindgap.training.vectorized.batches import aligned_targets
from mindgap.training.vectorized.dense import dense_chain
from mindgap.training.vectorized.engine import Engine
from mindgap.training.vectorized.parameters import Store
from mindgap.training.vectorized.problem import Problem, Unsupported, all_trainable

_WIDEST = 64  # columns; beyond, products with the samples are faster than with their squares


class Gram(Engine):
    """Many linear regressions with squared loss, full batch, and weights of their own."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        all_trainable(problem)
        blocks, data = dense_chain(problem)
        linear = blocks[0].linear
        if problem.hooks.changes_inputs or problem.hooks.changes_losses:
            raise Unsupported("remedies change what a sample contributes in each step")
        if len(blocks) > 1 or blocks[0].stages or problem.named_loss != "mse" or not problem.full:
            raise Unsupported("this is not linear least squares on the whole data")
        if blocks[0].columns > min(_WIDEST, problem.samples) or data.shape[1] != linear.in_features:
            raise Unsupported("the Gram matrix would be larger than the data")
        rows = (
            torch.cat([data, torch.ones_like(data[:, :1])], 1) if linear.bias is not None else data
        )
        columns, width = blocks[0].columns, blocks[0].width
        store = Store(
            problem.members,
            [(columns, width)],
            torch.empty(0, dtype=torch.float64),
            members_last=True,
        )
        views = {f"{blocks[0].name}weight": store.segments[0][:, : linear.in_features].mT}
        if linear.bias is not None:
            views[f"{blocks[0].name}bias"] = store.segments[0][:, -1]
        self.adopt(store, views)
        self._point, self._slope = (
            part.movedim(0, -1) for part in (store.segments[0], store.gradients[0])
        )
        self._work = torch.empty_like(self._slope)
        self._sums(problem, rows.double(), aligned_targets(problem, width).double())

    def _sums(self, problem: Problem, rows: Tensor, targets: Tensor) -> None:
        """Compute G as ``matrix``, h as ``pull`` and c as ``rest``.

        The shapes are (d+1, d+1), or (d+1, d+1, 1, members) if members have weights of their own;
        (d+1, outputs, members); and (members,).
        """
        samples, width = targets.shape
        squares = (rows[:, :, None] * rows[:, None]).flatten(1)
        products = (rows[:, :, None] * targets[:, None]).flatten(1)
        weights = (
            torch.ones(1, samples, dtype=rows.dtype)
            if problem.weights is None
            else problem.weights.double()
        )
        weights, scale = weights.view(-1, samples).t(), 2 / (samples * width)
        matrix = (squares.t() @ weights).mul_(scale)
        self.pull = (products.t() @ weights).mul_(scale).view(rows.shape[1], width, -1)
        self.rest = weights.t() @ targets.square().sum(1) * (scale / 2)
        self.shared = weights.shape[1] == 1
        square = (rows.shape[1], rows.shape[1])
        self.matrix = matrix.view(square) if self.shared else matrix.view(*square, 1, -1)

    def begin(self, epoch: int) -> None:
        """Do nothing: every epoch is the same."""

    def gradient(self, step: int) -> None:
        """Compute Gθ - h, and the loss from it."""
        slope, point = self._slope, self._point
        if self.shared:
            torch.mm(self.matrix, point.flatten(1), out=slope.flatten(1))
            slope.sub_(self.pull)
        else:
            torch.mul(self.matrix[0], point[0], out=slope)
            for row, value in zip(self.matrix[1:], point[1:], strict=True):
                slope.addcmul_(row, value)
            slope.sub_(self.pull)
        torch.sub(slope, self.pull, out=self._work)
        self.losses[step] = self._work.mul_(point).sum((0, 1)).mul_(0.5).add_(self.rest)

    def outputs(self, inputs: Inputs) -> Tensor:
        """Compute the outputs of all members at once."""
        assert not isinstance(inputs, dict)
        rows = inputs[0].flatten(1).double()
        weights = self.store.segments[0]
        values = rows @ weights[:, : rows.shape[1]]
        values = values if rows.shape[1] == weights.shape[1] else values + weights[:, -1:]
        return values.to(self.problem.like)
