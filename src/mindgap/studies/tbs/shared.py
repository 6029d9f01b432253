"""What the studies of Taylor Based Sampling share: networks that start as Keras's do, and paired rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import generator, holm, paired, standard_error
from mindgap.nets import MLP
from mindgap.ops.mixture.fit import fit_mixture
from mindgap.sampling import Box, Draw, Interest, TaylorSampler
from mindgap.sampling.acquisition import Function
from mindgap.sampling.initial_design import Start

CONTROL = "uniform"
LEAST_DEVIATION = 1e-3  # the root of scikit-learn's reg_covar, the least a component of its mixtures can shrink to


def keras_mlp(*widths: int) -> MLP:
    """A network of ReLU that starts as those of TensorFlow do: Glorot's uniform weights, biases zero."""
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
    start: Start,
    interest: Interest,
    draw: Draw,
    seed: int,
) -> Tensor:
    """The points of a start and those that a sampler adds to them; ``counts`` are the numbers of both."""
    sampler = TaylorSampler(
        function, box, initial=counts[0], start=start, interest=interest, density=draw, seed=seed
    )  # fmt: skip
    return sampler.run(counts[1]).points


def resampled(
    known: Tensor, interest: Tensor, count: int, components: int, box: Box, seed: int
) -> Tensor:
    """New points by the letter of the paper, whose mixture takes no weights: points resampled by interest, then EM."""
    random = generator(seed)
    picks = torch.multinomial(interest, len(known), replacement=True, generator=random)
    chosen = known[picks]
    distinct = len(chosen.unique(dim=0))
    mixture = fit_mixture(chosen, None, min(components, distinct), floor=LEAST_DEVIATION, seed=seed)
    return mixture.sample_inside(count, box.contains, random).points


def against(
    scores: Mapping[str, Sequence[float]], control: str = CONTROL
) -> dict[str, tuple[Any, ...]]:
    """By arm: mean, standard error, difference from the control with its interval, and Holm's p-value."""
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


def bars(title: str, label: str, found: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The differences from the control as bars with their intervals."""
    chosen = {arm: row for arm, row in found.items() if row[2] is not None}
    series = {"name": title, "x": list(chosen), "y": [row[2] for row in chosen.values()]}
    ends = {"low": [row[3] for row in chosen.values()], "high": [row[4] for row in chosen.values()]}
    return {
        "kind": "bar",
        "title": title,
        "x_label": "arm",
        "y_label": label,
        "series": [series | ends],
    }


def beside(title: str, scores: Mapping[str, Sequence[float]], arm: str, control: str) -> str:
    """An arm against another control than the uniform one, in words."""
    test = paired(scores[arm], scores[control])
    ends = f"{test.interval.low:.3g} to {test.interval.high:.3g}"
    return f"{title}: {arm} minus {control}: {test.difference:.3g}, 95 % interval {ends}, p = {test.p_value:.2g}."
