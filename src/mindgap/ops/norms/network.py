"""The layers of a subject's network whose norms count, with batch normalization folded."""

import dataclasses
import math

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Inputs, Subject, Undefined, copied, mapped, values
from mindgap.ops.norms.folding import LAYERS, as_double, folded
from mindgap.ops.norms.singular import TOLERANCE, Singular
from mindgap.ops.norms.watch import Call, as_inputs, watched
from mindgap.ops.norms.weighted import WeightedLayer, weighted_layer


@dataclasses.dataclass(frozen=True)
class Network:
    """The weighted layers of a network in the order of their calls.

    Args:
        layers: Dense layers and convolutions, with batch normalization folded.
        calls: The calls of all layers of the folded network.
        chain: Whether each layer gets exactly what the one before it returned, and nothing else
            happens between them.
        skipped: Modules with weights that are no such layers, and why they do not count.
        approximated: Layers for which a norm is approximated, and how.
    """

    layers: tuple[WeightedLayer, ...]
    calls: tuple[Call, ...]
    chain: bool
    skipped: dict[str, str]
    approximated: dict[str, str]

    @property
    def support(self) -> dict[str, object]:
        """What counted, for a result's details."""
        counted = {layer.name: layer.kind for layer in self.layers}
        return {"counted": counted, "skipped": self.skipped, "approximated": self.approximated}


def network_of(subject: Subject, which: str = "final") -> Network:
    """Read the network of a subject; raise Undefined, with the reason, where it has no norms.

    Args:
        subject: Its model is not changed.
        which: ``"final"``, or ``"initial"`` for the weights from before training.

    >>> data = torch.eye(2), torch.tensor([0, 1])
    >>> network = network_of(Subject(nn.Linear(2, 2), "cross_entropy", data))
    >>> [layer.kind for layer in network.layers]
    ['dense']
    """
    return subject.cached(("norms: network", which), lambda: _read(subject, which))


def _read(subject: Subject, which: str) -> Network:
    model = subject.model
    if which == "initial":
        assert subject.initial is not None
        model = copied(model)
        model.load_state_dict(subject.initial)
    inputs = subject.train.take(torch.arange(min(4, len(subject.train)))).inputs
    try:
        plain = folded(model, inputs).model
    except InputError as error:
        raise Undefined(str(error)) from error
    return _read_network(plain, inputs)


def _read_network(model: nn.Module, inputs: Tensor | Inputs) -> Network:
    """Read the weighted layers of a model without batch normalization, in double precision."""
    given = mapped(as_inputs(inputs), as_double)
    calls, output = watched(model, given)
    layers = tuple(
        weighted_layer(seen.name, seen.module, seen.shape, seen.out)
        for seen in calls
        if isinstance(seen.module, LAYERS)
    )
    if not layers:
        raise Undefined("needs a dense layer or a convolution that the model calls")
    known = {layer.name for layer in layers}
    skipped = {
        name: f"{type(module).__name__} is no dense layer or convolution that is called"
        for name, module in model.named_modules()
        if name not in known and list(module.parameters(recurse=False))
    }
    approximated = {
        layer.name: "rows of places that padding repeats are added as squares"
        for layer in layers
        if getattr(layer.module, "padding_mode", "zeros") != "zeros"
    }
    return Network(layers, tuple(calls), _is_chain(given, calls, output), skipped, approximated)


def _is_chain(inputs: Inputs, calls: list[Call], output: Tensor) -> bool:
    """Compare what every layer gets with what the one before it returned."""
    before = [*values(inputs), *(seen.left for seen in calls)]
    after = [*(seen.entered for seen in calls), output]
    return len(before) == len(after) and all(map(_same, before, after))


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or one.numel() != other.numel():
        return False
    return torch.equal(one.flatten(), other.flatten())


def changes_of(subject: Subject) -> tuple[WeightedLayer, ...]:
    """Return the layers with the difference of their final and initial weights as weights.

    >>> model = nn.Linear(2, 2)
    >>> initial = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    >>> data = torch.eye(2), torch.tensor([0, 1])
    >>> subject = Subject(model, "cross_entropy", data, initial=initial)
    >>> bool((changes_of(subject)[0].weight == model.weight.double()).all())
    True
    """
    pairs = zip(network_of(subject).layers, network_of(subject, "initial").layers, strict=True)
    return tuple(
        dataclasses.replace(
            now,
            weight=now.weight - then.weight,
            bias=None if now.bias is None or then.bias is None else now.bias - then.bias,
        )
        for now, then in pairs
    )


def spectral_norms(subject: Subject, convention: str, *, change: bool = False) -> list[Singular]:
    """Compute the spectral norm of every layer, or of its change since the start, once.

    Args:
        subject: The model.
        convention: ``"operator"``, ``"kernel"``, or ``"image"`` for convolutions that are taken as
            circular ones of the size of the subject's images.
        change: Whether the initial weights are subtracted.
    """

    def make() -> list[Singular]:
        layers = changes_of(subject) if change else network_of(subject).layers
        if convention == "image":
            sizes = _image_size(subject)
            return [layer.circular_norm(sizes) for layer in layers]
        return [layer.norm(convention) for layer in layers]

    return subject.cached(("norms: spectral", convention, change), make)


def _image_size(subject: Subject) -> tuple[int, ...]:
    first = values(subject.train.take(torch.arange(1)).inputs)[0]
    return tuple(first.shape[2:])


def converged(norms: list[Singular]) -> bool:
    """Tell whether every iteration reached its tolerance."""
    return all(norm.residual <= TOLERANCE for norm in norms)


def frobenius(layer: WeightedLayer, convention: str) -> float:
    """Compute the Frobenius norm of a layer's map, or of its kernel.

    >>> layer = weighted_layer("", nn.Linear(2, 2), (2,), (2,))
    >>> math.isclose(frobenius(layer, "operator"), float(layer.weight.norm()))
    True
    """
    return math.sqrt(float(layer.row_squares(convention).sum()))


def input_norms(subject: Subject) -> tuple[float, float]:
    """Return the Euclidean norm of all training inputs together, and of the largest."""

    def make() -> tuple[float, float]:
        total, largest = 0.0, 0.0
        for batch in subject.batches("train"):
            values = batch.inputs.values() if isinstance(batch.inputs, dict) else batch.inputs
            squares = sum(value.double().flatten(1).square().sum(1) for value in values)
            total += float(squares.sum())  # type: ignore[union-attr]
            largest = max(largest, float(squares.max()))  # type: ignore[union-attr]
        return math.sqrt(total), math.sqrt(largest)

    return subject.cached("norms: inputs", make)
