"""The product of all layers' Frobenius norms."""

from mindgap.core import Subject
from mindgap.measures.norms.by_layer import NormProduct
from mindgap.ops.norms.network import frobenius, network_of


class ProductOfFrobeniusNorms(NormProduct):
    r"""Logarithm of the product of all layers' Frobenius norms.

    Formula: $\frac{1}{2} \ln \frac{\prod_{l=1}^{d} \lVert W_l \rVert_F^2}{n}$

    Reading: Claimed to be larger where a model generalizes worse. It grows with depth and width, so
    that only models of one architecture can be compared. Divided by the margin it is
    ``over_margin``.

    Assumes: Dense layers and convolutions; batch normalization is folded, biases do not count.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> subject = Subject(model, "mse", (torch.ones(1, 2), torch.ones(1, 2)))
    >>> round(float(ProductOfFrobeniusNorms()(subject)), 4)
    1.6094
    """

    title = "Frobenius norm by layer"

    def norms(self, subject: Subject) -> tuple[list[float], bool]:
        """Return the Frobenius norms."""
        network = network_of(subject)
        found = [frobenius(layer, self.entries) for layer in network.layers]
        return found, self.entries == "kernel" or not network.approximated
