"""Problems whose risk is known, and attacks that would make a certificate false."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Certificate, Recipe, Subject, generator
from mindgap.ops.pac_bayes.bounds import monte_carlo, small_kl

FEATURES = 5
NOISE = 0.1  # share of the half-space labels that are flipped
DRAWS = 4000  # of the weights, for every certificate and for every risk
# Bound samples, classes and draws of the weights in the tight problems: so many classes that the
# few samples are hardly ever of one class, which is refused.
FEW, CLASSES, FEW_DRAWS = 4, 50, 400
ATTACKED = 1000, 150  # samples and features of the attack by weights
COPIED = 40, 60  # samples and features of the attacks by memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draw:
    """Which draw of a problem to make.

    Args:
        samples: Size of the training set, where a problem does not fix its own.
        delta: The probability of failure of the certificate.
        seed: Of the data.
    """

    samples: int
    delta: float
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One draw of a problem: what is certified, and what its risk is.

    Args:
        subject: The first argument of :func:`mindgap.certify`.
        risk: Returns the true risk of the certified classifier.
        settings: Further arguments of :func:`mindgap.certify`.
        theorem: The theorem whose bound is compared with the risk, if not the certificate's own.
    """

    subject: Recipe | Subject
    risk: Callable[[Certificate], float]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    theorem: str = ""


