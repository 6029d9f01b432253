"""The norm of all path weights."""

import math

import torch

from mindgap.core import Bar, Estimate, InputError, Measure, Subject, Undefined, option
from mindgap.measures.norms.by_layer import over_margin, positive_margin
from mindgap.ops.norms.path import log_path_norm


class PathNorm(Measure):
    r"""Logarithm of the norm of all path weights.

    Formula: $\frac{1}{p} \ln \sum_{path} \prod_{e \in path} |w_e|^p - \frac{1}{2} \ln n$

    Reading: The weight of a path is the product of the weights on its edges, so that ReLU
    rescaling leaves the norm alone. Claimed to be larger where a model generalizes worse. Jiang et
    al. take p = 2, the bounds of the literature p = 1. Divided by the margin it is ``over_margin``.

    Assumes: Linear layers, ReLU, pooling and sums, also residual ones. Batch normalization is
    folded, and paths begin at biases too.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> subject = Subject(model, "mse", (torch.ones(1, 2), torch.ones(1, 2)))
    >>> round(math.exp(float(PathNorm()(subject))), 4)
    5.0
    """

    method = ("E10",)
    cites = ("neyshabur2015path", "jiang2020fantastic", "gonon2024path")
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling"})

    power: int = option(2, help="p", choices=(1, 2))
    margin: bool = option(False, help="divide by the margin of the training samples")

    def compute(self, subject: Subject) -> Estimate:
        """Return the logarithm, in total and by output."""
        inputs = subject.train.take(torch.arange(1)).inputs
        try:
            logs = log_path_norm(subject.model, inputs, self.power)
        except InputError as error:
            raise Undefined(str(error)) from error
        total = float(logs.logsumexp(0))
        if total == -math.inf:
            raise Undefined("needs a path whose weights are not zero")
        value = total / self.power - math.log(len(subject.train)) / 2
        terms = over_margin(subject, value)
        if self.margin:
            positive_margin(subject)
            value = terms.pop("over_margin")
        return Estimate(value=value, terms=terms, charts=(self._chart(logs),))

    def _chart(self, logs: torch.Tensor) -> Bar:
        parts = {
            f"output {k}": float(log) / self.power for k, log in enumerate(logs) if log > -1e300
        }
        return Bar.of(parts, title="Path norm by output", y_label="logarithm of the norm")
