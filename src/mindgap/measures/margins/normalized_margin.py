"""Margins divided by the spectral complexity."""

import math

from mindgap.core import Estimate, Histogram, Measure, Subject, Undefined, option
from mindgap.measures.margins.margin import at
from mindgap.measures.norms.spectral_complexity import SpectralComplexity
from mindgap.ops.norms.network import input_norms


class NormalizedMargin(Measure):
    r"""Quantile of the margins divided by spectral complexity and size of the inputs.

    Formula: $Q_q\left\{ \frac{f(x_i)_{y_i} - \max_{k \neq y_i} f(x_i)_k}{R_A \lVert X \rVert_F / n}
    \right\}$

    Reading: Scaling the last layer does not change it, so that models can be compared. Bartlett et
    al. find that its distribution lies further left for random labels and harder data. Look at the
    figure: the whole distribution says more than one quantile.

    Assumes: A classification, and norms that exist (see the measure spectral-complexity). R_A has
    zero as its reference. Biases do not count in it.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.eye(2))
    >>> data = torch.tensor([[3.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 1])
    >>> subject = Subject(model, "cross_entropy", data)
    >>> round(float(NormalizedMargin(quantile=0.5)(subject)), 4)  # 3 / (2 · 5 / 2)
    0.6
    """

    method = ("E10",)
    cites = ("bartlett2017spectrally",)
    direction = "higher"
    needs = frozenset({"classification"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )

    quantile: float = option(0.1, help="share of samples that may lie below", above=0, high=1)

    def compute(self, subject: Subject) -> Estimate:
        """Return the quantile and the quartiles, and show all margins."""
        size, _ = input_norms(subject)
        if size == 0:
            raise Undefined("needs inputs that are not all zero")
        found = SpectralComplexity().compute(subject)
        scale = math.exp(-found.value) * len(subject.train) / size
        splits = {"training data": subject.margins("train").double() * scale}
        if subject.test is not None:
            splits["test data"] = subject.margins("test").double() * scale
        own = splits["training data"]
        chart = Histogram.of(
            splits,
            title="Normalized margins of all samples",
            caption="Margins divided by R_A ‖X‖ / n. The outermost bins also count what lies beyond them.",
            x_label="normalized margin",
            y_label="share of samples (± 1 s.e.)",
            shares=True,
        )
        names = {"first_quartile": 0.25, "median": 0.5, "third_quartile": 0.75}
        return Estimate(
            value=at(own, self.quantile),
            status=found.status,
            terms={name: at(own, share) for name, share in names.items()},
            details=found.details,
            charts=(chart,),
        )
