"""The PAC-Bayes measures of Jiang et al."""

import torch
from torch import Tensor

from mindgap.core import Estimate, Subject, option
from mindgap.measures.sharpness.noise_measure import ComplexityMeasure, weights_and_center
from mindgap.measures.sharpness.noise_search import EPSILON, NoiseSearch
from mindgap.ops.curvature.flat_loss import FlatLoss


class PacBayesComplexity(ComplexityMeasure):
    r"""PAC-Bayes complexity for the largest Gaussian noise that the model stands.

    Formula: $\sqrt{\frac{1}{n} \left( \frac{1}{2} \mathrm{KL}(Q \Vert P) + \ln \frac{n}{\sigma} + 10
    \right)}, \quad Q = N(w, \sigma^2 I), \quad P = N(p, v I)$

    Reading: Claimed to be larger where a model generalizes worse, and one of the best predictors of
    its kind. Neither σ nor v were chosen without the data, so this is no bound: see the bounds
    pac-bayes-…, and certificates. ``scale`` is the standard deviation σ, with its ``scale_error``.

    Assumes: σ is the noise that raises the training error by ``rise``. With ``magnitude`` its
    variance is σ'²w² + ε² with ε = 0.001. v makes the divergence smallest.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.eye(2))
    >>> data = torch.eye(2).repeat(8, 1), torch.arange(2).repeat(8)
    >>> 0.5 < float(PacBayesComplexity()(Subject(model, "cross_entropy", data))) < 1.5
    True
    """

    draws: int = option(16, help="draws of the noise, the same ones for every size", low=2)
    as_published: bool = option(
        False,
        help=(
            "as the code of Dziugaite et al.: noise of standard deviation σ², ‖w−p‖²/4σ² without "
            "biases, or with magnitude a sum that mixes two centers and is no divergence"
        ),
    )

    def missing(self, subject: Subject) -> str:
        """Ask for the initial weights, which the published form for magnitudes always has."""
        if self.as_published and self.magnitude and subject.initial is None:
            return "needs the weights from before training (initial=state_dict)"
        return super().missing(subject)

    def compute(self, subject: Subject) -> Estimate:
        """Search for the noise and evaluate the complexity."""
        search = self.found(subject, self.draws, published=self.as_published)
        published = self._published(subject, search) if self.as_published else None
        return self.result(subject, search, published=published)

    def _published(self, subject: Subject, search: NoiseSearch) -> float:
        counted = _no_biases(subject)
        place, center = (part[counted] for part in weights_and_center(subject, self.origin))
        if not self.magnitude:
            return float((place - center).square().sum()) / (4 * search.scale**2)
        start = weights_and_center(subject, "initial")[1][counted]
        return published_magnitude(place, center, start, search.scale)


def _no_biases(subject: Subject) -> Tensor:
    """Tell for every trained weight whether it belongs to a matrix or a kernel."""
    flat = FlatLoss(subject)
    shapes = dict(subject.model.named_parameters())
    kept = [
        torch.full((size,), shapes[name].ndim > 1)
        for name, size in zip(flat.named, flat.sizes, strict=True)
    ]
    return torch.cat(kept)


def published_magnitude(
    place: Tensor, center: Tensor, start: Tensor, scale: float, epsilon: float = EPSILON
) -> float:
    """Compute the magnitude-aware expression as it was published and coded.

    Its denominator holds the distance from initialization whatever the origin, so that for the
    origin zero it is smaller than any divergence of the kind.

    Args:
        place: The weights.
        center: The center of the prior.
        start: The weights from before training.
        scale: σ'.
        epsilon: ε.
    """
    distance = float((place - center).square().sum()) / len(place)
    above = epsilon**2 + (scale**2 + 1) * distance
    below = epsilon**2 + scale**2 * (place - start).square()
    return 0.25 * float((above / below).log().sum())
