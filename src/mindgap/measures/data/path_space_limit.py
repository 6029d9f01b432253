"""Proposition 4: a limit of the gap of squared losses."""

import math
from typing import Any

import torch

from mindgap.core import Bar, Estimate, Measure, Series, Subject, Undefined, option
from mindgap.ops.paths.concentrated import Proposition, proposition_4
from mindgap.ops.paths.subject import Sides, sides_of


class PathSpaceLimit(Measure):
    r"""Limit of the gap of squared losses, by norms of path weights and the data's concentration.

    Formula: $R - \hat R \le \beta_1 \sum_k \lVert w_k \rVert_2^2 + 2 \sum_k \beta_{2,k} \lVert w_k
    \rVert_1 + \beta_3$

    Reading: Proposition 4, for the squared loss of the outputs against targets (classes as zeros and
    a one), summed over outputs, whatever the loss in training. The gap is that between test and
    training data and is known: ``gap`` = ``quadratic`` + ``linear`` + ``beta_3``, exactly. So the
    limit predicts nothing; ``ratio`` says how loose it is, 10⁴ to 10⁵ on trained networks. It does
    order networks that learned true and random labels, by their path norms.

    Assumes: A chain of linear, convolutional, ReLU and pooling layers. E[·] is the mean over the test
    data, so that this is no statement about a population and no bound in this package's sense. It
    is vacuous if it does not exclude the loss of the best constant output. ``as_published`` takes
    the largest β₂ for all outputs.

    >>> from mindgap.nets import MLP
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> subject = Subject(MLP((1, 4, 1)), "mse", (x[::2], x[::2]), (x[1::2], x[1::2]))
    >>> found = PathSpaceLimit()(subject)
    >>> found.terms["gap"] <= found.value <= found.terms["as_published"]
    True
    """

    method = ("K4",)
    cites = ("kawaguchi2017generalization",)
    direction = "lower"
    needs = frozenset({"test"})
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})
    cost = "expensive"

    samples: int = option(1000, help="largest number of samples of each kind, at random", low=2)
    seed: int = option(0, help="seed of the samples", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Evaluate both sides, and the terms of each."""
        sides = sides_of(subject, self.samples, self.seed)
        found = proposition_4(sides)
        if not math.isfinite(found.as_published):
            raise Undefined("needs path weights whose norms do not overflow")
        weights, sizes = float(found.squares.sum()), float(found.sums.sum())
        terms = {
            "gap": found.gap,
            "quadratic": found.quadratic,
            "linear": found.linear,
            "beta_1": found.beta_1,
            "beta_2": float(found.beta_2.max()),
            "beta_2_exact": float(found.exact),
            "beta_3": found.beta_3,
            "squared_path_norm": weights,
            "absolute_path_norm": sizes,
            "as_published": found.as_published,
            "ratio": found.limit / abs(found.gap) if found.gap else math.inf,
            "constant_loss": _constant_loss(sides),
            "training_loss": _training_loss(sides),
        }
        return Estimate(value=found.limit, terms=terms, charts=(_chart(found),))

    def flags(self, subject: Subject, outcome: Estimate) -> dict[str, Any]:  # noqa: ARG002
        """Say whether a constant output could have as small a loss as is left possible."""
        possible = outcome.terms["training_loss"] + outcome.value
        return {"vacuous": possible >= outcome.terms["constant_loss"]}


def _training_loss(sides: Sides) -> float:
    return float((sides.outputs - sides.targets)[~sides.held].square().sum(1).mean())


def _constant_loss(sides: Sides) -> float:
    targets = sides.targets[~sides.held]
    return float((targets - targets.mean(0)).square().sum(1).mean())


def _chart(found: Proposition) -> Bar:
    """Show the exact terms of the gap next to their limits, on a logarithmic axis."""
    quadratic = found.quadratic_limit
    linear = 2 * float((found.beta_2 * found.sums).sum())
    names = ["quadratic term", "linear term"]
    tiny = torch.finfo(torch.double).tiny
    exact = [max(abs(value), tiny) for value in (found.quadratic, found.linear)]
    return Bar(
        title="What Proposition 4 allows, and what is there",
        y_label="squared loss",
        y_scale="log",
        series=(
            Series(name="size of the exact term", x=names, y=exact),
            Series(name="limit", x=names, y=[max(quadratic, tiny), max(linear, tiny)]),
        ),
        wide=False,
    )
