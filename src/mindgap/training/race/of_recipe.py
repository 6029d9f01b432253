"""RecipeTrainer: trains a recipe, with validation samples and outer folds from its own data."""

import dataclasses
import hashlib
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mindgap.core import (
    Batch,
    InputError,
    Recipe,
    Subject,
    canonical,
    checked_call,
    evaluating,
    seeded,
)
from mindgap.data.splits import stratified_folds, stratified_split
from mindgap.training.ensemble import SequentialNotice, ensemble
from mindgap.training.race.arm import Arm
from mindgap.training.race.fixes import cleaned, recompute, rescaled
from mindgap.training.race.trainer import Trainer, digest, digest_of

FOLDS = 5  # beyond it, seeds and no longer the validation samples limit what a search sees
_PROBE = 64  # samples on which an untrained model answers, to tell one model from another


class RecipeTrainer(Trainer):
    """Trains a recipe, many seeds at once where that is possible.

    Args:
        recipe: The recipe, with test data.
        holdout: Share of the training data to rank arms on, in every training of the search. As
            many folds of this size as fit, five at most, take turns.
        seed: Decides which samples these are.
    """

    def __init__(self, recipe: Recipe, holdout: float = 0.2, seed: int = 0) -> None:
        train, test = recipe.splits()
        if test is None:
            raise InputError(
                "improve must have test data to prove a gain on, got a recipe without. Pass "
                "Recipe(test=…)."
            )
        folds = _folds(train.targets, holdout, seed)
        self.recipe, self.train, self.held = recipe.replace(test=None), train, folds
        task = Subject(nn.Identity(), recipe.loss, train, task=recipe.task).task
        super().__init__([train.subset(held) for held in folds], test, recipe.loss, task)

    def rest(self, fold: int) -> Tensor:
        """Return the places of the training samples that are not in a fold."""
        whole = torch.ones(len(self.train), dtype=torch.bool)
        return whole.scatter(0, self.held[fold], False).nonzero()[:, 0]

    def prepared(self, arm: Arm, fold: int | None = None) -> Recipe:
        """Return the recipe that an arm trains.

        Args:
            arm: The arm.
            fold: The validation samples to leave out; None to train on all.
        """
        places = torch.arange(len(self.train)) if fold is None else self.rest(fold)
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
        """Train the seeds of an arm, those of one fold at once where possible."""
        if all_data:
            return self._models(arm, seeds, None)
        found: dict[int, nn.Module] = {}
        for fold in dict.fromkeys(self.fold(seed) for seed in seeds):
            own = [seed for seed in seeds if self.fold(seed) == fold]
            found |= dict(zip(own, self._models(arm, own, fold), strict=True))
        return [found[seed] for seed in seeds]

    def _models(self, arm: Arm, seeds: Sequence[int], fold: int | None) -> list[nn.Module]:
        recipe = self.prepared(arm, fold)
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
            *map(digest, model.state_dict().values()),
            digest((answers * 1e4).round()),
            digest_of(self.train),
            *map(digest, self.held),
            "" if weights is None else digest(weights),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _folds(targets: Tensor, holdout: float, seed: int) -> tuple[Tensor, ...]:
    """Draw disjoint validation samples, as many times as they fit.

    >>> [len(fold) for fold in _folds(torch.zeros(10), 0.3, 0)]
    [3, 3, 3]
    """
    total = len(targets)
    size = round(holdout * total)
    if size < 2 or total - size < 2:
        raise InputError(
            f"holdout must leave samples on both sides, got {holdout} of {total}. Pass more data or "
            "another share."
        )
    count = min(FOLDS, max(1, total // size))
    return tuple(fold.sort().values for fold in stratified_split(targets, (size,) * count, seed))


def _optimizer(recipe: Recipe) -> str:
    weight = nn.Parameter(torch.zeros(1))
    made = recipe.optimize([weight])
    groups = [{k: v for k, v in group.items() if k != "params"} for group in made.param_groups]
    schedule = None if recipe.schedule is None else recipe.schedule(made)
    return f"{type(made).__name__} {groups} {type(schedule).__name__}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    """One of several outer folds.

    Args:
        number: Which one, from zero.
        count: How many there are.
        seed: Decides which samples are in which fold.
    """

    number: int
    count: int
    seed: int

    def cut(self, recipe: Recipe) -> Recipe:
        """Return the recipe with this fold as test data and all other samples as training data.

        Args:
            recipe: Its training and test samples are pooled.

        >>> x, y = torch.arange(8.0)[:, None], torch.tensor([0, 1] * 4)
        >>> recipe = Recipe(model=torch.nn.Identity, train=(x[:6], y[:6]), test=(x[6:], y[6:]))
        >>> folds = [Outer(number=k, count=2, seed=0).cut(recipe).splits() for k in range(2)]
        >>> [(len(train), len(test)) for train, test in folds]
        [(4, 4), (4, 4)]
        """
        if isinstance(recipe.sample_weights, Tensor) and recipe.test is not None:
            raise InputError(
                "folds must go with a recipe whose samples all have a weight, got sample_weights for "
                "the training samples alone. Join training and test data, or leave one of them out."
            )
        whole = _pooled(recipe)
        train, test = stratified_folds(whole.target, self.count, self.seed)[self.number]
        weights = recipe.sample_weights
        return recipe.replace(
            train=_data(whole, train, recipe.target or "labels"),
            test=_data(whole, test, recipe.target or "labels"),
            sample_weights=weights[train] if isinstance(weights, Tensor) else weights,
        )


def _pooled(recipe: Recipe) -> Batch:
    """Read all samples, those of a test set last."""
    parts = [split.take(torch.arange(len(split))) for split in recipe.splits() if split is not None]
    inputs = [part.inputs for part in parts]
    target = torch.cat([part.target for part in parts])
    first = inputs[0]
    if isinstance(first, dict):
        joined = {
            name: torch.cat([part[name] for part in inputs if isinstance(part, dict)])
            for name in first
        }
        return Batch(joined, target, torch.arange(len(target)))
    columns = zip(*(part for part in inputs if not isinstance(part, dict)), strict=True)
    return Batch(tuple(map(torch.cat, columns)), target, torch.arange(len(target)))


def _data(whole: Batch, places: Tensor, key: str) -> tuple[Tensor, ...] | dict[str, Tensor]:
    target = whole.target[places]
    if isinstance(whole.inputs, dict):
        return {**{name: v[places] for name, v in whole.inputs.items()}, key: target}
    return (*(value[places] for value in whole.inputs), target)
