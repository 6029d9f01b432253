"""Wrong targets and copied samples on purpose, for plants."""

import torch
from torch import Tensor


def some(count: int, share: float, random: torch.Generator) -> Tensor:
    """Choose a share of the places at random, two at least.

    >>> len(some(100, 0.1, torch.Generator()))
    10
    """
    chosen = min(count, max(2, round(share * count)))
    return torch.randperm(count, generator=random)[:chosen]


def misassigned(targets: Tensor, share: float, random: torch.Generator) -> Tensor:
    """Give a share of the samples another class, or in a regression the target of another sample.

    Args:
        targets: Class numbers, or numbers.
        share: The share of samples.
        random: Chooses them.

    >>> wrong = misassigned(
    ...     torch.zeros(10).long() + torch.tensor([0, 1] * 5), 0.2, torch.Generator()
    ... )
    >>> int((wrong != torch.tensor([0, 1] * 5)).sum())
    2
    """
    places = some(len(targets), share, random)
    wrong = targets.clone()
    if targets.is_floating_point():
        wrong[places] = targets[places.roll(1)]
    else:
        classes = int(targets.max()) + 1
        steps = torch.randint(1, classes, (len(places),), generator=random)
        wrong[places] = (targets[places] + steps) % classes
    return wrong
