"""The exponent of a power law fitted to the spectrum of the weights."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from mindgap.core import Bar, Estimate, Interval, Measure, Series, Subject, Undefined, option

FEWEST = 4  # eigenvalues of a layer
TAIL = 10  # a tail has at least one eigenvalue in ten: shorter ones fit anything
NULL, BOOTSTRAP = 20, 100
WORK, NUMBERS = 2**34, 2**23
# Of all layers together: multiplications of the untrained ones, and pairs of values of drawn spectra.
NULLS, PAIRS = 2**34, 2**28


@dataclasses.dataclass(frozen=True)
class PowerLaw:
    """A power law fitted to the largest values of every row.

    Args:
        exponent: α.
        start: The value from which on it holds, xmin.
        tail: How many values are at least as large.
        distance: Kolmogorov–Smirnov distance of the tail.
    """

    exponent: Tensor
    start: Tensor
    tail: Tensor
    distance: Tensor

    @property
    def error(self) -> Tensor:
        """The standard error of the exponent, for a known start."""
        return (self.exponent - 1) / self.tail.double().sqrt()


class PowerLawExponent(Measure):
    r"""Exponent of a power law in the spectrum of the weight matrices, mean over layers.

    Formula: $\hat\alpha = 1 + t \left( \sum_{j=1}^{t} \ln \frac{\lambda_j}{\lambda_t} \right)^{-1},
    \qquad \lambda = \text{eigenvalues of } W W^\top$

    Reading: Martin and Mahoney claim that well-trained layers have an α from 2 to 6, smaller in
    better networks. Read it only next to the value of untrained layers of the same shape
    (``untrained``), which often lies in that range. ``goodness_of_fit`` is the share of spectra
    drawn from the fitted law that fit it worse; below 0.1 there is no power law.

    Assumes: Maximum likelihood; the start of the tail minimizes the Kolmogorov–Smirnov distance. A
    convolution is the matrix of its output channels. The standard error takes the start as known,
    and eigenvalues as independent, which they are not.

    >>> weight = torch.diag(torch.tensor([8.0, 4.0, 2.0, 1.0]).sqrt())
    >>> net = torch.nn.Linear(4, 4, bias=False)
    >>> net.weight.data = weight
    >>> result = PowerLawExponent()(Subject(net, "mse", (torch.eye(4), torch.eye(4))))
    >>> round(float(result), 4), result.terms["layers"]
    (1.9618, 1)
    """

    method = ("E10",)
    cites = ("clauset2009power", "martin2021predicting")
    direction = "none"
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )
    cost = "moderate"

    seed: int = option(0, help="seed of untrained layers and of the test of fit", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Fit every layer, an untrained one of its shape, and spectra drawn from the law."""
        random = torch.Generator().manual_seed(self.seed)
        matrices, skipped = _matrices(subject)
        if not matrices:
            raise Undefined(f"needs a layer with at least {FEWEST} singular values above zero")
        draws = _draws(matrices)
        rows = {name: _row(*pair, random, *draws) for name, pair in matrices.items()}
        for name in rows:
            rows[name] |= _before(subject, name)
        error = math.sqrt(math.fsum(row["standard_error"] ** 2 for row in rows.values())) / len(
            rows
        )
        value = _mean(rows, "exponent")
        return Estimate(
            value=value,
            status="estimate",
            standard_error=error,
            interval=Interval(low=value - 1.96 * error, high=value + 1.96 * error),
            terms={
                "layers": len(rows),
                "skipped": len(skipped),
                "untrained": _mean(rows, "untrained"),
                "goodness_of_fit": _mean(rows, "goodness_of_fit"),
            },
            details={"by_layer": rows, "counted": list(rows), "skipped": skipped},
            charts=(_chart(rows),),
        )


def _mean(rows: dict[str, dict[str, Any]], key: str) -> float:
    return math.fsum(row[key] for row in rows.values()) / len(rows)


def _matrices(subject: Subject) -> tuple[dict[str, tuple[Tensor, torch.Size]], dict[str, str]]:
    """Return the eigenvalues and the shape of every weight matrix, and why some are skipped."""
    found, skipped = dict[str, tuple[Tensor, torch.Size]](), dict[str, str]()
    for name, weight in subject.model.named_parameters():
        if weight.ndim < 2:
            continue  # biases and scales have no spectrum
        values = eigenvalues(weight)
        if len(values) < FEWEST:
            skipped[name] = f"has {len(values)} eigenvalues above zero, fewer than {FEWEST}"
        else:
            found[name] = values, weight.flatten(1).shape
    return found, skipped


def eigenvalues(weight: Tensor) -> Tensor:
    """Return the eigenvalues of WWᵀ above rounding, the largest first."""
    values: Tensor = torch.linalg.svdvals(weight.detach().cpu().double().flatten(1)).square()
    return values[values > 1e-12 * values[0]]


def _before(subject: Subject, name: str) -> dict[str, float]:
    """Return the exponent before training, where the initial weights are known."""
    initial = None if subject.initial is None else subject.initial.get(name)
    values = torch.empty(0) if initial is None else eigenvalues(initial)
    return {"initial": float(fit_tail(values[None]).exponent)} if len(values) >= FEWEST else {}


