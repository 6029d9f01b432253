"""How far training moved the layers, in spectral norms."""

import math

from mindgap.core import Estimate, Subject
from mindgap.measures.norms.by_layer import ByLayer, log_of
from mindgap.ops.norms.network import converged, spectral_norms


class SpectralDistance(ByLayer):
    r"""Logarithm of the layers' distances from initialization in spectral norm.

    Formula: $\frac{1}{2} \ln \left( \frac{1}{n} \sum_{l=1}^{d} \lVert W_l - W_l^0 \rVert_2^2 \right)$

    Reading: Claimed to be larger where a model generalizes worse. A distance that is much smaller
    than the one in Frobenius norm means that training moved the weights in many directions at once.

    Assumes: The weights from before training are given. Batch normalization is folded with the
    statistics of its time: those from before training are 0 and 1.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> initial = {"weight": model.weight.detach() - torch.tensor([[3.0, 4.0]])}
    >>> data = torch.ones(1, 2), torch.ones(1, 1)
    >>> subject = Subject(model, "mse", data, initial=initial)
    >>> round(math.exp(float(SpectralDistance()(subject))), 4)
    5.0
    """

    cites = ("jiang2020fantastic",)
    needs = frozenset({"initial"})

    def compute(self, subject: Subject) -> Estimate:
        """Return the logarithm, and the distance of each layer."""
        norms = spectral_norms(subject, self.spectral, change=True)
        parts = [norm.value for norm in norms]
        total = math.fsum(part**2 for part in parts)
        value = (log_of(total, "the change of every layer") - math.log(len(subject.train))) / 2
        reached = converged(norms)
        status = "exact" if reached else "heuristic"
        return self.estimate(
            subject, value, parts, "Spectral distance by layer", converged=reached, status=status
        )
