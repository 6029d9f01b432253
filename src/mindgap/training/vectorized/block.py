"""Block: as many members as fit into memory, from new models to what the user gets back."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mindgap.core import (
    InputError,
    Inputs,
    Progress,
    Recipe,
    Remedy,
    Subject,
    TrainingState,
    call,
    evaluating,
    seeded,
    typed,
)
from mindgap.training.fitted import Fitted, training_subject
from mindgap.training.vectorized.convolutional import Convolutional
from mindgap.training.vectorized.dense import Dense
from mindgap.training.vectorized.engine import Engine
from mindgap.training.vectorized.general import General
from mindgap.training.vectorized.gram import Gram
from mindgap.training.vectorized.hooks import EpochEnds, Hooks
from mindgap.training.vectorized.loop import Curves, Drive
from mindgap.training.vectorized.members import Member, build_all
from mindgap.training.vectorized.optimizers import Rates, Rule, check_rule
from mindgap.training.vectorized.parameters import Store, unload
from mindgap.training.vectorized.problem import Problem, Unsupported

ENGINES: tuple[type[Engine], ...] = (Gram, Dense, Convolutional, General)  # the fastest first
_BUDGET = 2**29  # bytes


@torch.no_grad()
def _engine_for(problem: Problem) -> Engine:
    """Find the fastest engine that takes the problem; if none does, raise the last reason."""
    reason = Unsupported("no engine")
    for engine in ENGINES:
        try:
            return engine(problem)
        except Unsupported as refusal:
            reason = refusal
    raise reason


def members_at_once(model: nn.Module, recipe: Recipe, budget: int = _BUDGET) -> int:
    """Count the members that fit into some bytes: weights, optimizer, batches and activations."""
    train, _ = recipe.splits()
    sample = train.take(torch.arange(1)).inputs
    batch = min(recipe.batch_size, len(train))
    tensors = sample.values() if isinstance(sample, dict) else sample
    weights = sum(parameter.numel() for parameter in model.parameters())
    numbers = (
        8 * weights
        + 3 * len(train)
        + batch * (sum(t.numel() for t in tensors) + 4 * _activations(model, sample))
    )
    return max(1, budget // (4 * numbers))


def _activations(model: nn.Module, inputs: Inputs) -> int:
    """Numbers that the layers give for one sample."""
    sizes: list[int] = []

    def count(_: nn.Module, __: object, output: object) -> None:
        sizes.append(output.numel() if isinstance(output, torch.Tensor) else 0)

    leaves = [module for module in model.modules() if not any(True for _ in module.children())]
    handles = [leaf.register_forward_hook(count) for leaf in leaves]
    try:
        with evaluating(model):
            call(model, inputs, next(model.parameters()))
    except Exception:  # a model that does not take the data is refused later, with a reason
        return 0
    finally:
        for handle in handles:
            handle.remove()
    return sum(sizes)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How an ensemble is trained.

    Args:
        evaluate_every: Epochs between two evaluations; 0 is never.
        keep_history: Whether to keep curves.
        block: The most members at once; chosen by their size if None.
        interrupted: Whether Ctrl-C came before, so that no member is to be trained.
    """

    evaluate_every: int
    keep_history: bool
    block: int | None
    interrupted: bool = False

    def __post_init__(self) -> None:
        if self.evaluate_every < 0:
            raise InputError(
                f"evaluate_every must be at least 0 (never), got {self.evaluate_every}. Pass 1 "
                "for always."
            )
        if self.block is not None and self.block < 1:
            raise InputError(
                f"block must be at least 1 member, got {self.block}. Leave it out to have it "
                "chosen."
            )


