"""The norm of the weights."""

from mindgap.core import Bar, Estimate, Measure, Subject
from mindgap.ops.models.parameters import norms, total


class ParameterNorm(Measure):
    r"""Euclidean norm of all weights.

    Formula: $\lVert w \rVert_2 = \sqrt{\sum_i w_i^2}$

    Reading: Large weights are claimed to mean high capacity. Only models of one architecture can be
    compared, and a ReLU network can be rescaled to any larger norm without changing what it
    computes.

    Assumes: Nothing.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> float(ParameterNorm()(Subject(model, "mse", (torch.ones(1, 2), torch.ones(1, 2)))))
    5.0
    """

    method = ("P6",)
    cites = ("jiang2020fantastic",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication"})

    def compute(self, subject: Subject) -> Estimate:
        """Return the norm, in total and by tensor."""
        parts = norms(dict(subject.model.named_parameters()))
        chart = Bar.of(parts, title="Norm by tensor", y_label="norm", horizontal=True, wide=False)
        return Estimate(value=total(parts), details={"by_tensor": parts}, charts=(chart,))
