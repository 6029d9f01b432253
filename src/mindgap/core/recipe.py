"""Recipe: how a model is trained, as plain data that can be trained with any seed."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from mindgap.core import spec
from mindgap.core.errors import InputError, unknown_name
from mindgap.core.loss import Loss, Task, as_loss
from mindgap.core.purity import seeded
from mindgap.core.spec import option
from mindgap.core.split import Split, as_split

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained: model factory, data, loss, optimizer, epochs and batch size.

    Args:
        model: Makes a new model; called without arguments under a seeded generator, so that a seed
            fixes the initial weights.
        train: The training data: a tuple of tensors or arrays, a dict, a Dataset, a DataLoader, or
            a list of samples that are tuples ``(input, target)`` or dicts.
        test: The test data, in any of the same forms. Training never uses them.
        loss: A name (see :func:`mindgap.core.loss.as_loss` for all), a torch loss, or any callable
            ``(output, target)``.
        task: ``"classification"``, ``"multilabel"`` or ``"regression"``; follows from loss and
            targets if None (see :class:`mindgap.core.subject.Subject`).
        target: The key of the targets, where batches are dicts; one of the usual keys if None.
        optimizer: ``"sgd"``, ``"adam"``, ``"adamw"``, ``"rmsprop"``, or a callable that takes the
            parameters and returns an optimizer.
        learning_rate: The step size, for an optimizer given by name.
        momentum: The momentum, for SGD and RMSprop given by name.
        weight_decay: The optimizer's weight decay, for one given by name.
        schedule: Takes the optimizer and returns a scheduler, which is stepped once per epoch.
        epochs: Passes over the training data.
        batch_size: Samples per step.
        validation: The share of the training data that is held out for choices, as early stopping
            makes them. Test data never serve for that.
        sample_weights: One factor per training sample for its loss, or a function that computes
            them from the training data. Validation samples are held out before it is called.
        classes: The names of the classes, in the order of their numbers.
        name: The title of reports.

    >>> recipe = Recipe(
    ...     model=lambda: nn.Linear(2, 1), train=(torch.eye(2), torch.ones(2, 1)), loss="mse"
    ... )
    >>> torch.equal(recipe.build(seed=3).weight, recipe.build(seed=3).weight)
    True
    >>> recipe.replace(optimizer="sgd", momentum=0.9).settings["momentum"]
    0.9
    """

    model: Callable[[], nn.Module]
    train: Any
    test: Any = None
    loss: str | Loss | Callable[..., Tensor] = "cross_entropy"
    task: Task | None = None
    target: str | None = None
    optimizer: str | Callable[[Any], torch.optim.Optimizer] = "adam"
    learning_rate: float = option(1e-3, help="step size of the optimizer", above=0)
    momentum: float = option(0.0, help="momentum, for SGD and RMSprop", low=0, below=1)
    weight_decay: float = option(0.0, help="the optimizer's weight decay", low=0)
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None
    epochs: int = option(20, help="passes over the training data", low=0)
    batch_size: int = option(64, help="samples per step", low=1)
    validation: float = option(
        0.0, help="share of the training data held out for choices", low=0, below=1
    )
    sample_weights: Tensor | Callable[[Split], Tensor] | None = None
    classes: tuple[str, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        spec.check(self)
        if not callable(self.model) or isinstance(self.model, nn.Module):
            raise InputError(
                "Recipe.model must be a function that makes a new model, got "
                f"{type(self.model).__name__}. "
                "Write lambda: Net(…), so that every seed starts from its own weights."
            )
        if isinstance(self.optimizer, str) and self.optimizer not in OPTIMIZERS:
            raise unknown_name("optimizer", self.optimizer, OPTIMIZERS)
        as_loss(self.loss)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def splits(self) -> tuple[Split, Split | None]:
        """Return the training data, and the test data if there are any."""
        test = None if self.test is None else as_split(self.test, self.target, "test data")
        return as_split(self.train, self.target, "training data"), test

    def weights(self, train: Split) -> Tensor | None:
        """Return the sample weights, computed from the training data if they are a function.

        Args:
            train: The samples to train on.

        >>> recipe = Recipe(
        ...     model=lambda: nn.Linear(2, 2),
        ...     train=(torch.eye(2), torch.tensor([0, 1])),
        ...     sample_weights=lambda split: 1.0 + split.targets,
        ... )
        >>> recipe.weights(recipe.splits()[0])
        tensor([1., 2.])
        """
        given = self.sample_weights
        return given(train) if callable(given) else given

    def build(self, seed: int) -> nn.Module:
        """Make a new model, whose weights depend on the seed alone."""
        with seeded(seed):
            return self.model()

    def optimize(self, parameters: Any) -> torch.optim.Optimizer:
        """Make the optimizer of these parameters."""
        if not isinstance(self.optimizer, str):
            return self.optimizer(parameters)
        settings: dict[str, Any] = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        if self.optimizer in ("sgd", "rmsprop"):
            settings["momentum"] = self.momentum
        return OPTIMIZERS[self.optimizer](parameters, **settings)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The numbers and names of the recipe, for provenance."""
        plain = (int, float, str, bool)
        return {
            f.name: v
            for f in dataclasses.fields(self)
            if isinstance(v := getattr(self, f.name), plain)
        }
