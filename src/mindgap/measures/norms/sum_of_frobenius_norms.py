"""The balanced sum of all layers' Frobenius norms."""

from mindgap.core import Subject
from mindgap.measures.norms.by_layer import NormProduct
from mindgap.ops.norms.network import frobenius, network_of


class SumOfFrobeniusNorms(NormProduct):
    r"""Logarithm of the sum of Frobenius norms after layers were balanced.

    Formula: $\frac{1}{2} \ln \frac{d (\prod_{l=1}^{d} \lVert W_l \rVert_F^2)^{1/d}}{n}$

    Reading: The sum of squared norms once ReLU rescaling has made them equal, so that it does not
    depend on how the weights are spread over the layers. It is no plain sum of norms. Claimed to be
    larger where a model generalizes worse. Divided by the margin it is ``over_margin``.

    Assumes: Dense layers and convolutions; batch normalization is folded, biases do not count.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> subject = Subject(model, "mse", (torch.ones(1, 2), torch.ones(1, 2)))
    >>> round(float(SumOfFrobeniusNorms()(subject)), 4)
    1.6094
    """

    title = "Frobenius norm by layer"
    balanced = True

    def norms(self, subject: Subject) -> tuple[list[float], bool]:
        """Return the Frobenius norms."""
        network = network_of(subject)
        found = [frobenius(layer, self.entries) for layer in network.layers]
        return found, self.entries == "kernel" or not network.approximated
