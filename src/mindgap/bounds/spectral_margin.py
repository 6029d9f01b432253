"""The margin bound by spectral norms of Bartlett, Foster and Telgarsky, with all constants.

Theorem 1.1 of the paper hides its constants. This is its proof with every step counted, for a chain
of layers x_l = φ_l(A_l x_{l-1} + b_l), φ_l(0) = 0, n samples X, and bounds that are fixed before the
data are seen: ‖A_l‖ ≤ s_l, ‖b_l‖ ≤ t_l, ‖[A_l − M_l, b_l − m_l]ᵀ‖_{2,1} ≤ a_l, φ_l ρ_l-Lipschitz.

1. The activations of layer l have norm ‖X_l‖_F ≤ B_l = ρ_l (s_l B_{l-1} + √n t_l), B_0 = ‖X‖_F. With a
   column of ones for the bias it is (B_l² + n)^½.
2. Maurey's lemma (Lemma 3.2): for fixed X_{l-1}, k = ⌈c²/ε²⌉ of the 2dm signed entries are enough to
   come ε-close to any [A − M, b − m] applied to it, c = a_l (B_{l-1}² + n)^½. If c ≤ ε the zero matrix
   is. So the logarithm of the covering number is at most 2 (c/ε)² ln(2dm).
3. Covers are made layer by layer. Each element is projected onto the ball of radius s_l B_{l-1} + √n
   t_l, which holds all that it stands for, so that step 1 holds for covers too. An error ε_l becomes
   w_l ε_l at the output, w_l = ρ_l ∏_{j>l} ρ_j s_j. The best ε_l for a total error of ε give a logarithm
   of 2 R²/ε², R = (Σ_l (c_l w_l √ln(2 d_l m_l))^{2/3})^{3/2}.
4. A margin is √2-Lipschitz in the outputs, a ramp of width γ 1/γ-Lipschitz in the margin. Dudley's
   integral (Lemma A.5), 4α/√n + (12/n) ∫_α^√n 2R/(γε) dε, is smallest at α = 6R/(γ√n).
5. Two times that complexity and 3 √(ln(2/δ)/2n) bound the ramp loss on unseen data (Mohri et al.,
   Theorem 3.3), which is at least the error rate.
6. γ, s, t and a are points of grids, and each point has its share of δ.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch

from mindgap.bounds.margin_bound import SMALLEST, MarginBound, share_of
from mindgap.core import Subject, Terms, Undefined, option
from mindgap.ops.norms.layer_norms import layer_norm
from mindgap.ops.norms.network import Network, changes_of, input_norms, network_of
from mindgap.ops.norms.watch import Call

FINER = 4  # grid points of a norm between a power of two and the next


class SpectralMargin(MarginBound):
    r"""Bound the error rate by margins and the spectral norms of all layers.

    Formula: $R \le \hat R_\gamma + \frac{48 R_A}{\gamma n} \left( 1 + \ln_+ \frac{\gamma n}{6 R_A} \right) +
    3 \sqrt{\frac{\ln(2/\delta)}{2n}}, \quad R_A = \left( \sum_l (c_l w_l)^{2/3} \right)^{3/2}, \quad
    c_l w_l \approx \lVert X \rVert_F \prod_j \rho_j \lVert A_j \rVert_2 \cdot \frac{\lVert A_l^T - M_l^T
    \rVert_{2,1}}{\lVert A_l \rVert_2} \sqrt{\ln(2 d_l m_l)}$

    Reading: The theorem of Bartlett, Foster and Telgarsky with explicit constants. For networks it
    is vacuous, because ``radius``, which is R_A, is far above γn. The best margin then is one that no
    sample reaches. To compare models, take the measure spectral-complexity. ``lipschitz`` is the
    product of the norms.

    Assumes: Independent training samples, and a chain of dense layers, convolutions, activations
    and pooling that was chosen without them; no residual sums. Norms are upper bounds at the real
    input shape, rounded up to a grid with its share of δ. M is zero or the initial weights.

    >>> bound = SpectralMargin(delta=0.1)
    >>> round(float(bound.evaluate(empirical=0.0, radius=1.0, margin=1.0, samples=100_000)), 4)
    0.0168
    """

    method = ("E10",)
    cites = ("bartlett2017spectrally", "mohri2018foundations")
    cost = "moderate"

    origin: Literal["zero", "initial"] = option(
        "zero", help="reference M: zero, or the weights from before training"
    )

    def missing(self, subject: Subject) -> str:
        """Ask for the initial weights where they are the reference."""
        if self.origin == "initial" and subject.initial is None:
            return "needs the weights from before training (initial=state_dict)"
        return super().missing(subject)

    def formula(
        self,
        *,
        empirical: float,
        radius: float,
        margin: float,
        samples: int,
        lipschitz: float = 0.0,
        share: float = 1.0,
    ) -> Terms:
        """Evaluate the theorem for R_A and a margin."""
        size = radius / (margin * samples)
        # Where R_A is as large as γn the integral is empty, and the first term alone is left.
        grown = 24 * size * (1 + max(0.0, -math.log(6 * size))) if size > 0 else 0.0
        slack = self.deviation(samples, share, expected=False)
        others = {"lipschitz": lipschitz, "radius": radius, "margin": margin}
        return self.terms(empirical, 2 * grown + slack, **others)

    def complexity(self, subject: Subject) -> Mapping[str, Any]:
        """Compute R_A, the product of the norms, and the share of δ of all their grids."""
        network = network_of(subject)
        moved = changes_of(subject) if self.origin == "initial" else network.layers
        slopes, samples = _slopes(network), len(subject.train)
        uppers = subject.cached("norms: upper", lambda: [each.upper() for each in network.layers])
        size, share = slopes[0] * input_norms(subject)[0], 1.0
        parts = list[float]()
        for layer, change, upper, slope in zip(
            network.layers, moved, uppers, slopes[1:], strict=True
        ):
            biased = layer.bias is not None
            rows = change.row_squares() + change.spread_bias.flatten().square()
            (norm, first), (length, second) = _rounded(upper), _rounded(float(rows.sqrt().sum()))
            bias, third = _rounded(float(layer.spread_bias.norm())) if biased else (0.0, 1.0)
            share *= first * second * third
            pairs = 2 * (math.prod(layer.shape) + biased) * math.prod(layer.left)
            reach = length * math.sqrt(size**2 + biased * samples) * math.sqrt(math.log(pairs))
            # All earlier errors pass this layer and its activation; its own the activation only.
            parts = [*(part * norm * slope for part in parts), reach * slope]
            size = slope * (norm * size + math.sqrt(samples) * bias)
        radius = math.fsum(part ** (2 / 3) for part in parts) ** 1.5
        if not (math.isfinite(radius) and share > 0):
            raise Undefined("needs norms whose product is a finite number")
        lipschitz = math.prod(uppers) * math.prod(slopes)
        return {"radius": radius, "samples": samples, "lipschitz": lipschitz, "share": share}


def _rounded(norm: float) -> tuple[float, float]:
    """Round a norm up to the grid; return it and its share of ``delta``."""
    if not math.isfinite(norm):
        raise Undefined("needs finite norms")
    place = max(FINER * SMALLEST, math.ceil(FINER * math.log2(norm))) if norm > 0 else None
    place = FINER * SMALLEST if place is None else place
    return 2.0 ** (place / FINER), share_of(place)


def _slopes(network: Network) -> list[float]:
    """Return the Lipschitz constants of what lies before, between and behind the weighted layers."""
    if not network.chain:
        raise Undefined("needs a model that does nothing but call its layers one after the other")
    if network.skipped:
        raise Undefined(
            f"needs weights in dense layers and convolutions only, not in "
            f"{next(iter(network.skipped))}"
        )
    if network.approximated:
        raise Undefined("needs convolutions that are padded with zeros")
    weighted, found = {layer.name for layer in network.layers}, [1.0]
    for seen in network.calls:
        if seen.name in weighted:
            found.append(1.0)
        else:
            found[-1] *= _slope(seen)
    return found


def _slope(seen: Call) -> float:
    assert seen.entered is not None
    constant = layer_norm(seen).upper
    with torch.no_grad():
        at_zero = seen.module(torch.zeros_like(seen.entered))
    if not math.isfinite(constant) or bool(at_zero.abs().max() > 0):
        raise Undefined(
            "needs activations with a Lipschitz constant that are zero at zero, not "
            f"{type(seen.module).__name__}"
        )
    return constant
