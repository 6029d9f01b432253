"""A perceptron for the data of any recipe: where plants put a layer that the recipe's model lacks."""

from collections.abc import Callable

from torch import nn

from mindgap.core import Recipe
from mindgap.core.subject import Subject

WIDTH = 64


def with_layer(
    recipe: Recipe, layer: Callable[[int], nn.Module], *, width: int = WIDTH, after: bool = False
) -> Recipe:
    """Return the recipe with a perceptron that has one layer of one's choice.

    Args:
        recipe: With tuples of tensors as data.
        layer: Makes the layer from the number of hidden units.
        width: The number of hidden units.
        after: Whether the layer follows the activation instead of preceding it.

    >>> import torch
    >>> data = (torch.zeros(9, 2, 3), torch.tensor([0, 1, 2] * 3))
    >>> planted = with_layer(Recipe(model=nn.Identity, train=data, batch_size=4), nn.BatchNorm1d)
    >>> planted.model()[2].num_features, planted.batch_size
    (64, 5)
    """
    inputs, targets = recipe.train
    task = Subject(nn.Identity(), recipe.loss, recipe.train, task=recipe.task).task
    outputs = int(targets.max()) + 1 if task == "classification" else targets[0].numel()
    width_in = inputs[0].numel()

    def model() -> nn.Module:
        middle = [nn.ReLU(), layer(width)] if after else [layer(width), nn.ReLU()]
        return nn.Sequential(
            nn.Flatten(), nn.Linear(width_in, width), *middle, nn.Linear(width, outputs)
        )

    # Batch statistics need two samples, also in the last batch.
    sizes = range(recipe.batch_size, len(targets) + 2)
    size = next((size for size in sizes if len(targets) % size != 1), recipe.batch_size)
    return recipe.replace(model=model, batch_size=size)


def last_linear(model: nn.Module) -> nn.Linear:
    """Return the last linear layer of a model, in the order of its definition.

    >>> last_linear(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))).out_features
    1
    """
    return [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
