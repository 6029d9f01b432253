"""The general engine: any model that ``torch.func.vmap`` takes, with stacked parameters.

The Gram engine: linear least squares on the whole data, where n samples shrink to a (d+1) × (d+1)
matrix.

With G = 2 Σᵢ wᵢ xᵢxᵢᵀ/n and h = 2 Σᵢ wᵢ yᵢxᵢ/n the gradient is Gθ - h and the loss θᵀ(Gθ - 2h)/2 +
c: no step touches the samples. Sums run in double precision, for the difference of two large terms
is small near the optimum.
"""

from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Inputs, call, seeded
from mindgap.training.batches import epoch_seed
from mindgap.training.vectorized.batches import aligned_targets
from mindgap.training.vectorized.dense import dense_chain
from mindgap.training.vectorized.engine import Engine, Weighted, untrained
from mindgap.training.vectorized.parameters import Store
from mindgap.training.vectorized.problem import Problem, Unsupported, all_trainable

_MOVING = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


class General(Engine):
    """One vectorized gradient of ``functional_call`` a step."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.model = problem.models[0].train()
        _check_modules(self.model)
        names = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        store = Store(problem.members, [tuple(p.shape) for p in names.values()], problem.like)
        self.adopt(store, dict(zip(names, store.segments, strict=True)))
        self._pulls = dict(zip(names, store.gradients, strict=True))
        rest = [untrained(model) for model in problem.models]
        self._fixed = {name: torch.stack([table[name] for table in rest]) for name in rest[0]}
        self._weights = torch.ones(problem.samples) if problem.weights is None else problem.weights
        self._weights = self._weights.to(problem.like)
        self._places = self.orders.places(1)
        self._slopes = torch.func.vmap(
            torch.func.grad_and_value(self._loss), randomness="different"
        )
        self._probe()

    def _loss(
        self, own: dict[str, Tensor], fixed: dict[str, Tensor], inputs: Inputs, *rest: Tensor
    ) -> Tensor:
        target, weights = rest
        output = call(Weighted(self.model, {**own, **fixed}), inputs, self.problem.like)
        return (self.problem.loss(output, target) * weights).mean()

    def _probe(self) -> None:
        """Try one batch; a model that does not vectorize, or not rightly, is refused."""
        try:
            with seeded(0):
                slopes, _ = self._slopes(*self._arguments(*self.bounds[0]))
        except Exception as error:  # whatever a foreign model raises under vmap
            raise Unsupported(
                f"vmap refuses the model ({' '.join(str(error).split())[:120]})"
            ) from error
        plain = [self._plain(seed) for seed in (0, 1)]
        if all(_near(plain[0][name], plain[1][name]) for name in plain[0]):
            wrong = [name for name, value in plain[0].items() if not _near(value, slopes[name][0])]
            if wrong:
                raise Unsupported(f"vmap gives another gradient for {wrong[0]}")

    def _plain(self, seed: int) -> dict[str, Tensor]:
        own, fixed, inputs, target, weights = self._arguments(*self.bounds[0])
        picked: Any = _first(inputs)
        with seeded(seed):
            found: dict[str, Tensor] = torch.func.grad(self._loss)(
                _first(own), _first(fixed), picked, target[0], weights[0]
            )
        return found

    def _arguments(self, start: int, stop: int) -> tuple[Any, ...]:
        places, problem = self._places[:, start:stop], self.problem
        weights = (
            self._weights[places] if self._weights.ndim == 1 else self._weights.gather(1, places)
        )
        inputs = problem.inputs
        taken: Any = (
            {name: value[places] for name, value in inputs.items()}
            if isinstance(inputs, dict)
            else tuple(value[places] for value in inputs)
        )
        return self.views, self._fixed, taken, problem.targets[places], weights

    def begin(self, epoch: int) -> None:
        """Draw the epoch's order, and seed the global generator, which the caller guards, for the model's own draws."""
        torch.default_generator.manual_seed(epoch_seed(self.problem.seeds[0], epoch))
        self._places = self.orders.places(epoch)

    def gradient(self, step: int) -> None:
        """One vectorized gradient, copied to its place."""
        slopes, values = self._slopes(*self._arguments(*self.bounds[step]))
        self.losses[step] = values
        for name, place in self._pulls.items():
            place.copy_(slopes[name])


def _check_modules(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, _MOVING) and module.track_running_stats:
            raise Unsupported(f"{type(module).__name__} keeps statistics of the batches it sees")


def _first(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: value[0] for name, value in values.items()}
    return tuple(value[0] for value in values)


def _near(left: Tensor, right: Tensor) -> bool:
    scale = float(left.abs().max()) if left.numel() else 0.0
    return bool(torch.allclose(left, right, rtol=1e-3, atol=1e-4 * scale + 1e-12, equal_nan=True))


_WIDEST = 64


class Gram(Engine):
    """Many linear regressions with squared loss, full batch, and weights of their own."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        all_trainable(problem)
        blocks, data = dense_chain(problem)
        linear = blocks[0].linear
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
        """``matrix`` is (d+1, d+1) or (d+1, d+1, 1, members); ``pull`` (d+1, outputs, members); ``rest`` (members,)."""
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
        """Every epoch is the same."""

    def gradient(self, step: int) -> None:
        """Gθ - h, and the loss from it."""
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
        """All members at once."""
        assert not isinstance(inputs, dict)
        rows = inputs[0].flatten(1).double()
        weights = self.store.segments[0]
        values = rows @ weights[:, : rows.shape[1]]
        values = values if rows.shape[1] == weights.shape[1] else values + weights[:, -1:]
        return values.to(self.problem.like)