def _draws(matrices: dict[str, tuple[Tensor, torch.Size]]) -> tuple[int, int]:
    """Return how many untrained layers and spectra to draw at most for each of the layers."""
    sizes = [sorted(shape) for _, shape in matrices.values()]
    work = sum(min(NULL * low * low * high, WORK) for low, high in sizes)
    pairs = sum(BOOTSTRAP * len(values) ** 2 for values, _ in matrices.values())
    return int(NULL * min(1.0, NULLS / work)), int(BOOTSTRAP * min(1.0, PAIRS / pairs))


def _row(
    values: Tensor, shape: torch.Size, random: torch.Generator, nulls: int, spectra: int
) -> dict[str, Any]:
    law, null = fit_tail(values[None]), _untrained(shape, random, nulls)
    return {
        "exponent": float(law.exponent),
        "standard_error": float(law.error),
        "start": float(law.start),
        "tail": int(law.tail),
        "eigenvalues": len(values),
        "distance": float(law.distance),
        "goodness_of_fit": _goodness(values, law, random, spectra),
        "untrained": float(null.mean()),
        "untrained_spread": float(null.std()),
    }


def fit_tail(values: Tensor) -> PowerLaw:
    """Fit a power law to the tail of every row; rows are sorted, the largest value first.

    >>> law = fit_tail(torch.tensor([[8.0, 4.0, 2.0, 1.0]]).double())
    >>> round(float(law.exponent), 4), int(law.tail)
    (1.9618, 4)
    """
    count = values.shape[1]
    sizes = torch.arange(max(3, count // TAIL), count + 1)
    logs = values.log()
    excess = logs.cumsum(1)[:, sizes - 1] - sizes * logs[:, sizes - 1]
    exponents = 1 + sizes / excess.clamp_min(1e-300)
    step = max(1, NUMBERS // (count * len(values)))
    parts = zip(sizes.split(step), exponents.split(step, 1), strict=True)
    distances = torch.cat([_distances(logs, *part) for part in parts], 1)
    best = distances.argmin(1, keepdim=True)
    tail = sizes[best[:, 0]]
    start = values.gather(1, (tail - 1)[:, None])[:, 0]
    return PowerLaw(exponents.gather(1, best)[:, 0], start, tail, distances.gather(1, best)[:, 0])


def _distances(logs: Tensor, sizes: Tensor, exponents: Tensor) -> Tensor:
    """Return the distance of every tail of every row from its power law."""
    start = logs[:, sizes - 1][:, :, None]
    law = -torch.expm1((1 - exponents[:, :, None]) * (logs[:, None, :] - start))
    place = torch.arange(logs.shape[1])
    # The j-th largest of t values has t−j of them below it and t−j+1 up to it.
    below = (sizes[:, None] - place - 1) / sizes[:, None]
    away = torch.maximum((law - below).abs(), (law - below - 1 / sizes[:, None]).abs())
    return away.masked_fill(place >= sizes[:, None], 0).amax(2)


def _untrained(shape: torch.Size, random: torch.Generator, most: int = NULL) -> Tensor:
    """Return the exponents of Gaussian matrices of a shape; their scale does not matter."""
    low, high = sorted(shape)
    draws = max(3, min(most, WORK // (low * low * high)))
    matrices = torch.randn(draws, low, high, generator=random, dtype=torch.float64)
    return fit_tail(torch.linalg.svdvals(matrices).square()).exponent


def _goodness(
    values: Tensor, law: PowerLaw, random: torch.Generator, most: int = BOOTSTRAP
) -> float:
    """Return the share of spectra from law and body together that are farther from their fit."""
    count, tail = len(values), int(law.tail)
    draws = max(20, min(most, 2**27 // count**2))
    inside = torch.rand(draws, count, generator=random, dtype=torch.float64) < tail / count
    uniform = torch.rand(draws, count, generator=random, dtype=torch.float64)
    drawn = law.start * (1 - uniform) ** (-1 / (law.exponent - 1))
    if tail < count:
        body = values[torch.randint(tail, count, (draws, count), generator=random)]
        drawn = torch.where(inside, drawn, body)
    distances = fit_tail(drawn.sort(1, descending=True).values).distance
    return float((distances >= law.distance).double().mean())


def _chart(rows: dict[str, dict[str, Any]]) -> Bar:
    names = list(rows)

    def series(name: str, value: str, error: str, factor: float) -> Series:
        return Series(
            name=name,
            x=names,
            y=[rows[n][value] for n in names],
            low=[rows[n][value] - factor * rows[n][error] for n in names],
            high=[rows[n][value] + factor * rows[n][error] for n in names],
        )

    return Bar(
        title="Exponent of the weight spectrum by layer",
        x_label="layer",
        y_label="α",
        caption="Whiskers: 1.96 standard errors; of untrained layers the standard deviation.",
        series=(
            series("this network", "exponent", "standard_error", 1.96),
            series("untrained, same shape", "untrained", "untrained_spread", 1.0),
        ),
    )
