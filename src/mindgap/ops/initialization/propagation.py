"""How variance propagates through a network: predicted from its structure, measured with a batch."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mindgap.core import (
    InputError,
    Inputs,
    Line,
    Series,
    checked_call,
    implements,
    mapped,
    validated,
)
from mindgap.core.purity import preserved
from mindgap.ops.evidence.activations import placed
from mindgap.ops.initialization.following import Following, Seen
from mindgap.ops.norms.watch import as_inputs
from mindgap.ops.signal.trace import Trace
from mindgap.ops.signal.watch import TIME

_CALL = " (call "  # what numbers the calls of a layer


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerVariance:
    """What leaves one layer with weights, before any activation, and the gradient there.

    Args:
        name: The layer; further calls are numbered.
        forward: Mean square of what leaves the layer.
        signal: Mean over units of the variance over samples: the part that depends on the sample.
        backward: Mean square of the gradient by what leaves the layer; None where the loss does not
            depend on it.
        predicted_forward: Mean square that is expected over draws of the weights, or None.
        predicted_backward: The same of the gradient, given that of the outputs.
        size: How many numbers leave the layer, of the whole batch.
    """

    name: str
    forward: float
    signal: float
    backward: float | None
    predicted_forward: float | None
    predicted_backward: float | None
    size: int

    @property
    def layer(self) -> str:
        """The name without the number of the call."""
        return self.name.partition(_CALL)[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Propagation:
    """Second moments layer by layer; ``print`` shows them as a table.

    Args:
        layers: In the order of their calls.
        refused: Places without a prediction, and why. What comes after starts from measured values.
        approximated: Places where the prediction is approximate, and how.
    """

    layers: tuple[LayerVariance, ...]
    refused: Mapping[str, str]
    approximated: Mapping[str, str]

    @property
    def gradients(self) -> Trace | None:
        """The norms of the gradient along layers and steps; None if there are none, or no
        finite ones."""
        calls = dict[str, list[float]]()
        for row in self.layers:
            if row.backward is not None:
                norm = math.sqrt(row.backward * row.size)
                calls.setdefault(row.layer, []).append(norm)
        times = {name: tuple(norms) for name, norms in calls.items() if len(norms) >= TIME}
        layers = {name: math.hypot(*norms) for name, norms in calls.items()}
        known = bool(layers) and all(map(math.isfinite, layers.values()))
        return Trace(layers, times) if known else None

    @property
    def forward_growth(self) -> float:
        """Factor per layer of the second moments, as a geometric mean; NaN if there is none."""
        return _growth([layer.forward for layer in self.layers])

    @property
    def backward_growth(self) -> float:
        """Factor per layer of the gradients' second moments, from the last layer to the first."""
        return _growth([layer.backward for layer in reversed(self.layers)])

    def chart(self, what: str = "forward") -> Line:
        """Draw predicted and measured second moments by depth.

        Args:
            what: ``"forward"`` or ``"backward"``.
        """
        names = {"measured": what, "predicted": f"predicted_{what}"}
        series = [
            curve(name, [getattr(row, key) for row in self.layers]) for name, key in names.items()
        ]
        return Line(
            title=f"Second moments by depth, {what}",
            x_label="layer",
            y_label="mean square of the gradient" if what == "backward" else "mean square",
            y_scale="log",
            series=[each for each in series if each.x],
        )

    def __str__(self) -> str:
        rows = [("layer", "forward", "predicted", "signal", "backward", "predicted")]
        for row in self.layers:
            numbers = (row.forward, row.predicted_forward, row.signal)
            gradients = (row.backward, row.predicted_backward)
            rows.append((row.name, *map(_short, numbers), *map(_short, gradients)))  # type: ignore[arg-type]
        widths = [max(len(row[k]) for row in rows) for k in range(6)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows
        ]
        lines += [
            f"{name or 'model'}: {why}"
            for name, why in {**self.refused, **self.approximated}.items()
        ]
        return "\n".join(line.rstrip() for line in lines)


@implements("S2", cites=("he2015delving", "glorot2010understanding", "poole2016exponential"))
@validated
def propagation(
    model: nn.Module,
    inputs: Tensor | Inputs,
    *,
    loss: Callable[[Tensor], Tensor] | None = None,
    variances: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Propagation:
    r"""Predict and measure the second moments of a network, layer by layer, with one batch.

    Formula: $q_{l+1} = n_l \sigma_{l+1}^2 \, E\,\phi(\sqrt{q_l} z)^2 + \sigma_b^2, \quad
    g_l = n_{l+1} \sigma_{l+1}^2 \, E\,\phi'(\sqrt{q_l} z)^2 \, g_{l+1}$

    Reading: Constant second moments let a deep network train. If they shrink or grow by a factor
    per layer, activations or gradients vanish or explode. The prediction is an expectation over
    draws of the weights; one ReLU network of width n and depth L deviates from it by a factor of
    about $e^{\pm\sqrt{5 L / n}}$.

    Assumes: Independent weights with mean zero, and many units. Batch normalization uses the
    batch's statistics, as in training; dropout is off.

    Args:
        model: Any module, trained or not. It is not changed.
        inputs: A batch: one tensor, a tuple of them, or a dict.
        loss: Makes a number of the outputs, whose gradient is followed; by default their sum with
            standard Gaussian factors.
        variances: Second moments of weights by parameter name, to predict without looking at them;
            those of the model's weights if not given.
        seed: Of these factors.

    >>> net = nn.Sequential(
    ...     nn.Linear(500, 500, bias=False), nn.ReLU(), nn.Linear(500, 500, bias=False)
    ... )
    >>> for layer in net[::2]:
    ...     _ = nn.init.kaiming_normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    >>> found = propagation(net, torch.ones(8, 500))
    >>> [round(layer.predicted_forward, 1) for layer in found.layers]
    [2.0, 2.0]
    """
    names = {id(value): name for name, value in model.named_parameters()}
    mode = Following(names, variances or {})
    with preserved(model, seed=seed), batch_statistics(model):
        as_in_training(model)
        with torch.enable_grad():
            output = followed(model, inputs, mode)
        factors = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed))
        with torch.enable_grad():
            value = (output * factors.to(output)).sum() if loss is None else loss(output)
        if not mode.layers:
            raise InputError(
                "The model must call a layer with weights, got none in this pass. Pass a model of "
                "linear or convolutional layers."
            )
        measured = _gradients(value, [output, *(row.edge for row in mode.layers)])
        predicted = _predicted(mode, output, measured[0], value)
    rows = zip(_numbered([row.name for row in mode.layers]), mode.layers, measured[1:], strict=True)
    layers = tuple(
        _row(name, seen, gradient, guess)
        for (name, seen, gradient), guess in zip(rows, predicted, strict=True)
    )
    return Propagation(
        layers=layers, refused=dict(mode.refused), approximated=dict(mode.approximated)
    )


