"""How noise that is injected at a layer decays on its way to the outputs."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import (
    Estimate,
    Inputs,
    Measure,
    Subject,
    Undefined,
    evaluating,
    generator,
    option,
)
from mindgap.core.chart import Line, Mark, Series
from mindgap.core.stats.comparisons import standard_error
from mindgap.ops.evidence.passes import affordable, limited, some_places
from mindgap.ops.features.layers import Layers, layers_of

SAMPLES, FEWEST = 512, 4  # for all draws together; for each draw of a large model


class NoiseDecay(Measure):
    r"""Relative error of the outputs, over the noise that is injected at a layer, mean over layers.

    Formula: $\frac{1}{d-1} \sum_{i=1}^{d-1} E_{x,\eta} \frac{\lVert f(x; x^i + \eta) - f(x)
    \rVert}{s \lVert f(x) \rVert}, \qquad \lVert \eta \rVert = s \lVert x^i \rVert$

    Reading: Below 1, noise gets smaller on its way to the outputs, as Arora et al. report for
    trained networks; above 1 it grows. Compare it with the value at initialization and with a
    network that learned random labels: the study noise-by-layer does. The figure follows the noise
    of every layer through the later ones.

    Assumes: Layers are the linear and convolutional ones that are called once per pass, in the
    order of their calls. Noise of one random direction, in proportion to the layer's outputs, is
    added for up to 512 samples before the activation; of a large model, for other samples in every
    draw.

    >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    >>> _ = nn.init.eye_(net[0].weight), nn.init.eye_(net[1].weight)
    >>> round(float(NoiseDecay()(Subject(net, "mse", (torch.eye(2), torch.eye(2))))), 4)
    1.0
    """

    method = ("E11",)
    cites = ("arora2018stronger",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "relu-rescaling", "output-scaling", "duplication"})
    cost = "moderate"

    level: float = option(0.1, help="norm of the noise over that of the layer's output", above=0)
    draws: int = option(8, help="directions of noise per layer", low=2)
    seed: int = option(0, help="seed of the noise", low=0)
    work: float = limited()

    def compute(self, subject: Subject) -> Estimate:
        """Inject noise at every layer but the last, and follow it."""
        layers = layers_of(subject)
        if len(layers.names) < 2:
            raise Undefined("needs two layers, so that noise of the first can pass the second")
        places, shares = self._shares(subject, len(layers.names))
        random, inputs = (
            generator(self.seed),
            [subject.train.take(share).inputs for share in shares],
        )
        each = self.draws // len(shares)
        decay = torch.cat([self._decay(subject, some, layers, each, random) for some in inputs], 1)
        ends = decay[:, :, -1].mean(0)
        return Estimate(
            value=float(ends.mean()),
            status="estimate",
            standard_error=standard_error(ends.tolist()),
            terms={"layers": len(layers.names), "draws": self.draws, "samples": len(places)},
            details=_details(decay.mean(1), layers),
            charts=(_chart(decay.mean(1), layers),),
        )

    def _shares(self, subject: Subject, layers: int) -> tuple[Tensor, Sequence[Tensor]]:
        """Return places of samples for all draws together; of a large model, others for each draw."""
        passes = layers * self.draws
        most = affordable(subject, SAMPLES, passes=passes, fewest=FEWEST, work=self.work)
        count = min(SAMPLES, len(subject.train))
        if most >= count:
            places = some_places(subject, "train", SAMPLES)
            return places, [places]
        places = some_places(subject, "train", min(most * self.draws, count))
        mixed = places[torch.randperm(len(places), generator=generator(self.seed))]
        return places, mixed.tensor_split(self.draws)

    def _decay(
        self,
        subject: Subject,
        inputs: Inputs,
        layers: Layers,
        draws: int,
        random: torch.Generator,
    ) -> Tensor:
        """Return relative errors over the level: by layer of the noise, draw, and later layer."""
        with evaluating(subject.model):
            with _recorded(subject.model, layers.names) as clean:
                clean.append(subject.forward(inputs))
            rows = [
                torch.stack(
                    [self._one(subject, inputs, layers, place, clean, random) for _ in range(draws)]
                )
                for place in range(len(layers.names) - 1)
            ]
        return torch.stack(rows)

    def _one(
        self,
        subject: Subject,
        inputs: Inputs,
        layers: Layers,
        place: int,
        clean: list[Tensor],
        random: torch.Generator,
    ) -> Tensor:
        given = clean[place]
        noise = torch.randn(given.shape[1:], generator=random, dtype=torch.float64).to(given)
        sizes = self.level * given.flatten(1).norm(dim=1) / noise.norm()
        moved = given + noise * sizes.view(-1, *[1] * (given.ndim - 1))
        names, later = layers.names[place], layers.names[place + 1 :]
        with _replaced(subject.model, names, moved), _recorded(subject.model, later) as noisy:
            noisy.append(subject.forward(inputs))
        errors = [_error(one, other) for one, other in zip(noisy, clean[place + 1 :], strict=True)]
        before = [math.nan] * place
        return torch.tensor([*before, 1.0, *(error / self.level for error in errors)])


def _error(noisy: Tensor, clean: Tensor) -> float:
    """Mean relative distance; samples whose signal is zero have none."""
    size = clean.reshape(len(clean), -1).double().norm(dim=1)
    away = (noisy - clean).reshape(len(clean), -1).double().norm(dim=1)
    return float((away[size > 0] / size[size > 0]).mean())


@contextlib.contextmanager
def _recorded(model: nn.Module, names: tuple[str, ...]) -> Iterator[list[Tensor]]:
    """Collect what the named layers give, in the order of their calls."""
    parts, kept = dict(model.named_modules()), list[Tensor]()
    # A layer behind it may work in place, so that a copy is kept.
    keep = lambda _, __, output: kept.append(output.detach().clone())  # noqa: E731
    handles = [parts[name].register_forward_hook(keep) for name in names]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _replaced(model: nn.Module, name: str, output: Tensor) -> Iterator[None]:
    put: Any = lambda *_: output.clone()  # noqa: E731
    handle = dict(model.named_modules())[name].register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()


def _details(decay: Tensor, layers: Layers) -> dict[str, Any]:
    names = [*layers.names, "outputs"]
    return {
        "decay": {
            names[row]: dict(zip(names[row:], values[row:], strict=True))
            for row, values in enumerate(decay.tolist())
        },
        "counted": list(layers.names),
        "skipped": layers.skipped,
    }


def _chart(decay: Tensor, layers: Layers) -> Line:
    names = [*layers.names, "outputs"]
    return Line(
        title="Noise of one layer at the later ones",
        x_label="layer",
        y_label="relative error over injected noise",
        x_scale="category",
        y_scale="log",
        marks=(Mark(name="injected", y=1.0),),
        series=[
            Series(name=f"from {names[row]}", x=names[row:], y=_positive(values[row:]))
            for row, values in enumerate(decay.tolist())
        ],
    )


def _positive(values: list[float]) -> list[float | None]:
    return [value if value > 0 else None for value in values]
