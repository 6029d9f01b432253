"""A dense ReLU network in double precision, and what one pass through it leaves at every layer."""

import dataclasses

import torch
from torch import Tensor
from torch.nn import functional

from mindgap.core import Subject, Undefined
from mindgap.ops.paths.chain import Chain, Pool, Rectifier, Weights
from mindgap.ops.paths.subject import chain_of


@dataclasses.dataclass(frozen=True)
class Pass:
    """What samples leave at every layer.

    Args:
        entered: Inputs of the layers, φ(x⁰) to φ(xᵈ⁻¹), one row per sample.
        left: Outputs of the layers before their activation, x¹ to xᵈ.
        gates: Slopes of the activation at x¹ to xᵈ⁻¹.
    """

    entered: list[Tensor]
    left: list[Tensor]
    gates: list[Tensor]


@dataclasses.dataclass(frozen=True)
class DenseNet:
    """Dense layers with a ReLU, a leaky ReLU or nothing between them.

    Args:
        weights: One matrix per layer, outputs first.
        biases: One vector per layer, or None.
        slopes: Slope of the activation below zero, one per hidden layer; 1 if there is none.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    slopes: tuple[float, ...]

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.weights)

    def layer(self, number: int, entered: Tensor) -> Tensor:
        """Apply one layer without its activation."""
        return functional.linear(entered, self.weights[number], self.biases[number])

    def activate(self, number: int, left: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the activation behind a hidden layer gives, and its slopes."""
        gate = torch.where(left > 0, left.new_ones(()), left.new_tensor(self.slopes[number]))
        return left * gate, gate

    def run(self, inputs: Tensor) -> Pass:
        """Pass samples through all layers.

        >>> net = DenseNet((torch.eye(2), torch.ones(1, 2)), (None, None), (0.0,))
        >>> net.run(torch.tensor([[1.0, -1.0]])).left[-1].tolist()
        [[1.0]]
        """
        entered, left, gates = [inputs], list[Tensor](), list[Tensor]()
        for number in range(self.depth):
            left.append(self.layer(number, entered[-1]))
            if number < self.depth - 1:
                active, gate = self.activate(number, left[-1])
                entered.append(active)
                gates.append(gate)
        return Pass(entered, left, gates)

    def after(self, number: int, left: Tensor) -> list[Tensor]:
        """Return what later layers make of another output of one layer, in order."""
        found = list[Tensor]()
        for later in range(number + 1, self.depth):
            left = self.layer(later, self.activate(later - 1, left)[0])
            found.append(left)
        return found


def dense_net(subject: Subject) -> DenseNet:
    """Read a subject's model as a dense ReLU network; raise Undefined, with the reason, if it is none.

    Batch normalization behind a layer is folded into it.

    >>> from mindgap.nets import MLP
    >>> data = torch.eye(2), torch.tensor([0, 1])
    >>> dense_net(Subject(MLP((2, 3, 2)), "cross_entropy", data)).depth
    2
    """
    chain = chain_of(subject)
    if not is_dense(chain):
        raise Undefined(
            "needs fully connected layers, got a convolution: its weights are shared, so that the "
            "theorem's random projections do not apply to the matrix that it stands for"
        )
    return _as_net(chain)


def is_dense(chain: Chain) -> bool:
    """Tell whether a chain has neither convolutions nor pooling."""
    return not any(
        isinstance(step, Pool) or (isinstance(step, Weights) and step.window is not None)
        for step in chain.steps
    )


def _as_net(chain: Chain) -> DenseNet:
    slopes, layers = list[float](), list[Weights]()
    behind = True  # a layer, not an activation, must come first
    for step in chain.steps:
        if isinstance(step, Weights):
            slopes += [1.0] if layers and not behind else []
            layers.append(step)
            behind = False
        elif isinstance(step, Rectifier) and layers and not behind:
            slopes.append(step.slope)
            behind = True
        else:
            raise Undefined("needs dense layers with at most one ReLU between two of them")
    if behind:
        raise Undefined("needs a network whose outputs are those of a dense layer")
    return DenseNet(
        tuple(layer.weight for layer in layers),
        tuple(layer.bias for layer in layers),
        tuple(slopes),
    )
