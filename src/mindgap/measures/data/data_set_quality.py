"""Whether a data set is concentrated in the path space of a network."""

from mindgap.core import Estimate, Histogram, Mark, Measure, Subject, option
from mindgap.core.measure import INVARIANCES
from mindgap.ops.paths.concentrated import (
    Compared,
    compared_moments,
    compared_squares,
    compared_targets,
    divisions,
)
from mindgap.ops.paths.subject import sides_of

BUDGET = 2e11  # multiplications for β₂: ten seconds


class DataSetQuality(Measure):
    r"""How far training data differ from held-out data in the path space of the network.

    Formula: $\beta_1 = \frac{\lambda_{max}\left( \mathbb{E}[z z^\top] - \frac{1}{n} \sum_i z_i z_i^\top
    \right)}{\mathbb{E} \lVert z \rVert^2}, \; \beta_2 = \max_k \left\lVert \frac{1}{n} \sum_i y_{ik}
    z_i - \mathbb{E}[y_k z] \right\rVert_\infty, \; \beta_3 = \mathbb{E}[y^\top y] - \frac{1}{n}
    \sum_i y_i^\top y_i$

    Reading: The value is β₁. All three are zero for a data set that is as good as its population, and
    of the order $n^{-1/2}$ for any other. So read each next to the median of its null: random
    divisions of the same samples into training and held-out ones. A small p-value says that the
    two differ by more than chance, which may also be because the network was fitted to one of them.

    Assumes: A chain of linear, convolutional, ReLU and pooling layers. E[·] is the mean over the test
    data. β₂ is an upper bound where the exact maximum would take too long (``beta_2_exact`` is 0);
    its null is computed in the same way.

    >>> import torch
    >>> from mindgap.nets import MLP
    >>> x = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > 0).long()
    >>> subject = Subject(MLP((3, 4, 2)), "cross_entropy", (x[:40], y[:40]), (x[40:], y[40:]))
    >>> found = DataSetQuality()(subject)
    >>> 0 < found.terms["p_value"] <= 1, found.terms["beta_3"]
    (True, 0.0)
    """

    method = ("K4",)
    cites = ("kawaguchi2017generalization",)
    direction = "lower"
    needs = frozenset({"test"})
    invariant_to = frozenset(INVARIANCES)
    cost = "expensive"

    samples: int = option(1000, help="largest number of samples of each kind, at random", low=2)
    permutations: int = option(99, help="random divisions that make the null of β₁", low=19)
    seed: int = option(0, help="seed of the samples and of the divisions", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Return β₁, and all three with their nulls."""
        sides = sides_of(subject, self.samples, self.seed)
        null = divisions(sides, self.permutations, self.seed)
        first, third = compared_moments(sides, null), compared_squares(sides, null)
        second = compared_targets(sides, null, BUDGET)
        terms = {"null_median": first.median, "p_value": first.p_value}
        for name, found in (("beta_2", second), ("beta_3", third)):
            terms |= {
                name: found.value,
                f"{name}_null_median": found.median,
                f"{name}_p_value": found.p_value,
            }
        return Estimate(
            value=first.value,
            terms={**terms, "beta_2_exact": float(second.exact)},
            details={"held_out": int(sides.held.sum()), "training": int((~sides.held).sum())},
            charts=(_chart("β₁", first), _chart("β₂", second)),
        )


def _chart(name: str, found: Compared) -> Histogram:
    return Histogram.of(
        {"random divisions": found.null},
        bins=20,
        clip_low=False,
        title=f"{name} of this division, and of random ones (p = {found.p_value:.2g})",
        x_label=name,
        marks=(Mark(name="training against test data", x=found.value),),
        wide=False,
    )
