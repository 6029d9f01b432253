"""Checks of what a certificate is made of: shared samples, copies, state, outputs."""

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mindgap.core import InputError, Split, check_classes, checked_call, evaluating, instability
from mindgap.core.calls import check_weights
from mindgap.core.chart.numbers import SPACE, percent
from mindgap.ops.overlap import Overlap, copied, overlap
from mindgap.ops.pac_bayes.posterior import StochasticModel
from mindgap.ops.samples import sample_hashes

COPIES = "samples repeat more often than independent samples would, as copies do"
STANDARDIZED = (
    "the inputs have mean 0 and standard deviation 1 over the data that bound, as if these data had "
    "standardized them; scale by constants that do not come from them, such as (x - 0.5)/0.5, or "
    "pass transform=standardize, which is fitted on the prior's part"
)
ROUNDING = 1e-5  # of a mean or standard deviation in single precision
FEW = 8  # samples show the shape of the outputs
WEIGHTS = (
    "the sample weights may carry bound data into the prior; make Recipe.sample_weights a function "
    "of the training data"
)


def check_shared(parts: Mapping[str, Split], own_split: bool) -> list[str]:
    """Refuse parts of the data that share more than chance explains, and note what they share.

    Args:
        parts: The prior, bound and test data, in this order, as far as they are there.
        own_split: Whether certify divided prior and bound data itself, at random. Equal samples on
            both sides are then no leak: the split does not know them.
    """
    names, notes = list(parts), list[str]()
    for place, left in enumerate(names):
        for right in names[place + 1 :]:
            found = overlap(parts[right], parts[left])
            if not (own_split and right == "bound"):
                _refuse(found, left, right)
            notes += _notes(found, left, right)
    return notes


def _refuse(found: Overlap, left: str, right: str) -> None:
    if not (found.leaks_equal or found.leaks_near):
        return
    kind = "no sample" if found.leaks_equal else "no near copies of samples"
    count = int((found.equal if found.leaks_equal else found.near).sum())
    raise InputError(
        f"The {right} data must hold {kind} of the {left} data, got {count} of "
        f"{len(found.equal)} that do. A bound needs samples that its prior has not seen: pass "
        "other data."
    )


def _notes(found: Overlap, left: str, right: str) -> list[str]:
    notes = []
    if found.share:
        notes.append(
            f"{_share(found.share)} of the {right} samples equal {left} samples. Independent "
            "samples of discrete data may coincide; the bound holds if yours are independent."
        )
    if found.near_share:
        notes.append(
            f"{_share(found.near_share)} of the {right} samples are near copies of {left} samples. "
            "The bound holds if the samples are independent, and not if some were made from others."
        )
    return notes


def _share(value: float) -> str:
    return percent(value).replace(SPACE, " ")


def repetitions(split: Split) -> tuple[str, list[str]]:
    """Say why repeated samples break the theorem, if they do, and note how many there are.

    Args:
        split: Samples that should be independent.
    """
    hashes = sample_hashes(split)
    repeated = len(hashes) - len(hashes.unique())
    if copied(hashes):
        return COPIES, []
    told = (
        f"{repeated:,} bound samples repeat another one: valid if they were drawn independently "
        "all the same."
    )
    return "", [told] if repeated else []


def standardized(*splits: Split) -> str:
    """Say that inputs were standardized with the data that bound, if their moments show it.

    The moments are those of all features together, and of every feature that varies. Constants that
    were published for a data set are rounded and do not show. By chance the moments of n
    independent numbers come so near with a probability of the order of 1e-10 n.

    Args:
        splits: The data that bound, and all data from which they were taken.

    >>> from mindgap.core import as_split
    >>> both = torch.tensor([[1.0], [-1.0]])
    >>> standardized(as_split((both, torch.tensor([0, 1]))))[:32]
    'the inputs have mean 0 and stand'
    >>> standardized(as_split((both + 0.01, torch.tensor([0, 1]))))
    ''
    """
    return STANDARDIZED if any(_has_unit_moments(split) for split in splits) else ""


def _has_unit_moments(split: Split) -> bool:
    count, sums, squares = 0, torch.zeros(1), torch.zeros(1)
    for batch in split.batches(1024):
        given = list(batch.inputs.values() if isinstance(batch.inputs, dict) else batch.inputs)
        if len(given) != 1 or not given[0].is_floating_point():
            return False
        rows = given[0].flatten(1).double()
        count, sums, squares = count + len(rows), sums + rows.sum(0), squares + rows.square().sum(0)
    means, powers = sums / count, squares / count
    varied = powers - means.square() > ROUNDING
    every = bool(varied.any()) and _is_unit(means[varied], powers[varied], count)
    return every or _is_unit(means.mean()[None], powers.mean()[None], count * len(means))


def _is_unit(means: Tensor, powers: Tensor, count: int) -> bool:
    spreads = (powers - means.square()).clamp(min=0).sqrt()
    # Libraries divide by n or by n - 1.
    near = [
        bool(((spreads * factor - 1).abs() < ROUNDING).all())
        for factor in (1.0, (count / max(count - 1, 1)) ** 0.5)
    ]
    return bool((means.abs() < ROUNDING).all()) and any(near)


def leaking_weights(weights: Any) -> str:
    """Say that weights of all samples were known before the data were divided.

    Constant weights carry nothing, and a function sees the prior's part only.
    """
    varied = isinstance(weights, Tensor) and weights.numel() > 0
    return WEIGHTS if varied and not bool((weights == weights.flatten()[0]).all()) else ""


def check_state(model: nn.Module) -> None:
    """Refuse a trained model that may hold learned state which its state dict does not.

    Loading the initial weights does not reset such state, and so the prior would have seen the
    data. Tensors, arrays and fractions in attributes are taken for state. Integers, and what
    modules of torch and of this package hold, are taken for settings.
    """
    usual = vars(nn.Module()).keys()
    for name, module in model.named_modules():
        foreign = not type(module).__module__.startswith(("torch.", "mindgap."))
        own = {key: value for key, value in vars(module).items() if key not in usual}
        found = [key for key, value in own.items() if _is_state(value, foreign)]
        found += sorted(module._non_persistent_buffers_set)
        if found:
            raise InputError(
                "A model whose initial weights are the prior must keep all state in its state "
                f"dict, got {'.'.join(filter(None, (name, found[0])))!r} outside, which may come "
                "from training. Pass the recipe or what mindgap.fit returned, which build the "
                "network from scratch, or register a buffer."
            )


def _is_state(value: Any, fractions: bool) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return True
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set):
        return any(_is_state(item, fractions) for item in value)
    real = isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral)
    return fractions and real


def check_outputs(network: nn.Module, *splits: Split) -> None:
    """Refuse a network that cannot judge the data.

    Its weights are no numbers, it does not take the inputs, its outputs are not one column per
    class, or a label has no output.
    """
    check_weights(network)
    like = next(iter(network.parameters()), torch.empty(0))
    for split in splits:
        few = split.take(torch.arange(min(FEW, len(split))))
        with evaluating(network):
            outputs = checked_call(network, few.inputs, like)
        check_classes(outputs, split.targets, "train")


def broken(model: StochasticModel, split: Split) -> str:
    """Say what breaks the theorem; empty if nothing does.

    It is broken where an answer depends on more than the weights and the sample.
    """
    return instability(model.mean_outputs, split)
