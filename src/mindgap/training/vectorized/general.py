"""The general engine: any model that ``torch.func.vmap`` takes, with stacked parameters."""

from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Inputs, call, seeded
from mindgap.training.batches import epoch_seed
from mindgap.training.vectorized.engine import Engine, Weighted, untrained
from mindgap.training.vectorized.parameters import Store
from mindgap.training.vectorized.problem import Problem, Unsupported

_MOVING = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


class General(Engine):
    """One vectorized gradient of ``functional_call`` per step."""

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
        return (self.problem.loss(self._forward(own, fixed, inputs), target) * weights).mean()

    def _forward(self, own: dict[str, Tensor], fixed: dict[str, Tensor], inputs: Inputs) -> Tensor:
        return call(Weighted(self.model, {**own, **fixed}), inputs, self.problem.like)

    def _probe(self) -> None:
        """Try one batch; refuse a model that does not vectorize, or not correctly.

        Some models give another gradient under ``vmap`` without an error, so that of the first
        member is compared with the plain one. A model with noise of its own has none to compare
        with: its gradients differ between two seeds, and the comparison is left out.
        """
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
        if problem.hooks.changes_inputs:
            taken = self._hooked(taken)
        return self.store.views, self._fixed, taken, problem.targets[places], weights

    def _hooked(self, taken: Any) -> Any:
        hook, members = self.problem.hooks.inputs, range(self.problem.members)
        if isinstance(taken, dict):
            rows = [hook(k, {name: value[k] for name, value in taken.items()}) for k in members]
            return {name: torch.stack([row[name] for row in rows]) for name in taken}
        found = [hook(k, tuple(value[k] for value in taken)) for k in members]
        return tuple(torch.stack(list(column)) for column in zip(*found, strict=True))

    def begin(self, epoch: int) -> None:
        """Draw the epoch's order, and seed the global generator for the model's own noise.

        The caller restores the state of the global generator at the end.
        """
        torch.default_generator.manual_seed(epoch_seed(self.problem.seeds[0], epoch))
        self._places = self.orders.places(epoch)

    def gradient(self, step: int) -> None:
        """Compute one vectorized gradient and copy it to its place."""
        arguments = self._arguments(*self.bounds[step])
        hooked = self.problem.hooks.changes_losses
        slopes, values = (self._by_hooks if hooked else self._slopes)(*arguments)
        self.losses[step] = values
        for name, place in self._pulls.items():
            place.copy_(slopes[name])

    def _by_hooks(self, own: Any, fixed: Any, inputs: Any, *rest: Tensor) -> tuple[Any, Tensor]:
        """Compute outputs at once, losses member by member, and pull the derivative back."""
        run = torch.func.vmap(self._forward, randomness="different")
        found: Any = torch.func.vjp(lambda weights: run(weights, fixed, inputs), own)
        outputs, pull = found
        slope, values = self.problem.hooks.slopes(range(len(outputs)), outputs, *rest)
        return pull(slope)[0], values


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
