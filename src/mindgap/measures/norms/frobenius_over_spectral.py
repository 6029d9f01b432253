"""The stable ranks of all layers."""

import math

from mindgap.core import Estimate, Subject
from mindgap.measures.norms.by_layer import ByLayer, log_of
from mindgap.ops.norms.network import converged, frobenius, network_of, spectral_norms


class FrobeniusOverSpectral(ByLayer):
    r"""Logarithm of the sum of all layers' stable ranks.

    Formula: $\frac{1}{2} \ln \left( \frac{1}{n} \sum_{l=1}^{d} \frac{\lVert W_l \rVert_F^2}{\lVert W_l
    \rVert_2^2} \right)$

    Reading: The stable rank of a layer is at least one and at most its rank. Small means that few
    directions carry its weights. No scaling of a layer changes it.

    Assumes: Dense layers and convolutions; batch normalization is folded, biases do not count.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> subject = Subject(model, "mse", (torch.ones(1, 2), torch.ones(1, 2)))
    >>> round(math.exp(2 * float(FrobeniusOverSpectral()(subject))), 4)  # 25 / 16
    1.5625
    """

    cites = ("jiang2020fantastic",)
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )

    def compute(self, subject: Subject) -> Estimate:
        """Return the logarithm, and the stable rank of each layer."""
        norms, network = spectral_norms(subject, self.spectral), network_of(subject)
        ranks = [
            math.exp(2 * log_of(frobenius(layer, self.entries), "the norm of a layer"))
            / norm.value**2
            for layer, norm in zip(network.layers, norms, strict=True)
        ]
        reached = converged(norms)
        exact = reached and not network.approximated
        return self.estimate(
            subject,
            (math.log(math.fsum(ranks)) - math.log(len(subject.train))) / 2,
            ranks,
            "Stable rank by layer",
            converged=reached,
            status="exact" if exact else "heuristic",
        )
