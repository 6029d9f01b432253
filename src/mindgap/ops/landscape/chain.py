"""A copy of a model that moves through weight space, rearranged so that a pass is cheap.

Three changes leave every value as it is. The first layer's output is affine in its weights, so on a
line or plane it is a sum of maps that are computed once for all points. A maximum pool comes before
a rising activation instead of after it. Maxima of 2 × 2 windows are taken by pairs.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from mindgap.core import Inputs, call, copied, with_weights
from mindgap.ops.models.sequence import in_sequence

_RISING = (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus)
_SHAPES = (nn.Flatten, nn.Identity)


class Moving:
    """A private copy of a model, whose trained weights are views of one vector.

    Args:
        model: It stays as it is.
        shapes: Names and shapes of the trained weights, in the order of the vector.
        center: The weights in the middle of the landscape.
        directions: One per row.
    """

    def __init__(
        self,
        model: nn.Module,
        shapes: Mapping[str, torch.Size],
        center: Tensor,
        directions: Tensor,
    ) -> None:
        self.model = copied(model).eval().requires_grad_(False)
        self.center, self.directions = center, directions
        self.vector = center.clone()
        parts = _parts(self.vector, shapes)
        for name, weight in self.model.named_parameters():
            if name in parts:
                weight.data = parts[name]
        self.layers = _chain(self.model)
        self._front = _front(self.layers)
        self._first = [_parts(row, shapes) for row in (center, *directions)]
        self._names = {id(weight): name for name, weight in self.model.named_parameters()}
        self._inputs: Inputs = ()
        self._maps: list[Tensor] = []
        self._base: tuple[Tensor, Tensor] | None = None

    def move(self, coordinates: Tensor) -> None:
        """Set the weights to the center plus this combination of the directions."""
        torch.addmv(self.center, self.directions.T, coordinates, out=self.vector)

    def take(self, inputs: Inputs) -> None:
        """Take the next samples; the first layer answers them once per direction."""
        self._base, self._maps, self._inputs = None, [], inputs
        if self._front and isinstance(inputs, tuple) and len(inputs) == 1:
            images = inputs[0].to(self.center)
            for layer in self.layers[: self._front - 1]:
                images = layer(images)
            self._maps = [self._answer(row, images, k) for k, row in enumerate(self._first)]

    def outputs(self, coordinates: Tensor) -> Tensor:
        """Compute the outputs for the samples at the center plus a combination of directions."""
        self.move(coordinates)
        if not self._maps:
            return call(self.model, self._inputs, self.center)
        found = self._combined(coordinates)
        for layer in self.layers[self._front :]:
            found = layer(found)
        return found

    def _combined(self, coordinates: Tensor) -> Tensor:
        # Along a row of a grid only the first coordinate changes: one sum per point is left.
        others = coordinates[1:]
        if self._base is None or not torch.equal(self._base[0], others):
            base = self._maps[0]
            for factor, part in zip(others.tolist(), self._maps[2:], strict=True):
                base = torch.add(base, part, alpha=factor)
            self._base = others, base
        return torch.add(self._base[1], self._maps[1], alpha=float(coordinates[0]))

    def _answer(self, weights: Mapping[str, Tensor], images: Tensor, place: int) -> Tensor:
        """The first layer's map of one direction: a weight that is not trained has none."""
        layer = self.layers[self._front - 1]
        own = {name: self._names[id(p)] for name, p in layer.named_parameters()}
        frozen = {
            name: p if place == 0 else torch.zeros_like(p) for name, p in layer.named_parameters()
        }
        given = {name: weights.get(own[name], frozen[name]) for name in own}
        found: Tensor = with_weights(layer, given, (images,), {})
        # A pool behind it takes maxima over windows, which are quick if their corners are apart.
        behind = self.layers[self._front] if self._front < len(self.layers) else None
        return behind.apart(found) if isinstance(behind, _PairMaxima) else found


class _PairMaxima(nn.Module):
    """The maxima of 2 × 2 windows, from images or from their four corners."""

    def apart(self, images: Tensor) -> Tensor:
        """Return the corners of all windows, each as one contiguous map."""
        height, width = (size // 2 * 2 for size in images.shape[-2:])
        rows = images[..., :height, :width].unflatten(-1, (-1, 2)).unflatten(-3, (-1, 2))
        corners: Tensor = rows.movedim((-3, -1), (0, 1)).flatten(0, 1).contiguous()
        return corners

    def forward(self, images: Tensor) -> Tensor:
        """Take maxima of two halves, twice."""
        if images.ndim == 5:
            images = torch.maximum(images[:2], images[2:])
            return torch.maximum(images[0], images[1])
        height, width = (size // 2 * 2 for size in images.shape[-2:])
        images = images[..., :height, :width]
        columns = torch.maximum(images[..., ::2], images[..., 1::2])
        return torch.maximum(columns[..., ::2, :], columns[..., 1::2, :])


def _parts(vector: Tensor, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    pieces = vector.split([shape.numel() for shape in shapes.values()])
    return {
        name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }


def _chain(model: nn.Module) -> list[nn.Module]:
    """The layers of nested sequences, rearranged; any other module is one layer."""
    if any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules()):
        return [model]
    layers = in_sequence(model)
    for place, (here, behind) in enumerate(pairwise(list(layers))):
        if type(here) in _RISING and type(behind) is nn.MaxPool2d and _slope(here) >= 0:
            layers[place : place + 2] = [behind, here]
    return [_PairMaxima() if _pairs_up(layer) else layer for layer in layers]


def _slope(layer: nn.Module) -> float:
    return float(getattr(layer, "negative_slope", 0.0))


def _pairs_up(layer: nn.Module) -> bool:
    if type(layer) is not nn.MaxPool2d or layer.ceil_mode or layer.return_indices:
        return False
    settings = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    wanted = (2, 2, 0, 1)
    return all(value in (want, (want, want)) for value, want in zip(settings, wanted, strict=True))


def _front(layers: Sequence[nn.Module]) -> int:
    """How many layers end with the first that has weights; 0 if it is not affine in them."""
    for place, layer in enumerate(layers):
        if type(layer) in (nn.Linear, nn.Conv2d):
            return place + 1
        if type(layer) not in _SHAPES:
            break
    return 0
