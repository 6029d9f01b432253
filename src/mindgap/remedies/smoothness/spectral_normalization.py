"""Spectral normalization: a limit on the operator norm of every layer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mindgap.core import InputError, Remedy, TrainingState, option
from mindgap.ops.norms.weighted import CONVOLUTIONS, TRANSPOSED, WeightedLayer, weighted_layer

_COLD = 30  # iterations from a random vector; later steps begin where the last one ended


class SpectralNormalization(Remedy):
    r"""Scales layers down after every step so that their operator norms stay below a limit.

    Formula: $W_l \leftarrow W_l \cdot \min\left(1, \frac{c}{\lVert A_l \rVert_2}\right), \qquad A_l
    \text{: the map of layer } l$

    Reading: No layer stretches a difference between two inputs by more than c, so that L layers in
    a row change it by at most a factor of $c^L$. The norm of a convolution is that of the whole map at
    the shape of its real input, stride, padding and groups included, not that of the kernel written
    as a matrix. While training, power iteration follows it from below. At the end it is computed to
    five digits, and the limit holds for the model that is handed over. Batch normalization is limited
    by its factor |γ| / √(v + ε) in evaluation mode. Zero turns it off.

    Assumes: Linear layers, convolutions and batch normalization; other layers and frozen ones are left
    alone, and what is added around layers, such as a skip connection, is not counted. Images of one
    size.

    >>> from mindgap import Recipe, fit, nets
    >>> inputs = torch.linspace(-1, 1, 16)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 8, 1)), train=(inputs, 9 * inputs), loss="mse")
    >>> model = fit(recipe, [SpectralNormalization(limit=0.5)]).model
    >>> slope = (model(inputs[-1:]) - model(inputs[:1])) / 2
    >>> bool(slope <= 0.25)
    True
    """

    method = ("S5",)
    cites = ("gouk2021regularisation", "miyato2018spectral")
    strength = "limit"
    treats = frozenset({"adversarial inputs", "noise sensitivity"})
    cost = 1.3

    # Chosen on validation data: see benchmarks/spectral_limit.py.
    limit: float = option(6.0, help="largest operator norm c of a layer; 0 is off", low=0)
    iterations: int = option(1, help="power iterations per step and layer", low=1)

    def backward(self, state: TrainingState, closure: Callable[[], Tensor]) -> Tensor:
        """Learn the shapes of the layers' inputs in the first step."""
        if "shapes" in state.memory:
            return closure()
        with _shapes(state.model) as shapes:
            loss = closure()
        if not shapes:
            raise InputError(
                "Spectral normalization must see the call of a linear layer or a convolution, got "
                f"none in {type(state.model).__name__}. Leave the remedy out."
            )
        state.memory["shapes"] = shapes
        return loss

    def after_step(self, state: TrainingState) -> None:
        """Scale down what the step made too large."""
        vectors = state.memory.setdefault("vectors", {})
        with torch.no_grad():
            for name, module, shape, left in _known(state):
                layer = WeightedLayer(name, module, _weight(module), None, shape, left)
                known = name in vectors
                if not known:
                    random = torch.Generator().manual_seed(state.random(f"{self.name} {name}"))
                    vectors[name] = torch.randn(1, *layer.shape, generator=random)
                count = self.iterations if known else _COLD
                norm, vectors[name] = _iterated(layer, vectors[name].to(layer.weight), count)
                self._limit(layer.weight, norm)
            self._limit_normalizations(state.model)

    def finish(self, state: TrainingState) -> nn.Module:
        """Compute the norms once more, exactly, and scale down what is still too large."""
        with torch.no_grad():
            for name, module, shape, left in _known(state):
                norm = weighted_layer(name, module, shape, left).norm().value
                self._limit(_weight(module), torch.tensor(norm, dtype=torch.float64))
            self._limit_normalizations(state.model)
        return state.model

    def _limit(self, weight: Tensor, norm: Tensor) -> None:
        weight.mul_((self.limit / norm.clamp_min(self.limit)).to(weight))

    def _limit_normalizations(self, model: nn.Module) -> None:
        for module in model.modules():
            if not isinstance(module, _BatchNorm) or module.running_var is None:
                continue
            if module.affine and module.weight.requires_grad:
                factors = module.weight.abs() / (module.running_var + module.eps).sqrt()
                self._limit(module.weight.data, factors.amax())


def _weight(module: Any) -> Tensor:
    found: Tensor = module.weight.data
    return found


def _known(state: TrainingState) -> Iterator[tuple[str, nn.Module, Any, Any]]:
    """Go through the layers whose shapes are known."""
    modules = dict(state.model.named_modules())
    for name, (shape, left) in state.memory.get("shapes", {}).items():
        yield name, modules[name], tuple(shape), tuple(left)


def _iterated(layer: WeightedLayer, vector: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return ‖Av‖ for a unit vector v after some power iterations, and the next v."""
    for _ in range(count):
        with torch.enable_grad():
            start = (
                vector / vector.norm().clamp_min(torch.finfo(vector.dtype).tiny)
            ).requires_grad_()
            end = layer(start)
        # One backward pass applies the adjoint, whatever stride and padding are.
        (back,) = torch.autograd.grad(end, start, end.detach())
        vector = torch.where(back.norm() > 0, back, vector)  # weights of zero would keep it there
    return end.detach().norm(), vector


@contextmanager
def _shapes(model: nn.Module) -> Iterator[dict[str, Any]]:
    """Note the shapes of one input and one output of every layer that is called."""
    found = dict[str, Any]()

    def note(name: str) -> Any:
        def hook(module: nn.Module, given: tuple[Any, ...], left: Tensor) -> None:
            shapes = tuple(given[0].shape[1:]), tuple(left.shape[1:])
            dense = isinstance(module, nn.Linear)
            found.setdefault(name, tuple(shape[-1:] if dense else shape for shape in shapes))

        return hook

    kinds = (nn.Linear, *CONVOLUTIONS, *TRANSPOSED)
    handles = [
        module.register_forward_hook(note(name))
        for name, module in model.named_modules()
        if isinstance(module, kinds) and module.weight.requires_grad
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
