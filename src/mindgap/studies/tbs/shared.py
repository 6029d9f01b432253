"""What the studies of Taylor Based Sampling share: networks, sampled points, paired tests."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Bar, Series, generator, holm, paired, standard_error
from mindgap.nets import MLP
from mindgap.ops.mixture.fit import fit_mixture
from mindgap.sampling import Acquisition, Box, Proposal, TaylorSampler
from mindgap.sampling.acquisition import Function
from mindgap.sampling.initial_design import Design

CONTROL = "uniform"
# The square root of scikit-learn's default reg_covar, which keeps a component from collapsing.
LEAST_DEVIATION = 1e-3


def keras_mlp(*widths: int) -> MLP:
    """Build an MLP with ReLU, initialized as in Keras: Glorot uniform weights, zero biases.

    Args:
        widths: Inputs, units of each hidden layer, and outputs.

    >>> [name for name, value in keras_mlp(1, 8, 1).named_parameters() if not bool(value.any())]
    ['1.bias', '3.bias']
    """
    model = MLP(widths, "relu")
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model


def sampled(
    function: Function,
    box: Box,
    counts: tuple[int, int],
    design: Design,
    acquisition: Acquisition,
    proposal: Proposal,
    seed: int,
) -> Tensor:
    """Return the points of an initial design followed by those that TBS adds.

    Args:
        function: The function to sample.
        box: Its domain.
        counts: Number of points in the initial design and number of new points.
        design: Kind of the initial design.
        acquisition: What makes a place worth sampling.
        proposal: How new points are drawn from the acquisition function.
        seed: For all draws.
    """
    sampler = TaylorSampler(
        function,
        box,
        initial=counts[0],
        initial_design=design,
        acquisition=acquisition,
        proposal=proposal,
        seed=seed,
    )
    return sampler.run(counts[1]).points


def resampled(
    known: Tensor, metric: Tensor, count: int, components: int, box: Box, seed: int
) -> Tensor:
    """Resample known points by the Taylor metric and draw from a mixture fitted to them.

    The mixture is unweighted. This follows the text of the paper literally.

    Args:
        known: The points evaluated so far.
        metric: Their Taylor metric.
        count: Number of new points.
        components: Gaussians of the mixture, at most.
        box: The domain.
        seed: For all draws.
    """
    random = generator(seed)
    picks = torch.multinomial(metric, len(known), replacement=True, generator=random)
    chosen = known[picks]
    distinct = len(chosen.unique(dim=0))
    mixture = fit_mixture(chosen, None, min(components, distinct), floor=LEAST_DEVIATION, seed=seed)
    return mixture.sample_inside(count, box.contains, random).points


def against(
    scores: Mapping[str, Sequence[float]], control: str = CONTROL
) -> dict[str, tuple[Any, ...]]:
    """Compare every arm with the control, paired over seeds.

    Args:
        scores: The scores of each arm, in the order of the seeds.
        control: The arm to compare with.

    Returns:
        By arm: mean, standard error, difference, its interval, and p-value corrected by Holm.
    """
    others = [arm for arm in scores if arm != control]
    tests = {arm: paired(scores[arm], scores[control]) for arm in others}
    corrected = dict(zip(others, holm([test.p_value for test in tests.values()]), strict=True))
    rows: dict[str, tuple[Any, ...]] = {}
    for arm, values in scores.items():
        tail: tuple[Any, ...] = (None,) * 4
        if arm in tests:
            low, high = tests[arm].interval.low, tests[arm].interval.high
            tail = (tests[arm].difference, low, high, corrected[arm])
        rows[arm] = (sum(values) / len(values), standard_error(values), *tail)
    return rows


def bars(title: str, label: str, found: Mapping[str, tuple[Any, ...]]) -> Bar:
    """Chart the differences from the control with their intervals.

    Args:
        title: The title of the chart.
        label: What the differences measure.
        found: The rows of :func:`against`.
    """
    chosen = {arm: row for arm, row in found.items() if row[2] is not None}
    change, low, high = ([row[place] for row in chosen.values()] for place in (2, 3, 4))
    series = Series(name=title, x=list(chosen), y=change, low=low, high=high)
    return Bar(title=title, x_label="arm", y_label=label, series=[series])


def comparison(title: str, scores: Mapping[str, Sequence[float]], arm: str, control: str) -> str:
    """Compare an arm with another control than uniform points, in one sentence.

    Args:
        title: What is measured.
        scores: The scores of each arm, in the order of the seeds.
        arm: The arm to judge.
        control: The arm to compare it with.
    """
    test = paired(scores[arm], scores[control])
    ends = f"{test.interval.low:.3g} to {test.interval.high:.3g}"
    return (
        f"{title}: {arm} minus {control}: {test.difference:.3g}, 95 % interval {ends}, "
        f"p = {test.p_value:.2g}."
    )