class Block:
    """Some members of a group, ready to be trained."""

    def __init__(
        self, members: Sequence[Member], recipes: Sequence[Recipe], settings: Settings
    ) -> None:
        self.members, self.recipes = members, recipes
        recipe = recipes[0]
        self.models = build_all(recipes, [member.seed for member in members])
        self.initial = [
            {name: value.detach().clone() for name, value in model.state_dict().items()}
            for model in self.models
        ]
        train, test = recipe.splits()
        self.engine = _engine_for(self._problem(recipe))
        store = self.engine.store
        rule = self._rule(store)
        rates = Rates(recipe, self._rates(), store, self.engine.problem.hooks)
        remedies = [member.remedies for member in members]
        edits = _edits(remedies, store)
        self.closings = EpochEnds(remedies, store, recipe.epochs)
        curves = Curves(self.engine, train, test, settings.evaluate_every, recipe.epochs)
        self.drive = Drive(
            self.engine,
            rule,
            rates,
            edits,
            self.closings,
            curves,
            recipe.epochs,
            settings.keep_history,
        )

    def _problem(self, recipe: Recipe) -> Problem:
        model, (train, test) = self.models[0], recipe.splits()
        if next(model.parameters(), None) is None:
            raise Unsupported("the model has no parameters")
        if next(model.parameters()).device.type != "cpu":
            raise Unsupported("the model is not on the CPU")
        subject = self.subject = Subject(model, recipe.loss, train, test, task=recipe.task)
        everything = train.take(torch.arange(len(train)))
        seeds = tuple(member.seed for member in self.members)
        remedies = [member.remedies for member in self.members]
        for remedy in remedies[0]:
            remedy.check(subject.task, everything.inputs)
        return Problem(
            models=self.models,
            seeds=seeds,
            inputs=everything.inputs,
            targets=typed(everything.target, subject.task, next(model.parameters())),
            weights=_stacked_weights(self.recipes, len(train)),
            loss=subject.loss,
            task=subject.task,
            batch_size=recipe.batch_size,
            hooks=Hooks(remedies, seeds, self.models, subject.loss, recipe.epochs),
        )

    def _rule(self, store: Store) -> Rule:
        recipe = self.recipes[0]
        optimizer = recipe.optimize([p for p in self.models[0].parameters() if p.requires_grad])
        kind, group = check_rule(optimizer), optimizer.param_groups[0]
        named = isinstance(recipe.optimizer, str)
        decays = [own.weight_decay if named else group["weight_decay"] for own in self.recipes]
        self._own_rate = None if named else float(group["lr"])
        return kind(store, store.spread(decays), group)

    def _rates(self) -> list[float]:
        return [
            recipe.learning_rate if self._own_rate is None else self._own_rate
            for recipe in self.recipes
        ]

    def train(self, bar: Progress) -> bool:
        """Run all epochs; return false if Ctrl-C ended them."""
        with seeded(0):
            return self.drive.run(bar)

    def skip(self) -> None:
        """Leave all members as they began."""
        self.drive.skip()

    def fitted(self) -> list[Fitted]:
        """Return the members as the plain loop would return them."""
        return [self._fitted(k, history) for k, history in enumerate(self.drive.histories())]

    def _finished(self, k: int) -> nn.Module:
        model, member, epochs = self.models[k], self.members[k], self.drive.ends[k].epochs
        for place, remedy in enumerate(member.remedies):
            if "finish" not in remedy.hooks():
                continue
            state = TrainingState(
                model=model,
                optimizer=self.recipes[k].optimize(model.parameters()),
                epoch=epochs,
                step=epochs * len(self.engine.bounds),
                epochs=self.recipes[k].epochs,
                seed=member.seed,
                memory=self.closings.memory(place, k),
                subject=functools.partial(training_subject, self.subject),
            )
            model = remedy.finish(state)
        return model

    def _fitted(self, k: int, history: tuple[dict[str, float], ...]) -> Fitted:
        unload(self.engine.store.views, k, self.models[k])
        end, member = self.drive.ends[k], self.members[k]
        return Fitted(
            model=self._finished(k).eval(),
            history=history,
            initial=self.initial[k],
            recipe=self.recipes[k],
            seed=member.seed,
            epochs=end.epochs,
            stopped=end.stopped,
            remedies=tuple(remedy.name for remedy in member.remedies),
        )


def _edits(remedies: Sequence[tuple[Remedy, ...]], store: Store) -> list[Callable[[], None]]:
    """What the remedies do to all members between the gradient and the step, in their order."""
    columns = zip(*remedies, strict=True)
    found = [type(column[0]).vectorized(column, store) for column in columns]
    return [edit for edit in found if edit is not None]


def _stacked_weights(recipes: Sequence[Recipe], samples: int) -> Tensor | None:
    rows = [recipe.sample_weights for recipe in recipes]
    first = rows[0]
    if first is None:
        return None
    if not isinstance(first, Tensor):
        raise Unsupported("the sample weights are a function of the training data")
    if first.shape != (samples,):
        raise Unsupported("the sample weights do not fit the samples")
    return (
        first
        if all(row is first for row in rows)
        else torch.stack([row for row in rows if isinstance(row, Tensor)])
    )
