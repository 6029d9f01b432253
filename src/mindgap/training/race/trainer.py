"""Trainers: what trains an arm, and how its models answer on validation and test samples."""

import functools
import hashlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mindgap.core import (
    Batch,
    InputError,
    Loss,
    NotFiniteError,
    Recipe,
    Split,
    Subject,
    Task,
    align,
    as_loss,
    as_split,
    canonical,
    checked_call,
    evaluating,
    seeded,
    typed,
)
from mindgap.data.splits import stratified_split
from mindgap.training.ensemble import SequentialNotice, ensemble
from mindgap.training.race.arm import Arm
from mindgap.training.race.fixes import cleaned, recompute, rescaled
from mindgap.training.race.search import Scores

_BATCH = 512
_PROBE = 64  # samples on which an untrained model answers, to tell one model from another


class Trainer:
    """Trains arms; knows validation data, and of the test data the inputs alone.

    Args:
        validation: Samples to rank arms on.
        test: Test samples. Their targets are read by :meth:`errors` alone.
        loss: The loss.
        task: The task.
    """

    def __init__(self, validation: Split, test: Split, loss: Any, task: Task) -> None:
        self.validation, self.test = validation, test
        self._loss, self.task = loss, task

    @property
    def loss(self) -> Loss:
        """The loss; made when it is needed, so that a trainer can travel to other processes."""
        return as_loss(self._loss)

    def models(self, arm: Arm, seeds: Sequence[int], *, all_data: bool) -> list[nn.Module]:
        """Train one model per seed.

        Args:
            arm: How to train.
            seeds: The seeds.
            all_data: Whether to train on the validation samples too, as a confirmation does.
        """
        raise NotImplementedError

    def identity(self) -> str:
        """Describe all on which a training depends, test data aside."""
        raise NotImplementedError

    def together(self, arm: Arm) -> bool:
        """Whether many seeds of an arm are cheaper in one call."""
        return not any(remedy.sequential_hook() for remedy in arm.remedies)

    def scores(self, arm: Arm, seeds: Sequence[int]) -> list[Scores]:
        """Train on all but the validation samples, and look at those."""
        models = self.models(arm, seeds, all_data=False)
        return [self._scores(self.outputs(model, self.validation)) for model in models]

    def _scores(self, outputs: Tensor) -> Scores:
        return _scores_of(outputs, self.validation.targets, self.loss, self.task)

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


class RecipeTrainer(Trainer):
    """Trains a recipe, many seeds at once where that is possible.

    Args:
        recipe: The recipe, with test data.
        holdout: Share of the training data to rank arms on.
        seed: Decides which samples these are.
    """

    def __init__(self, recipe: Recipe, holdout: float = 0.2, seed: int = 0) -> None:
        train, test = recipe.splits()
        if test is None:
            raise InputError(
                "improve must have test data to prove a gain on, got a recipe without. Pass "
                "Recipe(test=…)."
            )
        (held,) = stratified_split(train.targets, (round(holdout * len(train)),), seed)
        if len(held) < 2 or len(train) - len(held) < 2:
            raise InputError(
                f"holdout must leave samples on both sides, got {holdout} of {len(train)}. Pass "
                "more data or another share."
            )
        self.recipe, self.train = recipe.replace(test=None), train
        self.held = held.sort().values
        self.rest = torch.ones(len(train), dtype=torch.bool).scatter(0, held, False).nonzero()[:, 0]
        task = Subject(nn.Identity(), recipe.loss, train, task=recipe.task).task
        super().__init__(train.subset(self.held), test, recipe.loss, task)

    def prepared(self, arm: Arm, *, all_data: bool) -> Recipe:
        """Return the recipe that an arm trains.

        Args:
            arm: The arm.
            all_data: Whether the validation samples are trained on.
        """
        places = torch.arange(len(self.train)) if all_data else self.rest
        if "share" in arm.fix:  # less data, for a curve over the number of samples
            kept = round(arm.fix["share"] * len(places))
            targets = self.train.targets[places]
            places = places[stratified_split(targets, (kept,), 0)[0].sort().values]
        split, places = cleaned(self.train, places, arm.fix)
        weights = self.recipe.sample_weights
        weights = weights[places] if isinstance(weights, Tensor) else weights
        recipe = arm.applied(self.recipe).replace(train=split, sample_weights=weights)
        return rescaled(recipe) if arm.fix.get("rescale") else recipe

    def models(self, arm: Arm, seeds: Sequence[int], *, all_data: bool) -> list[nn.Module]:
        """Train the seeds of an arm, all at once where possible."""
        recipe = self.prepared(arm, all_data=all_data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SequentialNotice)
            fitted = ensemble(recipe, list(seeds), remedies=list(arm.remedies), keep_history=False)
        if any(member.stopped.startswith("interrupted") for member in fitted):
            raise KeyboardInterrupt
        train = recipe.splits()[0]
        models = [member.model for member in fitted]
        return [recompute(m, train) for m in models] if arm.fix.get("recompute") else models

    def identity(self) -> str:
        """Hash the settings, the data, the untrained model and what it answers."""
        with seeded(0):
            model = self.recipe.build(0)
        batch = self.train.take(torch.arange(min(_PROBE, len(self.train))))
        like = next((p for p in model.parameters()), torch.empty(0))
        with evaluating(model), torch.no_grad(), seeded(0):
            answers = checked_call(model, batch.inputs, like).cpu()
        weights = self.recipe.weights(self.train)
        parts = [
            canonical(dict(self.recipe.settings)),
            self.loss.name,
            _optimizer(self.recipe),
            str(model),
            *map(_digest, model.state_dict().values()),
            _digest((answers * 1e4).round()),
            digest_of(self.train),
            _digest(self.held),
            "" if weights is None else _digest(weights),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


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
        super().__init__(held, as_split(test, None, "test data"), loss, found)
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
            digest_of(self.validation),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def digest_of(split: Split, *, targets: bool = True) -> str:
    """Hash the samples of a split.

    Args:
        split: The samples.
        targets: Whether their targets count.
    """
    found = hashlib.sha256()
    for batch in split.batches(1024):
        for value in _values(batch):
            found.update(_digest(value).encode())
        if targets:
            found.update(_digest(batch.target).encode())
    return found.hexdigest()[:16]


def _values(batch: Batch) -> list[Tensor]:
    inputs = batch.inputs
    return [inputs[k] for k in sorted(inputs)] if isinstance(inputs, dict) else list(inputs)


def _digest(value: Tensor) -> str:
    bits = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    head = f"{value.dtype} {tuple(value.shape)} ".encode()
    return hashlib.sha256(head + bits).hexdigest()[:16]


def _optimizer(recipe: Recipe) -> str:
    weight = nn.Parameter(torch.zeros(1))
    made = recipe.optimize([weight])
    groups = [{k: v for k, v in group.items() if k != "params"} for group in made.param_groups]
    schedule = None if recipe.schedule is None else recipe.schedule(made)
    return f"{type(made).__name__} {groups} {type(schedule).__name__}"


def _constants(values: tuple[Any, ...]) -> list[Any]:
    return [value for value in values if isinstance(value, int | float | str | bool | None)]
