"""Variance over depth for all schemes and activations: predicted, measured, and what trains."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn

from mindgap.core import (
    Claim,
    Line,
    Recipe,
    Record,
    Series,
    Study,
    Table,
    Trial,
    choice,
    generator,
    option,
)
from mindgap.core.chart.parts import Mode
from mindgap.data import digits
from mindgap.nets.mlp import MLP, activation_layer
from mindgap.ops.initialization.gaussian import gaussian_moments
from mindgap.ops.initialization.propagation import propagation
from mindgap.ops.initialization.reinitialize import reinitialized
from mindgap.ops.initialization.schemes import Scheme, drawn, weight_variance
from mindgap.training.fit import fit

INPUTS = 128
DRAWN = 25  # networks at once
# Samples per network, at right angles: their values differ nearly as much as those of other networks.
SAMPLES = 16
# Gains of torch.nn.init; it has none for GELU, where that of ReLU is usual.
GAINS = {
    "relu": 2**0.5,
    "leaky_relu": (2 / 1.0001) ** 0.5,
    "gelu": 2**0.5,
    "tanh": 5 / 3,
    "identity": 1.0,
}
# Scaled inputs give scaled outputs, so that the factors of the layers are independent.
HOMOGENEOUS = ("relu", "leaky_relu", "identity")
SCHEMES: Mapping[str, tuple[str, str]] = {
    "kaiming-normal": ("kaiming-normal", "in"),
    "kaiming-normal, fan out": ("kaiming-normal", "out"),
    "kaiming-uniform": ("kaiming-uniform", "in"),
    "xavier-normal": ("xavier-normal", "in"),
    "xavier-uniform": ("xavier-uniform", "in"),
    "orthogonal": ("orthogonal", "in"),
    "lsuv": ("lsuv", "in"),
    "torch's default": ("kaiming-uniform", "in"),
}
LEARNED = 0.1  # training error below which a network has learned; guessing gives 0.9


class InitializationSchemes(Study):
    r"""Second moments of activations and gradients over depth, for all schemes and activations.

    Formula: $q_{l+1} = n_l \sigma_{l+1}^2 \, E\,\phi(\sqrt{q_l} z)^2 + \sigma_b^2, \quad
    g_l = n_{l+1} \sigma_{l+1}^2 \, E\,\phi'(\sqrt{q_l} z)^2 \, g_{l+1}$

    Reading: The prediction knows widths, activation and scheme, and no weight. It is an expectation
    over draws, so that measured values are means over many networks, until their standard error is
    small. Single ReLU networks of this width and depth differ by factors. Schemes whose variance
    shrinks or grows by a factor per layer do not train at depth 50.

    Assumes: Perceptrons with hidden layers of two widths in turn, Gaussian inputs, gains of
    ``torch.nn.init``. Training is that of a narrower network of the same depth on the 8×8 digits.

    >>> len(InitializationSchemes().trials())
    16
    """

    method = ("S2",)
    cites = (
        "he2015delving",
        "glorot2010understanding",
        "saxe2014exact",
        "mishkin2016all",
        "poole2016exponential",
    )
    reproduces = ("stability: Initialization",)

    activations: str = option("relu,tanh", help="activations, separated by commas, or all")
    depth: int = option(50, help="number of layers", low=2)
    narrow: int = option(256, help="width of every second hidden layer", low=1)
    wide: int = option(288, help="width of the others", low=1)
    error: float = option(0.01, help="standard error, in logarithms, at which draws end", above=0)
    most_draws: int = option(1000, help="networks per scheme and activation at most", low=2)
    seeds: int = option(3, help="trained networks per scheme and activation", low=1)
    epochs: int = option(8, help="passes over the digits in training", low=1)
    trained_width: int = option(64, help="width of the trained networks", low=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._names():
            choice("activations", name, GAINS)

    def _names(self) -> list[str]:
        return list(GAINS) if self.activations == "all" else self.activations.split(",")

    def trials(self) -> Sequence[Trial]:
        """One trial per activation and scheme."""
        return [
            Trial(parameters={"activation": activation, "scheme": scheme})
            for activation in self._names()
            for scheme in SCHEMES
        ]

    def run(self, trial: Trial) -> Record:
        """Predict, measure over draws, and train."""
        activation, scheme = trial["activation"], trial["scheme"]
        hidden = [self.wide if k % 2 else self.narrow for k in range(self.depth)]
        widths = [INPUTS, *hidden]
        inputs = _inputs(1 if scheme == "lsuv" else SAMPLES)  # LSUV looks at them together
        sizes = _variances(widths, inputs, activation, scheme)
        forward, backward = _predicted(widths, inputs, activation, sizes, _has_bias(scheme))
        if scheme == "lsuv":
            steeper = _with_fluctuations(widths, activation, sizes)
            backward = _predicted(widths, inputs, activation, steeper, bias=False)[1]
        found = _measured(self, widths, inputs, activation, scheme, sizes)
        return {
            "predicted_forward": forward,
            "predicted_backward": backward,
            **found,
            "errors": [self._trained(activation, scheme, seed) for seed in range(self.seeds)],
        }

    def _trained(self, activation: str, scheme: str, seed: int) -> float:
        """Return the training error of a deep and narrow network on the digits."""
        data = digits().subset(1000, seed=0)
        widths = (64, *[self.trained_width] * (self.depth - 1), 10)
        first = data.train[0][:256]

        def model() -> nn.Module:
            net = MLP(widths=widths, activation=activation)
            if scheme == "torch's default":
                return net
            name, fan = SCHEMES[scheme]
            gain = None if name == "lsuv" else GAINS[activation]
            return reinitialized(net, first, scheme=name, fan=fan, gain=gain, seed=seed)  # type: ignore[arg-type]

        recipe = Recipe(model=model, train=data.train, epochs=self.epochs, batch_size=50)
        fitted = fit(recipe, seed=seed, evaluate_every=0)
        return 0.9 if fitted.diverged else fitted.subject().mean_error("train")

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per activation and scheme."""
        groups: dict[str, dict[str, Record]] = {}
        for trial, record in records:
            groups.setdefault(trial["activation"], {})[trial["scheme"]] = record
        return Table(
            title=f"Second moments over {self.depth} layers, predicted and measured",
            columns=(
                *("activation", "scheme", "last / first, predicted", "measured", "off by at most"),
                *("gradient, first / last, predicted", "measured", "off by at most"),
                *("networks", "spread of one", "training error"),
            ),
            rows=tuple(
                _row(activation, scheme, record)
                for activation, found in groups.items()
                for scheme, record in found.items()
            ),
            notes=(*_notes(self), _verdict([record for _, record in records]), *_slips(self)),
            claims=(
                Claim.counted(
                    "Second moments are as predicted at every depth, within 10 %.",
                    sum(each <= 0.1 for each in _off([record for _, record in records])),
                    len(records),
                ),
            ),
            charts=tuple(
                _chart(activation, found, what)
                for activation, found in groups.items()
                for what in ("forward", "backward")
            ),
        )

    def tiny(self) -> Self:
        """Use one activation, few layers and few draws."""
        return self.replace(
            activations="relu",
            depth=3,
            narrow=16,
            wide=24,
            most_draws=25,
            seeds=1,
            epochs=1,
            trained_width=8,
        )