def half_space(count: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw Gaussian inputs and labels: the sign of the first input, flipped with rate ``NOISE``."""
    inputs = torch.randn(count, FEATURES, generator=source)
    turned = torch.rand(count, generator=source) < NOISE
    return inputs, ((inputs[:, 0] > 0) ^ turned).long()


def coins(count: int, source: torch.Generator, features: int = FEATURES) -> tuple[Tensor, Tensor]:
    """Draw Gaussian inputs and random labels that do not depend on them."""
    return torch.randn(count, features, generator=source), torch.randint(
        0, 2, (count,), generator=source
    )


def half_space_risk(weights: Tensor) -> float:
    """Return the exact mean risk of linear classifiers on the half-space.

    A classifier disagrees with the true half-space with probability angle/π, where the angle is
    that between the two normals.

    Args:
        weights: Weights of the classifiers, ``(classifiers, 2, features)``.

    >>> right = torch.eye(FEATURES)[:1] * torch.tensor([[-1.0], [1.0]])
    >>> half_space_risk(right[None]), half_space_risk(-right[None])
    (0.1, 0.9)
    """
    normal = (weights[:, 1] - weights[:, 0]).double()
    cosine = normal[:, 0] / torch.linalg.vector_norm(normal, dim=1)
    apart = torch.arccos(cosine.clamp(-1, 1)) / math.pi
    return float((NOISE + (1 - 2 * NOISE) * apart).mean())


def drawn(found: Certificate, count: int, seed: int) -> Tensor:
    """Draw the weights of classifiers from the posterior, ``(classifiers, classes, features)``.

    Args:
        found: The certificate with its posterior.
        count: Number of classifiers.
        seed: For the draws.
    """
    with torch.no_grad():
        weights: Tensor = found.model.draw(generator(seed), count)["weight"]
    return weights


def _linear(data: tuple[Tensor, Tensor], **changes: Any) -> Recipe:
    features = data[0].shape[1]
    common: dict[str, Any] = {"epochs": 3, "batch_size": 50, "learning_rate": 0.1}
    return Recipe(
        model=lambda: nn.Linear(features, 2, bias=False), train=data, **{**common, **changes}
    )


def _half_space(draw: Draw) -> Case:
    return Case(
        subject=_linear(half_space(draw.samples, generator(draw.seed))),
        risk=lambda found: half_space_risk(drawn(found, DRAWS, draw.seed)),
    )


def _coins(draw: Draw) -> Case:
    return Case(subject=_linear(coins(draw.samples, generator(draw.seed))), risk=lambda _: 0.5)


def without_error(delta: float) -> float:
    """Return the kl bound on a posterior at its prior that errs on none of ``FEW`` samples.

    Args:
        delta: The probability of failure, of which a tenth is kept for the draws.
    """
    return small_kl(monte_carlo(0.0, FEW_DRAWS, delta / 10), 0.0, FEW, 0.9 * delta)


def tight_risk(delta: float) -> float:
    """Return a risk just above the kl bound without errors: it fails whenever there are none.

    No error in n samples then has almost the probability δ/ξ(n), the most that the theorem allows.
    """
    return without_error(delta) + 1e-3


def sensitive_risk(delta: float) -> float:
    """Return the risk at which no error has the probability 3δ.

    A true kl bound without errors is above it. One whose δ is wrong by a factor of 18 or more is
    below, and fails three times as often as it may.
    """
    return 1 - math.pow(3 * delta, 1 / FEW)


def _fixed_risk(risk: Callable[[float], float], draw: Draw) -> Case:
    """Draw one-hot inputs, a classifier that reads them, and labels that are wrong at a rate."""
    source, rate = generator(draw.seed), risk(draw.delta)
    truth = torch.randint(0, CLASSES, (FEW,), generator=source)
    wrong = torch.rand(FEW, generator=source) < rate
    recipe = Recipe(model=_reader, train=(torch.eye(CLASSES)[truth], (truth + wrong) % CLASSES))
    # The noise is a thousandth of the margin: every draw of the weights answers alike.
    settings = {"scale": 0.01, "epochs": 0, "draws": FEW_DRAWS}
    return Case(subject=recipe, risk=lambda _: rate, settings=settings, theorem="kl")


def _half_space_of_fixed_models(mode: str, draw: Draw) -> Case:
    def risk(found: Certificate) -> float:
        models = getattr(found.model, "models", [found.model])
        sizes: list[int] = getattr(found.model, "sizes", [1])
        risks = [half_space_risk(model.weight.detach()[None]) for model in models]
        return math.fsum(s * r for s, r in zip(sizes, risks, strict=True)) / sum(sizes)

    return dataclasses.replace(_half_space(draw), risk=risk, settings={"mode": mode})


def _coins_of_fixed_models(mode: str, draw: Draw) -> Case:
    return dataclasses.replace(_coins(draw), settings={"mode": mode})


def _held_out_tight(draw: Draw) -> Case:
    """A network that errs on none of ``FEW`` samples with probability δ/2: then its bound fails."""
    source, rate = generator(draw.seed), 1 - math.pow(draw.delta / 2, 1 / FEW)
    truth = torch.randint(0, CLASSES, (FEW,), generator=source)
    wrong = torch.rand(FEW, generator=source) < rate
    known = (torch.randn(CLASSES, CLASSES, generator=source), torch.arange(CLASSES))
    held_out = (torch.eye(CLASSES)[truth], (truth + wrong) % CLASSES)
    return Case(
        subject=Subject(_reader(), "cross_entropy", known),
        risk=lambda _: rate,
        settings={"mode": "held-out", "held_out": held_out},
    )


def _reader() -> nn.Module:
    model = nn.Linear(CLASSES, CLASSES, bias=False)
    model.weight.data = 10 * torch.eye(CLASSES)
    return model


def agreement(inputs: Tensor, labels: Tensor) -> Tensor:
    """Return a weight of one where a linear fit to all labels fits best, and of zero elsewhere."""
    signs = labels.float() * 2 - 1
    fitted = inputs @ torch.linalg.lstsq(inputs, signs[:, None]).solution
    margins = fitted.flatten() * signs
    return torch.gt(margins, margins.quantile(0.6)).float()


def _leaked_weights(draw: Draw) -> Case:
    data = coins(ATTACKED[0], generator(draw.seed), ATTACKED[1])
    recipe = _linear(data, sample_weights=agreement(*data), epochs=10, learning_rate=0.03)
    return Case(subject=recipe, risk=lambda _: 0.5, settings={"scale": 0.01, "epochs": 1})


class _Remembering(nn.Linear):
    """Adds weights that are kept outside the state dict."""

    memory: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        """Answer with both."""
        return super().forward(inputs) + inputs @ self.memory


def _memory(inputs: Tensor, labels: Tensor) -> Tensor:
    """Return linear weights that answer every label, ``(features, 2)``."""
    signs = 20.0 * labels - 10
    right = torch.linalg.lstsq(inputs.double(), signs.double()[:, None]).solution.float()
    return torch.cat([-right, right], 1)


def _copies(draw: Draw) -> Case:
    inputs, labels = coins(COPIED[0], generator(draw.seed), COPIED[1])
    inputs = inputs.double() / 3  # which single precision rounds
    model = nn.Linear(COPIED[1], 2, bias=False)
    model.weight.data = _memory(inputs, labels).T.contiguous()
    subject = Subject(model, "cross_entropy", (inputs, labels))
    copies = {"held_out": (inputs.float(), labels), "scale": 0.01, "epochs": 0}
    return Case(subject=subject, risk=lambda _: 0.5, settings=copies)


def _kept_state(draw: Draw) -> Case:
    inputs, labels = coins(COPIED[0], generator(draw.seed), COPIED[1])
    model = _Remembering(COPIED[1], 2, bias=False)
    model.weight.data.zero_()
    initial = {"weight": torch.zeros_like(model.weight)}
    model.memory = _memory(inputs, labels)
    subject = Subject(model, "cross_entropy", (inputs, labels), initial=initial)
    return Case(subject=subject, risk=lambda _: 0.5, settings={"scale": 0.01, "epochs": 0})


PRIORS, POSTERIORS = ("learned", "initial"), ("gaussian", "uniform")
# A certificate must hold for these,
PROBLEMS: Mapping[str, Callable[[Draw], Case]] = {
    "half-space": _half_space,
    "coins": _coins,
    "tight": functools.partial(_fixed_risk, tight_risk),
    "sensitive": functools.partial(_fixed_risk, sensitive_risk),
    "half-space, held-out": functools.partial(_half_space_of_fixed_models, "held-out"),
    "coins, held-out": functools.partial(_coins_of_fixed_models, "held-out"),
    "tight, held-out": _held_out_tight,
    "half-space, progressive": functools.partial(_half_space_of_fixed_models, "progressive"),
    "coins, progressive": functools.partial(_coins_of_fixed_models, "progressive"),
}
# and must be refused for these.
ATTACKS: Mapping[str, Callable[[Draw], Case]] = {
    "leaked weights": _leaked_weights,
    "copies in single precision": _copies,
    "state outside the weights": _kept_state,
}
_ALONE = {
    "tight": "initial",
    "sensitive": "initial",
    "leaked weights": "learned",
    "copies in single precision": "learned",
    "state outside the weights": "initial",
}  # the only prior of a problem, which then has a Gaussian posterior


def combinations() -> list[tuple[str, str, str]]:
    """List every problem and attack with its priors and posteriors."""
    every = [(prior, kind) for prior in PRIORS for kind in POSTERIORS]
    return [
        (name, *how)
        for name in (*PROBLEMS, *ATTACKS)
        for how in (
            [("learned", "none")]
            if name.endswith(("held-out", "progressive"))
            else [(_ALONE[name], "gaussian")]
            if name in _ALONE
            else every
        )
    ]
