"""What a remedy needs in another training loop: data, a validation loss, weights, places."""

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from mindgap.core import InputError, Recipe, Remedy, Subject

PLACE = "place_in_training_data"  # the name of the place, where a sample is a dict
Joined = Callable[[nn.Module], Subject]


def check_remedy(
    remedy: Remedy, validate: Callable[[], float] | None, subject: Joined | None
) -> None:
    """Refuse a remedy for which an argument of the optimizer is missing.

    Args:
        remedy: A remedy that is on.
        validate: Gives the loss on held-out training data, or None.
        subject: Joins a model to its training data and loss, or None.

    >>> from mindgap.remedies import EarlyStopping
    >>> try:
    ...     check_remedy(EarlyStopping(), validate=None, subject=None)
    ... except InputError as error:
    ...     print(str(error).split(". ")[1])
    Pass a function that returns it.
    """
    if remedy.validation and validate is None:
        raise InputError(
            f"The remedy {remedy.name!r} must see the loss on held-out training data, got "
            "validate=None. Pass a function that returns it."
        )
    if subject is None and ("training data" in remedy.needs or "prepare" in remedy.hooks()):
        raise InputError(
            f"The remedy {remedy.name!r} must see the training data, got subject=None. Pass "
            'subject=lambda model: Subject(model, "cross_entropy", train), or train with '
            "mindgap.fit."
        )


def prepared_weights(
    remedy: Remedy,
    weights: Tensor | None,
    model: nn.Module | None,
    subject: Joined | None,
    epochs: int,
) -> Tensor | None:
    """Let a remedy prepare a model in place and return the sample weights that it asks for.

    Args:
        remedy: A remedy that writes ``prepare``.
        weights: The sample weights of the remedies before it.
        model: The model that is trained.
        subject: Joins it to its training data and loss.
        epochs: How many epochs are planned.

    >>> import torch
    >>> from mindgap.core import Subject
    >>> from mindgap.remedies import ClassBalance
    >>> data = torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])
    >>> prepared_weights(
    ...     ClassBalance(),
    ...     None,
    ...     nn.Linear(2, 2),
    ...     lambda model: Subject(model, "cross_entropy", data),
    ...     1,
    ... ).argmax()
    tensor(3)
    """
    if model is None or subject is None:
        raise InputError(
            f"The remedy {remedy.name!r} must see the model before training, got none. Pass "
            "model= to RemedyOptimizer, or train with mindgap.fit."
        )
    joined = subject(model)
    recipe = Recipe(
        model=lambda: model,
        train=joined.train,
        loss=joined.loss,
        epochs=epochs,
        sample_weights=weights,
    )
    prepared = remedy.prepare(recipe, joined.train)
    kept = {field.name for field in dataclasses.fields(recipe)} - {"model", "sample_weights"}
    changed = [name for name in kept if getattr(prepared, name) is not getattr(recipe, name)]
    if changed or prepared.model() is not model:
        raise InputError(
            f"A remedy of an optimizer must change the model in place or weight samples, got "
            f"{remedy.name!r}, which changes {min(changed, default='the model')}. Train with "
            "mindgap.fit."
        )
    return prepared.weights(joined.train)


class Placed(Dataset[Any]):
    """Adds its place to every sample of a data set.

    Args:
        whole: A map-style data set. Its samples are dicts or tuples. In a subset, places are those
            of the data that it is taken from.

    >>> Placed([(1.0, 0), (2.0, 1)])[1]
    (2.0, 1, 1)
    >>> Placed([{"x": 1.0}])[0]
    {'x': 1.0, 'place_in_training_data': 0}
    """

    def __init__(self, whole: Any) -> None:
        self.whole = whole

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, number: int) -> Any:
        sample, place = self.whole[number], int(number)
        part = self.whole
        while isinstance(part, Subset):
            place, part = int(part.indices[place]), part.dataset
        return {**sample, PLACE: place} if hasattr(sample, "keys") else (*sample, place)
