"""The spectral complexity of Bartlett, Foster and Telgarsky, and two forms of Jiang et al."""

import math
from typing import Literal

from mindgap.core import Estimate, Subject, option
from mindgap.measures.norms.by_layer import ByLayer, log_of, over_margin, the_margin
from mindgap.ops.norms.folding import LAYERS
from mindgap.ops.norms.layer_norms import layer_norm
from mindgap.ops.norms.network import (
    changes_of,
    converged,
    frobenius,
    input_norms,
    network_of,
    spectral_norms,
)
from mindgap.ops.norms.singular import Singular
from mindgap.ops.norms.weighted import WeightedLayer


class SpectralComplexity(ByLayer):
    r"""Logarithm of the product of spectral norms times a sum of distances.

    Formula: $\ln R_A = \ln \prod_{l=1}^{d} \rho_l \lVert A_l \rVert_2 + \frac{3}{2} \ln \sum_{l=1}^{d}
    \left( \frac{\lVert A_l^T - M_l^T \rVert_{2,1}}{\lVert A_l \rVert_2} \right)^{2/3}$

    Reading: The Lipschitz constant of a chain of layers times a factor for the directions that
    training used, on a logarithmic scale. With random labels it is larger, and so is the gap. The
    form ``main`` is of Jiang et al., ½ ln(∏‖W‖² Σ‖W−M‖²_F/‖W‖² / n); ``full`` adds the factor B² d² h
    ln(dh) of Neyshabur et al. for the size of inputs, depth and width. The bound "spectral-margin"
    has all constants.

    Assumes: Dense layers and convolutions; batch normalization is folded, biases do not count. The
    (2,1)-norm sums over the output units. M is zero or the weights from before training.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> subject = Subject(model, "mse", (torch.ones(1, 2), torch.ones(1, 2)))
    >>> round(math.exp(float(SpectralComplexity()(subject))), 4)  # 4 · (7 / 4)
    7.0
    """

    cites = ("bartlett2017spectrally", "neyshabur2018pac", "jiang2020fantastic")
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    origin: Literal["zero", "initial"] = option(
        "zero", help="reference M: zero, or the weights from before training"
    )
    form: Literal["bartlett", "main", "full"] = option(
        "bartlett", help="Bartlett et al., or the main or full expression of Jiang et al."
    )
    margin: bool = option(False, help="divide by the margin of the training samples")

    def missing(self, subject: Subject) -> str:
        """Ask for the initial weights where they are the reference."""
        if self.origin == "initial" and subject.initial is None:
            return "needs the weights from before training (initial=state_dict)"
        return super().missing(subject)

    def compute(self, subject: Subject) -> Estimate:
        """Return the logarithm, and what each layer adds to the sum."""
        network, norms = network_of(subject), spectral_norms(subject, self.spectral)
        moved = changes_of(subject) if self.origin == "initial" else network.layers
        parts = [self._part(layer, norm) for layer, norm in zip(moved, norms, strict=True)]
        product = math.fsum(log_of(norm.value, "the norm of a layer") for norm in norms)
        lipschitz = product + math.log(slopes(subject))
        total = log_of(math.fsum(parts), "the distance from the reference")
        value = lipschitz + 1.5 * total if self.form == "bartlett" else product + total / 2
        value += self._factor(subject, network.layers)
        terms = {
            "log_lipschitz": lipschitz,
            **over_margin(subject, value, unsigned=self.as_published),
        }
        if self.margin:
            the_margin(subject, unsigned=self.as_published)
            value = terms.pop("over_margin")
        reached = converged(norms)
        exact = reached and not network.approximated
        return self.estimate(
            subject,
            value,
            parts,
            "Part of the sum by layer",
            converged=reached,
            terms=terms,
            status="exact" if exact else "heuristic",
        )

    def _part(self, moved: WeightedLayer, norm: Singular) -> float:
        if self.form == "bartlett":
            length = float(moved.row_squares(self.entries).sqrt().sum())
            return float((length / norm.value) ** (2 / 3)) if norm.value > 0 else 0.0
        ratio = frobenius(moved, self.entries) / norm.value if norm.value > 0 else 0.0
        return ratio**2

    def _factor(self, subject: Subject, layers: tuple[WeightedLayer, ...]) -> float:
        """Return the logarithm of the factors that do not depend on the weights."""
        if self.form == "bartlett":
            return 0.0
        samples = -math.log(len(subject.train)) / 2
        if self.form == "main":
            return samples
        depth, width = len(layers), max(math.prod(layer.left) for layer in layers)
        largest = log_of(input_norms(subject)[1], "the largest input")
        return (
            samples
            + largest
            + math.log(depth)
            + math.log(width * math.log(max(depth * width, 2))) / 2
        )


def slopes(subject: Subject) -> float:
    """Return the product of the Lipschitz constants of activations and pools that are layers."""
    kinds = ("activation", "max-pool", "average-pool")
    calls = network_of(subject).calls
    found = (layer_norm(seen) for seen in calls if not isinstance(seen.module, LAYERS))
    return math.prod(row.exact or row.upper for row in found if row.kind in kinds)
