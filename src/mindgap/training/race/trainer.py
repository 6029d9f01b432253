"""Trainers: what trains an arm, and how its models answer on validation and test samples."""

import abc
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mindgap.core import (
    Batch,
    Loss,
    NotFiniteError,
    Split,
    Subject,
    Task,
    align,
    as_loss,
    as_split,
    checked_call,
    evaluating,
    typed,
)
from mindgap.training.race.arm import Arm
from mindgap.training.race.scores import Scores

_BATCH = 512


class Trainer(abc.ABC):
    """Trains arms; knows validation data, and of the test data the inputs alone.

    Args:
        validation: Samples to rank arms on, in folds. A training sees one fold, which its seed
            decides, so that all arms see the same samples with the same seed.
        test: Test samples. Their targets are read by :meth:`errors` alone.
        loss: The loss.
        task: The task.
    """

    def __init__(self, validation: Sequence[Split], test: Split, loss: Any, task: Task) -> None:
        self.validation, self.test = tuple(validation), test
        self._loss, self.task = loss, task

    @property
    def loss(self) -> Loss:
        """The loss; made when it is needed, so that a trainer can travel to other processes."""
        return as_loss(self._loss)

    def fold(self, seed: int) -> int:
        """Return the fold of the validation samples that a seed sees."""
        return seed % len(self.validation)

    @abc.abstractmethod
    def models(self, arm: Arm, seeds: Sequence[int], *, all_data: bool) -> list[nn.Module]:
        """Train one model per seed.

        Args:
            arm: How to train.
            seeds: The seeds.
            all_data: Whether to train on the validation samples too, as a confirmation does.
        """

    @abc.abstractmethod
    def identity(self) -> str:
        """Describe all on which a training depends, test data aside."""

    def together(self, arm: Arm) -> bool:
        """Whether many seeds of an arm are cheaper in one call."""
        return not any(remedy.sequential_hook() for remedy in arm.remedies)

    def scores(self, arm: Arm, seeds: Sequence[int]) -> list[Scores]:
        """Train on all but the validation samples of the seed's fold, and look at those."""
        models = self.models(arm, seeds, all_data=False)
        folds = [self.fold(seed) for seed in seeds]
        return [self._scores(model, fold) for model, fold in zip(models, folds, strict=True)]

    def _scores(self, model: nn.Module, fold: int) -> Scores:
        split = self.validation[fold]
        found = _scores_of(self.outputs(model, split), split.targets, self.loss, self.task)
        return found._replace(fold=fold)

    def answers(self, arm: Arm, seeds: Sequence[int]) -> list[NDArray[np.float32]]:
        """Train on all training data, and answer the test inputs; nobody looks at the targets."""
        models = self.models(arm, seeds, all_data=True)
        return [self.outputs(model, self.test).float().numpy() for model in models]

    def errors(self, answers: NDArray[np.float32]) -> NDArray[np.float64]:
        """Open the test targets, and say how wrong the answers of a model are, sample by sample."""
        return _scores_of(
            torch.from_numpy(answers.copy()), self.test.targets, self.loss, self.task
        ).errors

    def outputs(self, model: nn.Module, split: Split) -> Tensor:
        """Return what a model answers, in evaluation mode."""
        like = next((p for p in model.parameters()), torch.empty(0))
        with evaluating(model), torch.no_grad():
            parts = [checked_call(model, b.inputs, like) for b in split.batches(_BATCH)]
        found = torch.cat(parts).cpu()
        if not torch.isfinite(found).all():
            raise NotFiniteError(
                "The outputs of a trained model must be finite, got NaN or infinite ones."
            )
        return found


def _scores_of(outputs: Tensor, targets: Tensor, loss: Any, task: Task) -> Scores:
    """Compare outputs with targets, sample by sample.

    >>> found = _scores_of(torch.eye(2), torch.tensor([0, 0]), as_loss("nll"), "classification")
    >>> found.errors.tolist(), found.losses.tolist()
    ([0.0, 1.0], [-1.0, -0.0])
    """
    known = typed(targets, task, outputs)
    losses = loss(outputs, known).detach().double()
    if task == "regression":
        return Scores(losses.numpy(), losses.numpy())
    said = outputs.argmax(1) if task == "classification" else (outputs > 0).to(outputs.dtype)
    wrong = (said != align(outputs, known)).double()
    return Scores((wrong.flatten(1).mean(1) if wrong.ndim > 1 else wrong).numpy(), losses.numpy())


class FunctionTrainer(Trainer):
    """Trains by a function of the user's own.

    Args:
        train: Takes a seed and a list of remedies, and returns a trained model. Settings of the
            retuned baseline come as further keywords.
        validation: Samples that it does not train on, to rank arms on.
        test: Test samples.
        loss: The loss.
        task: The task; follows from the loss and the targets if None.
        name: Tells this function and its data from others in a store.
    """

    def __init__(
        self,
        train: Callable[..., Any],
        validation: Any,
        test: Any,
        loss: Any,
        task: Task | None = None,
        name: str = "",
    ) -> None:
        held = as_split(validation, None, "validation data")
        found = task or Subject(nn.Identity(), loss, held).task
        super().__init__([held], as_split(test, None, "test data"), loss, found)
        self.train, self.name = train, name

    def models(self, arm: Arm, seeds: Sequence[int], *, all_data: bool) -> list[nn.Module]:  # noqa: ARG002
        """Call the function once per seed; it decides on which data it trains."""
        return [self._model(arm, seed) for seed in seeds]

    def _model(self, arm: Arm, seed: int) -> nn.Module:
        from mindgap.core.estimator import as_module

        return as_module(self.train(seed, list(arm.remedies), **arm.settings)).eval()

    def together(self, arm: Arm) -> bool:  # noqa: ARG002
        """One training is one call."""
        return False

    def identity(self) -> str:
        """Hash the name, the function's code and the validation data."""
        function: Any = self.train
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(function, "__code__", None)
        parts = [
            self.name,
            getattr(function, "__qualname__", type(function).__name__),
            "" if code is None else code.co_code.hex() + repr(_constants(code.co_consts)),
            *map(digest_of, self.validation),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _constants(values: tuple[Any, ...]) -> list[Any]:
    return [value for value in values if isinstance(value, int | float | str | bool | None)]


def digest_of(split: Split, *, targets: bool = True) -> str:
    """Hash the samples of a split.

    Args:
        split: The samples.
        targets: Whether their targets count.
    """
    found = hashlib.sha256()
    for batch in split.batches(1024):
        for value in _values(batch):
            found.update(digest(value).encode())
        if targets:
            found.update(digest(batch.target).encode())
    return found.hexdigest()[:16]


def _values(batch: Batch) -> list[Tensor]:
    inputs = batch.inputs
    return [inputs[k] for k in sorted(inputs)] if isinstance(inputs, dict) else list(inputs)


def digest(value: Tensor) -> str:
    """Hash a tensor: its type, shape and bits."""
    bits = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    head = f"{value.dtype} {tuple(value.shape)} ".encode()
    return hashlib.sha256(head + bits).hexdigest()[:16]