def _inputs(count: int) -> Tensor:
    """Return inputs at right angles, each with a mean square of one."""
    columns = torch.randn(INPUTS, count, generator=generator(0))
    rows: Tensor = torch.linalg.qr(columns).Q.T * math.sqrt(INPUTS)
    return rows.contiguous()


def _has_bias(scheme: str) -> bool:
    return scheme == "torch's default"


def _variances(widths: Sequence[int], inputs: Tensor, activation: str, scheme: str) -> list[float]:
    """Return the variance of the weights of every layer, without looking at any weights."""
    name, fan = SCHEMES[scheme]
    if name == "lsuv":
        square, first = _at_one(activation)["square"], float(inputs.double().square().mean())
        return [1 / (n * (square if k else first)) for k, n in enumerate(widths[:-1])]
    gain = (1 / 3) ** 0.5 if _has_bias(scheme) else GAINS[activation]
    how = Scheme(name, fan, gain)  # type: ignore[arg-type]
    return [weight_variance(how, before, after) for before, after in pairwise(widths)]


def _at_one(activation: str) -> dict[str, float]:
    """Return moments of an activation at a standard Gaussian number."""
    function = activation_layer(activation)

    def mean(of: Callable[[Tensor], Tensor]) -> float:
        zero, one = torch.zeros(1).double(), torch.ones(1).double()
        return float(gaussian_moments(of, zero, one)[0])

    def slope(x: Tensor) -> Tensor:
        points = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(function(points).sum(), points)[0] + 0 * x

    square, squared = mean(lambda x: function(x) ** 2), mean(lambda x: slope(x) ** 2)
    # Parts of both that do not follow from z², whose mean LSUV fixes.
    a = mean(lambda x: function(x) ** 2 * (x**2 - 1)) / 2
    b = mean(lambda x: slope(x) ** 2 * (x**2 - 1)) / 2

    def rest(x: Tensor) -> Tensor:
        found: Tensor = function(x) ** 2 - square - a * (x**2 - 1)
        return found

    def other(x: Tensor) -> Tensor:
        return slope(x) ** 2 - squared - b * (x**2 - 1)

    return {
        "square": square,
        "fluctuation": mean(lambda x: rest(x) ** 2) / square**2
        - mean(lambda x: rest(x) * other(x)) / (square * squared),
    }


