"""What the measures of noise on the weights share: one search, and the KL divergence it implies."""

import abc
import math
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import Estimate, Measure, Subject, Undefined, option
from mindgap.measures.sharpness.noise_search import RANGE, NoiseSearch, Search
from mindgap.ops.curvature.flat_loss import FlatLoss

Origin = Literal["zero", "initial"]


class NoiseMeasure(Measure, abc.ABC, abstract=True):
    """A measure that follows from the largest noise that leaves the training error nearly alone.

    All measures with the same settings share one search. Noise falls on all trained weights, biases
    included, and the divergence counts the same weights.
    """

    method = ("E10",)
    cites = ("jiang2020fantastic", "dziugaite2020search")
    direction = "lower"
    needs = frozenset({"classification", "gradients"})
    cost = "expensive"

    magnitude: bool = option(False, help="let the noise on a weight grow with its size")
    rise: float = option(0.1, help="rise of the training error that is allowed", above=0, below=1)
    samples: int = option(1000, help="largest number of training samples to use", low=1)
    seed: int = option(0, help="seed of noise and of the choice of samples", low=0)

    def found(self, subject: Subject, draws: int = 0, *, published: bool = False) -> NoiseSearch:
        """Search for Gaussian noise if draws are given, else for the worst noise."""
        what = Search(self.magnitude, self.rise, draws or 1, self.samples, self.seed, published)
        search = what.gaussian(subject) if draws else what.worst(subject)
        if not search.converged:
            end = "no" if search.scale == RANGE[1] else "every"
            raise Undefined(
                f"needs a noise that raises the training error by {self.rise}, and {end} noise from "
                f"{RANGE[0]} to {RANGE[1]} does so"
            )
        return search

    def terms(self, search: NoiseSearch) -> dict[str, float]:
        """Return what is read with the value."""
        error = search.standard_error
        known = {} if error is None else {"scale_error": error}
        return {"scale": search.scale, **known, "rise": search.rise, "train_error": search.error}


class ComplexityMeasure(NoiseMeasure, abc.ABC, abstract=True):
    """The root of a PAC-Bayes complexity for Gaussian noise around the weights."""

    origin: Origin = option(
        "zero", help="center of the prior: zero, or the weights from before training"
    )

    def missing(self, subject: Subject) -> str:
        """Ask for the initial weights where they are the center of the prior."""
        if self.origin == "initial" and subject.initial is None:
            return "needs the weights from before training (initial=state_dict)"
        return super().missing(subject)

    def result(
        self,
        subject: Subject,
        search: NoiseSearch,
        factor: float = 1.0,
        published: float | None = None,
    ) -> Estimate:
        """Return the complexity for noise that is ``factor`` times what was found."""
        place, center = weights_and_center(subject, self.origin)

        def value(scale: float) -> tuple[float, float]:
            sizes = Search(self.magnitude, published=published is not None).sizes(
                place, factor * scale
            )
            divergence = gaussian_divergence(place - center, sizes)
            half = divergence / 2 if published is None else published
            samples = len(subject.train)
            inside = half + math.log(samples / (factor * scale)) + 10
            return math.sqrt(max(inside, 0.0) / samples), divergence

        here, divergence = value(search.scale)
        error = search.standard_error
        spread = (
            None
            if error is None or published is not None
            else abs(value(search.scale + error)[0] - here)
        )
        return Estimate(
            value=here,
            status="heuristic",
            standard_error=spread,
            terms={**self.terms(search), "divergence": divergence},
        )


def weights_and_center(subject: Subject, origin: str) -> tuple[Tensor, Tensor]:
    """Return all trained weights, and the center of the prior, as flat vectors."""
    flat = FlatLoss(subject)
    place = flat.point.double().cpu()
    if origin == "zero":
        return place, torch.zeros_like(place)
    assert subject.initial is not None
    start = [subject.initial[name].double().cpu().flatten() for name in flat.named]
    return place, torch.cat(start)


def gaussian_divergence(shift: Tensor, sizes: Tensor) -> float:
    r"""Compute KL(N(w, diag s²) ‖ N(p, v I)) for the variance v that makes it smallest.

    Formula: $\frac{1}{2} \sum_i \ln \frac{v}{s_i^2}, \quad v = \frac{1}{k} \left( \sum_i s_i^2 + \lVert
    w - p \rVert^2 \right)$

    Args:
        shift: w − p.
        sizes: The standard deviations s.

    >>> round(gaussian_divergence(torch.tensor([3.0]), torch.tensor([1.0])), 6)  # ½ ln 10
    1.151293
    """
    squares = sizes.double().square()
    best = (squares.sum() + shift.double().square().sum()) / len(shift)
    return 0.5 * float((best / squares).log().sum())
