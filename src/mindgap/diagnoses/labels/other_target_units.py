"""Test targets in other units than the training targets, or on another scale such as logarithms."""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import Advice, Diagnosis, Evidence, Finding, Histogram, Recipe, Results, Subject
from mindgap.ops.evidence.permutation import sign_flip_tail
from mindgap.ops.evidence.rows import Rows
from mindgap.ops.evidence.spoiled import numeric
from mindgap.ops.evidence.two_sample import kolmogorov
from mindgap.ops.evidence.units import unit_maps
from mindgap.training.fit import fit

LEVEL = 1e-4  # p-value of a gain by chance
MENDED = 0.5  # share of the gap between training and test error that the correction must remove
EXPLAINED = 0.1  # share of the corrected targets' variance that the predictions must explain
NEARER = 0.5  # of the distance of Kolmogorov and Smirnov may be left between both splits' targets
FEWEST = 20  # test samples


class OtherTargetUnits(Diagnosis):
    r"""Look for test targets in other units than the training targets, or on a logarithmic scale.

    Formula: $\frac{1}{n} \sum_i \left( f(x_i) - g^{-1}(y_i) \right)^2 \ll \frac{1}{n} \sum_i
    \left( f(x_i) - y_i \right)^2$ on test data, with $g(y) = ay + b$, $e^y$ or $\ln y$

    Reading: The model predicts the test targets well once these are mapped by one factor and offset,
    or by a logarithm: one split was scaled and the other was not. Factor and offset are those
    between the quantiles of the training and the test targets. At least half of the gap must be
    gone then, and the predictions must explain a tenth of the variance.

    Assumes: A regression. Most test samples are concerned.

    >>> x = torch.rand(800, 3, generator=torch.Generator().manual_seed(0))
    >>> y = x.sum(1, keepdim=True)
    >>> net = torch.nn.Linear(3, 1)
    >>> with torch.no_grad():
    ...     _ = net.weight.fill_(1.0), net.bias.zero_()
    >>> subject = Subject(net, "mse", (x[:500], y[:500]), (x[500:], 1000 * y[500:]))
    >>> OtherTargetUnits()(subject).sentence
    'The test targets are in other units: about 1000 times the training targets.'
    """

    stage = "test labels"
    voids = True
    symptom = "wrong test labels"
    needs = frozenset({"test"})
    cites = ("kaufman2012leakage",)
    explains = frozenset(
        {
            "constant-predictor",
            "input-shift",
            "label-shift",
            "lagged-test-labels",
            "late-over-fitting",
            "over-fitting",
            "shuffled-test-labels",
            "wrong-labels",
            "wrong-test-labels",
        }
    )

    def missing(self, subject: Subject) -> str:
        """Classes have no units."""
        words = "" if subject.task == "regression" else "needs targets that are numbers"
        return words or super().missing(subject)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Map the test targets back, and see whether the model errs less."""
        if subject.test is None or len(subject.test) < FEWEST:
            return None
        own, other = (_flat(subject.targets(which)) for which in ("train", "test"))
        fitted, predicted = (_flat(subject.outputs(which)) for which in ("train", "test"))
        before = (predicted - other).square()
        train = float((fitted - own).square().mean())
        ways = _ways(own, other)
        good = [
            way
            for way in ways
            if bool(way.mapped.isfinite().all())
            and _mended(train, before, predicted, way)
            and _nearer(own, other, way)
        ]
        if not good:
            return None
        best = min(good, key=lambda way: way.error(predicted))
        after = (predicted - best.mapped).square()
        p_value = len(ways) * sign_flip_tail((before - after).mean(1))
        if p_value > LEVEL:
            return None
        return self.finding(
            best.sentence,
            p_value=min(1.0, p_value),
            evidence=(
                Evidence(name="mean squared test error as it is", value=float(before.mean())),
                Evidence(name="mean squared test error, mapped back", value=float(after.mean())),
                Evidence(name="mean squared training error", value=train),
            ),
            sentences=(
                f"Mapped back, the mean squared test error falls from {float(before.mean()):.3g} to "
                f"{float(after.mean()):.3g}.",
            ),
            advice=(
                Advice(
                    text="Prepare the test targets as the training targets. This brings them together:",
                    code=best.code,
                ),
            ),
            charts=(
                Histogram.of(
                    {
                        "training": own[:, 0],
                        "test": other[:, 0],
                        "test, mapped back": best.mapped[:, 0],
                    },
                    title="Targets",
                    x_label="target",
                    shares=True,
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Give the test targets in thousandths, or in larger parts at less strength."""
        recipe = numeric(recipe)
        inputs, targets = recipe.test
        return fit(recipe.replace(test=(inputs, targets * 1000.0**strength)), seed=seed).subject()


@dataclasses.dataclass(frozen=True)
class _Way:
    """A way to map test targets back, with the targets that it gives."""

    sentence: str
    code: str
    mapped: Tensor

    def error(self, predicted: Tensor) -> float:
        """Return the mean squared error, as a share of the mapped targets' variance."""
        spread = float(self.mapped.var(0, correction=0).mean())
        return float((predicted - self.mapped).square().mean()) / max(spread, 1e-300)


def _ways(own: Tensor, other: Tensor) -> list[_Way]:
    """Return the ways that the targets allow."""
    places = torch.arange(max(len(own), len(other)))
    columns = (own.shape[1],)
    maps = unit_maps(*(Rows(places[: len(y)], y, columns, "table") for y in (own, other)))
    ways = []
    if maps is not None:
        factor, offset = float(maps.factors[maps.first]), float(maps.offsets[maps.first])
        plus = f", plus {offset:.3g}" if offset else ""
        alone = "" if len(maps.factors) == 1 else f" of output {maps.first}"
        offsets, factors = _written(maps.offsets), _written(maps.factors)
        ways.append(
            _Way(
                f"The test targets{alone} are in other units: about {factor:.4g} times the training "
                f"targets{plus}.",
                f"test_targets = (test_targets - {offsets}) / {factors}",
                (other - maps.offsets) / maps.factors,
            )
        )
    raw = "The training targets are logarithms, the test targets are not."
    logs = "The test targets are logarithms, the training targets are not."
    return [
        *ways,
        _Way(raw, "test_targets = test_targets.log()", other.log()),
        _Way(raw, "test_targets = test_targets.log1p()", other.log1p()),
        _Way(logs, "test_targets = test_targets.exp()", other.exp()),
        _Way(logs, "test_targets = test_targets.expm1()", other.expm1()),
    ]


def _written(numbers: Tensor) -> str:
    """Write one number, or a tensor of them, as Python."""
    words = ", ".join(f"{value:.6g}" for value in numbers.tolist())
    return words if len(numbers) == 1 else f"torch.tensor([{words}])"


def _nearer(own: Tensor, other: Tensor, way: _Way) -> bool:
    """Tell whether the mapped targets are spread more like the training targets."""
    before, after = (float(kolmogorov(own, y)[0].max()) for y in (other, way.mapped))
    return after < NEARER * before


def _mended(train: float, before: Tensor, predicted: Tensor, way: _Way) -> bool:
    """Tell whether most of the gap is gone, and the predictions explain the mapped targets.

    Without the second a map to small numbers would always win.
    """
    first = float(before.mean())
    second = float((predicted - way.mapped).square().mean())
    return (
        first - second > MENDED * max(first - train, 0.0) and way.error(predicted) < 1 - EXPLAINED
    )


def _flat(targets: Tensor) -> Tensor:
    return targets.detach().cpu().double().reshape(len(targets), -1)
