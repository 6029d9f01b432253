"""Block: as many members as fit into memory, from new models to what the user gets back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.purity import seeded
from mindgap.core.recipe import Recipe
from mindgap.core.remedy import Moment, Remedy
from mindgap.core.subject import Subject, typed
from mindgap.training.fitted import Fitted
from mindgap.training.progress import Progress
from mindgap.training.vectorized.choose import engine_for
from mindgap.training.vectorized.curves import Curves
from mindgap.training.vectorized.drive import Drive
from mindgap.training.vectorized.edits import edits_of
from mindgap.training.vectorized.members import Member, build_all
from mindgap.training.vectorized.rates import Rates, per_parameter
from mindgap.training.vectorized.rules import Rule, check_rule
from mindgap.training.vectorized.store import Store, unload
from mindgap.training.vectorized.support import Problem, Unsupported


@dataclasses.dataclass(frozen=True)
class Settings:
    """How often to evaluate (0 never), whether to keep curves, the most members at once, and whether to stop now."""

    evaluate_every: int
    keep_history: bool
    block: int | None
    interrupted: bool = False

    def __post_init__(self) -> None:
        if self.evaluate_every < 0:
            raise InputError(
                f"evaluate_every must be at least 0 (never), got {self.evaluate_every}. Pass 1 for always."
            )
        if self.block is not None and self.block < 1:
            raise InputError(f"block must be at least 1 member, got {self.block}. Leave it out to have it chosen.")


class Block:
    """Some members of a group, ready to be trained."""

    def __init__(self, members: Sequence[Member], recipes: Sequence[Recipe], settings: Settings) -> None:
        self.members, self.recipes = members, recipes
        recipe = recipes[0]
        self.models = build_all(recipes, [member.seed for member in members])
        self.initial = [
            {name: value.detach().clone() for name, value in model.state_dict().items()} for model in self.models
        ]
        train, test = recipe.splits()
        self.engine = engine_for(self._problem(recipe))
        store = self.engine.store
        rule = self._rule(store)
        rates = Rates(recipe, self._rates(), store)
        edits = edits_of([member.remedies for member in members], store)
        curves = Curves(self.engine, train, test, settings.evaluate_every, recipe.epochs)
        self.drive = Drive(self.engine, rule, rates, edits, curves, recipe.epochs, settings.keep_history)

    def _problem(self, recipe: Recipe) -> Problem:
        model, (train, test) = self.models[0], recipe.splits()
        if next(model.parameters(), None) is None:
            raise Unsupported("the model has no parameters")
        if next(model.parameters()).device.type != "cpu":
            raise Unsupported("the model is not on the processor")
        subject = Subject(model, recipe.loss, train, test, task=recipe.task)
        everything = train.take(torch.arange(len(train)))
        return Problem(
            models=self.models,
            seeds=tuple(member.seed for member in self.members),
            inputs=everything.inputs,
            targets=typed(everything.target, subject.task, next(model.parameters())),
            weights=_stacked_weights(self.recipes, len(train)),
            loss=subject.loss,
            task=subject.task,
            batch_size=recipe.batch_size,
        )

    def _rule(self, store: Store) -> Rule:
        recipe = self.recipes[0]
        optimizer = recipe.optimize([p for p in self.models[0].parameters() if p.requires_grad])
        kind, group = check_rule(optimizer), optimizer.param_groups[0]
        named = isinstance(recipe.optimizer, str)
        decays = [own.weight_decay if named else group["weight_decay"] for own in self.recipes]
        self._own_rate = None if named else float(group["lr"])
        return kind(store, per_parameter(decays, store), group)

    def _rates(self) -> list[float]:
        return [recipe.learning_rate if self._own_rate is None else self._own_rate for recipe in self.recipes]

    def train(self, bar: Progress) -> bool:
        """Run all epochs; false if Ctrl-C ended it."""
        with seeded(0):
            return self.drive.run(bar)

    def skip(self) -> None:
        """Run none."""
        self.drive.skip()

    def fitted(self) -> list[Fitted]:
        """The members as the plain loop would hand them over."""
        return [self._fitted(k, history) for k, history in enumerate(self.drive.histories())]

    def _fitted(self, k: int, history: tuple[dict[str, float], ...]) -> Fitted:
        unload(self.engine.views, k, self.models[k])
        end, member = self.drive.ends[k], self.members[k]
        return Fitted(
            model=_finished(self.models[k], member.remedies).eval(),
            history=history,
            initial=self.initial[k],
            recipe=self.recipes[k],
            seed=member.seed,
            epochs=end.epochs,
            stopped=end.stopped,
        )


def _finished(model: nn.Module, remedies: Sequence[Remedy]) -> nn.Module:
    for remedy in remedies:
        if type(remedy).finish is not Remedy.finish:
            moment = Moment(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
            model = remedy.finish(moment)
    return model


def _stacked_weights(recipes: Sequence[Recipe], samples: int) -> Tensor | None:
    rows = [recipe.sample_weights for recipe in recipes]
    first = rows[0]
    if first is None:
        return None
    if first.shape != (samples,):
        raise Unsupported("the sample weights do not fit the samples")
    return first if all(row is first for row in rows) else torch.stack([row for row in rows if row is not None])