def _with_fluctuations(
    widths: Sequence[int], activation: str, sizes: Sequence[float]
) -> list[float]:
    """Add what LSUV does to gradients at a finite width, of order one over the width.

    It divides by measured variances, and the mean of one over a fluctuating number is more than one
    over its mean. An orthogonal map to fewer units adds to the fluctuation.
    """
    more = _at_one(activation)["fluctuation"]
    return [
        size * (1 + more / before * (k > 0) + max(0.0, 2 / after - 2 / before))
        for k, (size, (before, after)) in enumerate(zip(sizes, pairwise(widths), strict=True))
    ]


def _predicted(
    widths: Sequence[int], inputs: Tensor, activation: str, sizes: Sequence[float], bias: bool
) -> tuple[list[float], list[float]]:
    layers = list[nn.Module]()
    for before, after in pairwise(widths):
        layer = nn.Linear(before, after, bias=bias)
        if bias:  # a bias of exactly the variance that torch draws
            nn.init.constant_(layer.bias, (1 / (3 * before)) ** 0.5)
            with torch.no_grad():
                layer.bias[::2].neg_()
        layers += [layer, activation_layer(activation)]
    net = nn.Sequential(*layers[:-1])
    named = {f"{2 * k}.weight": size for k, size in enumerate(sizes)}
    found = propagation(net, inputs, variances=named, loss=_unit).layers
    return (
        [float(row.predicted_forward or 0) for row in found],
        [float(row.predicted_backward or 0) for row in found],
    )


def _unit(outputs: Tensor) -> Tensor:
    """A loss whose gradient has a mean square of exactly one."""
    signs = torch.ones_like(outputs)
    signs[:, ::2] = -1
    return (outputs * signs).sum()


def _measured(
    study: InitializationSchemes,
    widths: Sequence[int],
    inputs: Tensor,
    activation: str,
    scheme: str,
    sizes: Sequence[float],
) -> Record:
    """Draw networks until the means are known well; the passes are plain products of matrices."""
    forward, backward = torch.empty(0), torch.empty(0)
    random = generator(1)
    chain = activation in HOMOGENEOUS and not _has_bias(scheme)
    while len(forward) < study.most_draws:
        more = _pass(widths, inputs, activation_layer(activation), scheme, sizes, random)
        forward, backward = (
            torch.cat([old, new]) if len(old) else new
            for old, new in zip((forward, backward), more, strict=True)
        )
        means = [_mean(forward, chain), _mean(backward.flip(1), chain)]
        if max(error for _, error in means) < study.error and len(forward) > DRAWN:
            break
    return {
        "forward": means[0][0],
        "backward": means[1][0][::-1],
        "error": max(error for _, error in means),
        "draws": len(forward),
        "spread": float(forward[:, -1].log().std()) if bool((forward > 0).all()) else None,
    }


