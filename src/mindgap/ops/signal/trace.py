"""The gradient of a trained model along its layers, from one pass over training samples."""

import dataclasses
import math
from collections.abc import Mapping

import torch

from mindgap.core import Subject
from mindgap.ops.evidence.passes import affordable, some_places
from mindgap.ops.signal.depth import Profile
from mindgap.ops.signal.watch import TIME, Watch

SAMPLES = 256
HELD = 4  # times fewer samples of a large model, because the graph of all of them is held in memory


@dataclasses.dataclass(frozen=True)
class Trace:
    """The gradient by the outputs of layers.

    Args:
        layers: Its norm at every layer with a matrix, from the first called to the last.
        times: Of recurrent layers, the norm at every step of a sequence.
    """

    layers: Mapping[str, float]
    times: Mapping[str, tuple[float, ...]]

    @property
    def profile(self) -> Profile:
        """The gradient along the layers."""
        return Profile(tuple(self.layers.values()))


def gradient_trace(subject: Subject) -> Trace | None:
    """Pass training samples forward and the gradient of their mean loss backward.

    Args:
        subject: Its model is called in evaluation mode. Nothing in it is changed.

    Returns:
        The norms; None if the model has no gradient, or one that is no number.

    >>> model = torch.nn.Sequential(*[torch.nn.Linear(2, 2, bias=False) for _ in range(3)])
    >>> with torch.no_grad():
    ...     for layer in model:
    ...         _ = layer.weight.copy_(torch.eye(2) / 2)
    >>> trace = gradient_trace(Subject(model, "mse", (torch.ones(8, 2), torch.ones(8, 2))))
    >>> [round(value / trace.layers["2"], 3) for value in trace.layers.values()]
    [0.25, 0.5, 1.0]
    """
    return subject.cached("gradient trace", lambda: _trace(subject))


def _trace(subject: Subject) -> Trace | None:
    model = subject.model
    matrices = {
        name
        for name, module in model.named_modules()
        if any(p.ndim > 1 and p.requires_grad for p in module.parameters(recurse=False))
    }
    weights = [p for p in model.parameters() if p.requires_grad]
    most = affordable(subject, SAMPLES, passes=3 * HELD)
    batch = subject.train.take(some_places(subject, "train", most))
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.enable_grad(), Watch(model) as watch:
            outputs = subject.checked_forward(batch.inputs)
            loss = subject.loss(outputs, subject.targets("train")[batch.index]).mean()
            if not weights or not loss.requires_grad or not math.isfinite(float(loss.detach())):
                return None
            torch.autograd.grad(loss, weights, allow_unused=True)
    finally:
        for module, mode in modes:
            module.training = mode
    passed = watch.passed()
    layers = {
        name: row.backward
        for name, row in passed.items()
        if name in matrices and row.backward is not None
    }
    times = {name: row.calls for name, row in passed.items() if len(row.calls) >= TIME}
    whole = [*layers.values(), *(value for row in times.values() for value in row)]
    return Trace(layers, times) if all(map(math.isfinite, whole)) else None
