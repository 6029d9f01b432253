"""Networks written by hand: the tent map composed with itself, and sums of rectangles."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mindgap.core import InputError, integer, number, validated
from mindgap.nets.mlp import Stack


@validated
class Tri(Stack):
    r"""The tent map :math:`\mathrm{tri}(x) = 2\,\mathrm{relu}(x) - 4\,\mathrm{relu}(x - 1/2)`, composed.

    On [0, 1] it rises to one and falls back. Applied k times it has :math:`2^k` linear pieces, so the
    number of oscillations doubles with every layer of two units.

    Args:
        depth: How often the tent map is applied.

    >>> Tri(depth=2)(
    ...     torch.tensor([[0.0], [0.25], [0.5], [0.75]], dtype=torch.double)
    ... ).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0]
    """

    def __init__(self, depth: int = 1) -> None:
        layers = list[nn.Module]()
        for _ in range(integer("depth", depth)):
            layers += [
                _linear([[1.0], [1.0]], [0.0, -0.5]),
                nn.ReLU(),
                _linear([[2.0, -4.0]], [0.0]),
            ]
        super().__init__(*layers)


@validated
class Rect(nn.Module):
    r"""A sum of rectangles with steep sides, which approximates any function on [0, 1].

    Every rectangle is :math:`h\,[\,r(x - a) - r(x - b)\,]` with the ramp :math:`r(z) =
    (\mathrm{relu}(z) - \mathrm{relu}(z - \epsilon)) / \epsilon`: four units.

    Args:
        heights: Height of every rectangle; they share [0, 1] evenly.
        epsilon: Width of the sides. Double precision carries 1e-7.

    >>> net = Rect(heights=(0.4, 1.3, 0.8))
    >>> middles = torch.tensor([[1 / 6], [3 / 6], [5 / 6]], dtype=torch.double)
    >>> [round(value, 6) for value in net(middles).flatten().tolist()]
    [0.4, 1.3, 0.8]
    """

    def __init__(self, heights: Sequence[float] = (0.4, 1.3, 0.8), epsilon: float = 1e-7) -> None:
        super().__init__()
        if not heights:
            raise InputError("heights must hold at least one number, got none. Pass (0.4, 1.3).")
        width = 1 / len(heights)
        if not 0 < number("epsilon", epsilon) < width / 2:
            raise InputError(
                f"epsilon must be above 0 and below half a rectangle's width ({width / 2:g}), got "
                f"{epsilon:g}. Choose a smaller one."
            )
        starts = [k * width for k in range(len(heights))]
        shifts = [
            [-start, -start - epsilon, -start - width, -start - width - epsilon] for start in starts
        ]
        signs = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.double)
        weights = torch.cat([height / epsilon * signs for height in heights])
        flat = [shift for row in shifts for shift in row]
        self.hidden = _linear([[1.0]] * len(flat), flat)
        self.out = _linear([weights.tolist()], [0.0])

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the sum at inputs of shape (samples, 1)."""
        result: Tensor = self.out(torch.relu(self.hidden(inputs)))
        return result


def _linear(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight), dtype=torch.double)
    layer.weight.data.copy_(torch.tensor(weight, dtype=torch.double))
    layer.bias.data.copy_(torch.tensor(bias, dtype=torch.double))
    return layer