def _pass(
    widths: Sequence[int],
    inputs: Tensor,
    function: Callable[[Tensor], Tensor],
    scheme: str,
    sizes: Sequence[float],
    random: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Return mean squares of what leaves every layer and of its gradient, for some networks."""
    name, fan = SCHEMES[scheme]
    how, bias = Scheme(name, fan), _has_bias(scheme)  # type: ignore[arg-type]
    state, outputs = inputs.expand(DRAWN, *inputs.shape), list[Tensor]()
    for size, (before, after) in zip(sizes, pairwise(widths), strict=True):
        shape = (after, before)
        kind, variance = how.shape, 1 / max(shape) if name == "lsuv" else size
        weight = torch.stack([drawn(kind, shape, variance, random) for _ in range(DRAWN)])
        leaving = state @ weight.transpose(1, 2)
        if name == "lsuv":
            leaving = leaving / leaving.detach().std((1, 2), correction=0, keepdim=True)
        if bias:
            shift = torch.stack([drawn("uniform", (after, 1), size, random) for _ in range(DRAWN)])
            leaving = leaving + shift.transpose(1, 2)
        outputs.append(leaving.requires_grad_())
        state = function(leaving)
    factors = torch.randn(outputs[-1].shape, generator=random)
    gradients = torch.autograd.grad((outputs[-1] * factors).sum(), outputs)
    squares = [
        torch.stack([each.detach().double().square().mean((1, 2)) for each in rows], 1)
        for rows in (outputs, gradients)
    ]
    return squares[0], squares[1]


def _mean(values: Tensor, chain: bool) -> tuple[list[float], float]:
    """Return the means over networks by layer, and the largest standard error of a logarithm.

    Where layers' factors are independent, the mean of their product is the product of their means,
    which is known far better than the mean of the product.
    """
    count = len(values)
    if not chain:
        mean = values.mean(0)
        return mean.tolist(), float((values.std(0) / mean / math.sqrt(count)).max())
    factors = torch.cat([values[:, :1], values[:, 1:] / values[:, :-1]], 1)
    mean = factors.mean(0)
    error = (factors.var(0) / mean.square() / count).sum().sqrt()
    return mean.cumprod(0).tolist(), float(error)


def deviation(record: Record, what: str) -> float:
    """Return the largest relative difference of measured and predicted values over all depths."""
    pairs = zip(record[f"predicted_{what}"], record[what], strict=True)
    return float(max(abs(measured / predicted - 1) for predicted, measured in pairs))


def _row(activation: str, scheme: str, record: Record) -> tuple[Any, ...]:
    def ratio(key: str, first: int, last: int) -> float:
        return float(record[key][first] / record[key][last])

    errors = ", ".join(f"{100 * error:.0f} %" for error in record["errors"])
    return (
        *(activation, scheme),
        *(ratio("predicted_forward", -1, 0), ratio("forward", -1, 0)),
        f"{100 * deviation(record, 'forward'):.1f} %",
        *(ratio("predicted_backward", 0, -1), ratio("backward", 0, -1)),
        f"{100 * deviation(record, 'backward'):.1f} %",
        record["draws"],
        "—" if record["spread"] is None else f"× {math.exp(record['spread']):.2f}",
        errors,
    )


def _notes(study: InitializationSchemes) -> tuple[str, ...]:
    return (
        f"Hidden layers of {study.narrow} and {study.wide} units in turn, {INPUTS} inputs. The "
        "prediction knows widths, activation and the scheme's variance, and no weights.",
        f"Measured: means over networks, each with {SAMPLES} samples at right angles (one for LSUV), "
        f"until their standard error is below {100 * study.error:g} %, {study.most_draws} networks at "
        "most. For ReLU, leaky ReLU and the identity the mean "
        "at a depth is the product of the mean factors of the layers up to it, which are independent. "
        "'Off by at most' is the largest relative difference over all depths.",
        "'Spread of one' is the factor of one standard deviation between networks at the last layer: "
        "how far a single network is from its expectation.",
        f"Training errors are those of {study.depth} layers of {study.trained_width} units after "
        f"{study.epochs} epochs of Adam on 1,000 digits, one per seed; guessing gives 90 %.",
    )


def _off(records: Sequence[Record]) -> list[float]:
    """Return the largest relative difference of every pair, forward or backward."""
    return [max(deviation(record, "forward"), deviation(record, "backward")) for record in records]


def _verdict(records: Sequence[Record]) -> str:
    off = _off(records)
    close = sum(each <= 0.1 for each in off)
    trained = sum(max(record["errors"]) < LEARNED for record in records)
    return (
        f"Within 10 % at every depth, forward and backward: {close} of {len(off)} pairs; the largest "
        f"difference is {100 * max(off):.1f} %. All seeds learn (training error below "
        f"{100 * LEARNED:.0f} %): {trained} of {len(off)}."
    )


def _slips(study: InitializationSchemes) -> tuple[str, ...]:
    values = drawn("uniform", (1000, 1000), 0.25 / 3, generator(0))
    a, b = 2 / study.narrow, 2 / study.wide
    return (
        "Slip of the slides: a uniform distribution on [-r, r] has variance r²/3, not r/3. Measured "
        f"with r = 0.5: {float(values.double().var()):.4f}; r²/3 is {0.25 / 3:.4f}, r/3 is {0.5 / 3:.4f}.",
        f"Slip of the slides: 4/(d + d') is the harmonic mean of the two conditions 2/d and 2/d', not "
        f"their average. For {study.narrow} and {study.wide} units: {4 / (study.narrow + study.wide):.6f}, "
        f"harmonic mean {2 * a * b / (a + b):.6f}, average {(a + b) / 2:.6f}.",
    )


def _chart(activation: str, found: Mapping[str, Record], what: str) -> Line:
    series = []
    for scheme, record in found.items():
        for name, key in ((scheme, what), (f"{scheme}, predicted", f"predicted_{what}")):
            places = range(1, len(record[key]) + 1)
            mode: Mode = "lines" if "predicted" in name else "markers"
            series.append(Series(name=name, x=list(places), y=record[key], mode=mode))
    return Line(
        title=f"Mean square {'of gradients' if what == 'backward' else 'of pre-activations'}, {activation}",
        x_label="layer",
        y_label="mean square",
        y_scale="log",
        series=series,
    )
