"""The balanced sum of all layers' spectral norms."""

from mindgap.core import Subject
from mindgap.measures.norms.by_layer import NormProduct
from mindgap.ops.norms.network import converged, spectral_norms


class SumOfSpectralNorms(NormProduct):
    r"""Logarithm of the sum of spectral norms after layers were balanced.

    Formula: $\frac{1}{2} \ln \frac{d (\prod_{l=1}^{d} \lVert W_l \rVert_2^2)^{1/d}}{n}$

    Reading: The sum of squared norms once ReLU rescaling has made them equal, so that it does not
    depend on how the weights are spread over the layers. It is no plain sum of norms. Claimed to be
    larger where a model generalizes worse. Divided by the margin it is ``over_margin``.

    Assumes: Dense layers and convolutions; batch normalization is folded, biases do not count.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> subject = Subject(model, "mse", (torch.ones(1, 2), torch.ones(1, 2)))
    >>> round(float(SumOfSpectralNorms()(subject)), 4)
    1.3863
    """

    title = "Spectral norm by layer"
    searched = True
    balanced = True

    def norms(self, subject: Subject) -> tuple[list[float], bool]:
        """Return the spectral norms."""
        found = spectral_norms(subject, self.spectral)
        return [norm.value for norm in found], converged(found)
