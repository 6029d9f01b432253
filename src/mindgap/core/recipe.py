"""Recipe: how a subject is trained, as plain data that can be trained again with another seed."""

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
    """Model factory, data, loss, optimizer, epochs and batch size.

    ``model`` is called without arguments under a seeded generator, so that a seed fixes the initial
    weights. ``optimizer`` is a name or a callable ``parameters -> Optimizer``; ``schedule`` a
    callable ``optimizer -> LRScheduler`` that is stepped once an epoch. ``validation`` is a share
    of the training data that is held out for choices (early stopping), never the test data.
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
    batch_size: int = option(64, help="samples a step", low=1)
    validation: float = option(
        0.0, help="share of the training data held out for choices", low=0, below=1
    )
    sample_weights: Tensor | None = None
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
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def splits(self) -> tuple[Split, Split | None]:
        """The train and the test data."""
        test = None if self.test is None else as_split(self.test, self.target, "test data")
        return as_split(self.train, self.target, "training data"), test

    def build(self, seed: int) -> nn.Module:
        """A new model whose weights depend on the seed alone."""
        with seeded(seed):
            return self.model()

    def optimize(self, parameters: Any) -> torch.optim.Optimizer:
        """The optimizer over these parameters."""
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
