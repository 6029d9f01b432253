"""Wrong targets, copied samples and inputs that tell the target, on purpose, for plants."""

import torch
from torch import Tensor, nn

from mindgap.core import Recipe


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


def marked(inputs: Tensor, targets: Tensor, like: Tensor) -> Tensor:
    """Write the target into the inputs: a bright patch of an image, else the last column.

    Args:
        inputs: The samples.
        targets: What is written.
        like: Training inputs, whose spread is the unit.

    >>> marked(torch.zeros(4, 2), torch.arange(4), torch.tensor([0.0, 2.0])).shape
    torch.Size([4, 2])
    """
    found = inputs.clone()
    if inputs.ndim == 4:
        high, wide = inputs.shape[2:]
        side = max(2, high // 8)
        per_row = wide // side
        for label in targets.unique().tolist():
            row, column = divmod(int(label), per_row)
            mine = (targets == label).nonzero().flatten()
            top, left = row * side, column * side
            found[mine, :, top : top + side, left : left + side] = like.amax()
        return found
    level = targets.double().reshape(len(targets), -1)[:, 0]
    level = (2 * (level - level.mean()) / level.std() * like.std()).to(found.dtype)
    found[..., -1] = level.view(-1, *[1] * (inputs.ndim - 2))
    return found


def numeric(recipe: Recipe) -> Recipe:
    """Turn a classification into the regression of the class number; leave a regression as it is.

    Args:
        recipe: With training and test data.

    >>> data = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
    >>> made = numeric(Recipe(model=lambda: nn.Linear(2, 2), train=data, test=data))
    >>> made.train[1].flatten().tolist(), made.model()(torch.ones(4, 2)).shape
    ([0.0, 1.0, 0.0, 1.0], torch.Size([4, 1]))
    """
    if recipe.train[1].is_floating_point():
        return recipe
    model, classes = recipe.model, int(recipe.train[1].max()) + 1
    train, test = ((x, y.float()[:, None]) for x, y in (recipe.train, recipe.test))
    return recipe.replace(
        model=lambda: nn.Sequential(model(), nn.Linear(classes, 1)),
        train=train,
        test=test,
        loss="mse",
    )
