"""The product of all layers' spectral norms."""

from mindgap.core import Subject
from mindgap.measures.norms.by_layer import NormProduct
from mindgap.ops.norms.network import converged, spectral_norms


class ProductOfSpectralNorms(NormProduct):
    r"""Logarithm of the product of all layers' spectral norms.

    Formula: $\frac{1}{2} \ln \frac{\prod_{l=1}^{d} \lVert W_l \rVert_2^2}{n}$

    Reading: The product bounds the Lipschitz constant of a chain of layers, from far above. Claimed to
    be larger where a model generalizes worse; Dziugaite et al. find the opposite in most of their
    comparisons. Divided by the margin it is ``over_margin``.

    Assumes: Dense layers and convolutions; batch normalization is folded, biases do not count.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> subject = Subject(model, "mse", (torch.ones(1, 2), torch.ones(1, 2)))
    >>> round(float(ProductOfSpectralNorms()(subject)), 4)
    1.3863
    """

    title = "Spectral norm by layer"
    searched = True

    def norms(self, subject: Subject) -> tuple[list[float], bool]:
        """Return the spectral norms."""
        found = spectral_norms(subject, self.spectral)
        return [norm.value for norm in found], converged(found)
