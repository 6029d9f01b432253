"""RecipeTrainer: trains a recipe, with validation samples from its training data."""

import hashlib
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Recipe, Subject, canonical, checked_call, evaluating, seeded
from mindgap.data.splits import stratified_split
from mindgap.training.ensemble import SequentialNotice, ensemble
from mindgap.training.race.arm import Arm
from mindgap.training.race.digests import digest, digest_of
from mindgap.training.race.fixes import cleaned, recompute, rescaled
from mindgap.training.race.trainer import Trainer

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
