"""Empirical Rademacher complexity of the model's last layer."""

import math

from mindgap.core import Bar, Estimate, InputError, Measure, Subject, Undefined, option
from mindgap.ops.models.head import find_head, head_features, layer_of
from mindgap.ops.rademacher import linear_complexity, sampled_linear_complexity


class RademacherComplexity(Measure):
    r"""How well linear functions of the last features fit random signs, in closed form.

    Formula: $\hat{\mathfrak{R}} \le \frac{B}{n} \sqrt{\sum_i \lVert \phi(x_i) \rVert_2^2}, \quad B
    = \max_k \lVert w_k \rVert_2$

    Reading: The class holds every linear function of the last features φ whose weights are not
    longer than those of the model's longest output; biases are fixed and cost nothing. The closed
    form is an upper bound; ``sampled`` is the complexity itself, estimated by random signs, and
    lies between ``lower`` = value/√2 and the value. Compare it with the range of the outputs.

    Assumes: Features that do not depend on the training labels, as those of a linear or kernel
    model. The features of a trained network do depend on them: for a network this is the complexity
    of its last layer alone, and no bound follows. See fitted-signs.

    >>> import torch
    >>> model = torch.nn.Linear(4, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[2.0, 0, 0, 0], [0, 1, 0, 0]]))
    >>> data = torch.eye(4), torch.tensor([0, 1, 0, 1])
    >>> float(RademacherComplexity()(Subject(model, "cross_entropy", data)))
    1.0
    """

    method = ("K1",)
    cites = ("bartlett2002rademacher", "latala1994constant")
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling"})

    draws: int = option(200, help="sign vectors that estimate the complexity itself", low=2)
    seed: int = option(0, help="seed of the signs", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Return the closed form, the sampled value and the norms of all outputs."""
        try:
            name = find_head(subject)
            features, layer = head_features(subject), layer_of(subject.model, name)
        except InputError as error:
            raise Undefined(str(error)) from error
        norms = layer.weight.detach().double().norm(dim=1)
        norm = float(norms.max())
        value = linear_complexity(features, norm)
        sampled, spread = sampled_linear_complexity(
            features, norm, draws=self.draws, seed=self.seed
        )
        by_output = {f"output {k}": float(one) for k, one in enumerate(norms)}
        return Estimate(
            value=value,
            terms={
                "sampled": sampled,
                "sampled_standard_error": spread,
                "lower": value / math.sqrt(2),
                "norm": norm,
            },
            details={"layer": name, "by_output": by_output},
            charts=(Bar.of(by_output, title=f"Norm of the weights of each output of {name!r}"),),
        )