@contextlib.contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Normalize with the statistics of each batch, and leave the stored ones alone.

    Putting them back later would void what a subject keeps of its passes over the data.

    Args:
        model: Its modes are restored.

    >>> net = nn.BatchNorm1d(1).eval()
    >>> with batch_statistics(net):
    ...     _ = net(torch.ones(2, 1))
    >>> net.running_mean.tolist(), net.training
    ([0.0], False)
    """
    layers = [part for part in model.modules() if isinstance(part, _BatchNorm)]
    modes = [(part.training, part.track_running_stats) for part in layers]
    for part in layers:
        part.train()
        part.track_running_stats = False
    try:
        yield
    finally:
        for part, (training, tracking) in zip(layers, modes, strict=True):
            part.training, part.track_running_stats = training, tracking


def as_in_training(model: nn.Module) -> None:
    """Let batch normalization use the batch's statistics, with dropout off and all gradients on."""
    model.eval()
    for module in model.modules():
        # cuDNN has no gradient of recurrent layers in evaluation mode.
        if isinstance(module, _BatchNorm | nn.RNNBase):
            module.train()
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.requires_grad_(True)


def followed(model: nn.Module, inputs: Tensor | Inputs, mode: Following) -> Tensor:
    """Pass a batch through a model under a mode that follows it; return the outputs."""
    tensors = (*model.parameters(), *model.buffers())
    like = next((each for each in tensors if each.is_floating_point()), torch.empty(0))
    given = mapped(as_inputs(inputs), lambda value: value.detach().clone())
    with placed(model, mode.stack), mode:
        return checked_call(model, given, like)


def curve(name: str, values: Sequence[float | None]) -> Series:
    """Make a curve over layers of what is positive and finite, with gaps where nothing is.

    Args:
        name: What the legend says.
        values: One per layer.

    >>> curve("predicted", [1.0, None, math.inf, 2.0]).y
    (1.0, None, None, 2.0)
    """
    kept = [value if value is not None and 0 < value < math.inf else None for value in values]
    places = [*range(1, len(kept) + 1)] if any(kept) else []
    return Series(name=name, x=places, y=kept if places else [])


def _gradients(value: Tensor, places: Sequence[object]) -> list[Tensor | None]:
    known = [place for place in places if place is not None and _has_graph(place)]
    if not value.requires_grad or not known:
        return [None] * len(places)
    found = torch.autograd.grad(value, known, allow_unused=True, retain_graph=True)  # type: ignore[arg-type]
    by_place = {id(place): each for place, each in zip(known, found, strict=True)}
    return [by_place.get(id(place)) for place in places]


def _has_graph(place: object) -> bool:
    return place.requires_grad if isinstance(place, Tensor) else True


def _predicted(
    mode: Following, output: Tensor, gradient: Tensor | None, value: Tensor
) -> list[Tensor | None]:
    """Return the predicted second moments of the layers' gradients."""
    ends = list[tuple[Tensor, Tensor]]()
    last = mode.moments(output)
    if last is not None and last.square.requires_grad and gradient is not None:
        ends.append((last.square, gradient.double().square()))
    cuts = _gradients(value, [edge for _, edge in mode.cuts])
    ends += [
        (square, each.double().square())
        for (square, _), each in zip(mode.cuts, cuts, strict=True)
        if each is not None
    ]
    wanted = [None if row.moments is None else row.moments.square for row in mode.layers]
    known = [each for each in wanted if each is not None]
    if not ends or not known:
        return [None] * len(wanted)
    found = iter(
        torch.autograd.grad(
            [square for square, _ in ends],
            known,
            [square.expand_as(like) for like, square in ends],
            allow_unused=True,
        )
    )
    return [None if each is None else next(found) for each in wanted]


def _row(name: str, seen: Seen, gradient: Tensor | None, guess: Tensor | None) -> LayerVariance:
    return LayerVariance(
        name=name,
        forward=seen.forward,
        signal=seen.signal,
        backward=None if gradient is None else float(gradient.double().square().mean()),
        predicted_forward=None
        if seen.moments is None
        else float(seen.moments.square.detach().mean()),
        predicted_backward=None if guess is None else float(guess.mean()),
        size=seen.size,
    )


def _numbered(names: Sequence[str]) -> Iterator[str]:
    counts = dict[str, int]()
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        yield name if counts[name] == 1 else f"{name}{_CALL}{counts[name]})"


def _growth(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    if len(known) < 2 or not 0 < known[0] < math.inf:
        return math.nan
    return float((known[-1] / known[0]) ** (1 / (len(known) - 1)))


def _short(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}"
