"""What a certificate is made of: the prior's network, and bound data it has not seen."""

import copy
import dataclasses
import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Batch, InputError, Inputs, Recipe, Split, Subject, as_split, choice
from mindgap.ops.samples import sample_hashes
from mindgap.training.certify.checks import (
    check_outputs,
    check_shared,
    check_state,
    leaking_weights,
    repetitions,
    standardized,
)
from mindgap.training.certify.transform import Transform, TransformedSplit
from mindgap.training.fit import fit
from mindgap.training.fitted import Fitted

PRIORS = ("learned", "initial")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Material:
    """The prior's network with its data.

    Args:
        name: What is certified.
        prior: ``"learned"`` or ``"initial"``.
        network: Holds the prior's mean weights.
        train: Trains the posterior.
        bound: Judges the posterior; the prior must not have seen it.
        learned_on: Made the prior; None for initial weights.
        test: The test data, if there are any.
        digests: A hash of each part of the data.
        start: The weights where the posterior begins, if not at the prior.
        notes: Sentences for the certificate.
        broken: What breaks the theorem; empty if nothing is known to.
    """

    name: str
    prior: str
    network: nn.Module
    train: Split
    bound: Split
    learned_on: Split | None
    test: Split | None
    digests: dict[str, str]
    start: dict[str, Tensor] | None = None
    notes: tuple[str, ...] = ()
    broken: str = ""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of samples of every part."""
        parts = {"prior": self.learned_on, "bound": self.bound, "test": self.test}
        return {name: len(split) for name, split in parts.items() if split is not None}


def of_recipe(
    recipe: Recipe, prior: str, share: float, seed: int, transform: Transform | None = None
) -> Material:
    """Train the prior on a random share of the training data, or take the initial weights.

    The share is drawn without regard to classes. After a stratified split the bound data would
    not be independent of the prior. Whatever is fitted, the transform and the sample weights too,
    sees the prior's share only.
    """
    whole, test = recipe.splits()
    if prior == "initial":
        if transform is not None:
            raise InputError(
                "transform must go with a learned prior, on whose part of the data it is fitted, "
                "got prior='initial'. Leave it away, or use constants that do not come from the "
                "data."
            )
        _check_recipe(recipe, whole, test, seed)
        return _material(recipe, prior, recipe.build(seed), (None, whole, test), whole)
    mine, rest = parted(len(whole), share, seed)
    if transform is not None:
        function = transform(whole.subset(mine))
        whole = TransformedSplit(whole, function)
        test = None if test is None else TransformedSplit(test, function)
    _check_recipe(recipe, whole, test, seed)
    own, other = whole.subset(mine), whole.subset(rest)
    weights = recipe.sample_weights
    if isinstance(weights, Tensor) and len(weights) == len(whole):
        weights = weights[mine]
    learned = recipe.replace(train=own, test=None, sample_weights=weights)
    fitted = fit(learned, seed=seed, evaluate_every=0)
    made = _material(recipe, prior, fitted.model, (own, other, test), whole)
    stopped = (f"Training of the prior stopped: {fitted.stopped}.",) if fitted.stopped else ()
    return dataclasses.replace(
        made,
        notes=(*stopped, *made.notes),
        broken=leaking_weights(recipe.sample_weights) or made.broken,
    )


def _check_recipe(recipe: Recipe, train: Split, test: Split | None, seed: int) -> None:
    # On a network of its own: one that keeps state in forward must not have seen these samples.
    network = recipe.build(seed)
    _check_task(Subject(network, recipe.loss, train, test, task=recipe.task))
    check_outputs(network, train)


def _material(
    recipe: Recipe,
    prior: str,
    network: nn.Module,
    parts: tuple[Split | None, Split, Split | None],
    whole: Split,
) -> Material:
    learned_on, bound, test = parts
    digests, notes = _checked(learned_on, bound, test, own_split=True)
    broken, told = repetitions(whole)
    broken = broken or standardized(bound, whole)
    return Material(
        name=recipe.name,
        prior=prior,
        network=network,
        train=whole,
        bound=bound,
        learned_on=learned_on,
        test=test,
        digests=digests,
        notes=(*notes, *told, *_buffers(network, prior)),
        broken=broken,
    )


def parted(count: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Divide places at random, without regard to classes, into those of the prior and the rest."""
    first = round(share * count)
    if not 1 <= first < count:
        raise InputError(
            f"prior_share must leave samples on both sides, got {share} of {count}. Pass another "
            "share or more data."
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[:first].sort().values, order[first:].sort().values


def _of_subject(subject: Subject, held_out: object, rebuilt: nn.Module | None = None) -> Material:
    """Take a trained model as the prior of new samples, or its initial weights without them.

    Args:
        subject: The trained model with its data.
        held_out: Samples that the model has never seen, or None.
        rebuilt: The network from before training, if it is known.
    """
    _check_task(subject)
    if held_out is None:
        return _of_initial(subject, rebuilt)
    network = copy.deepcopy(subject.model)
    new = as_split(held_out, None, "held-out data")
    both = JoinedSplit(subject.train, new)
    check_outputs(copy.deepcopy(network), subject.train, new)
    digests, notes = _checked(subject.train, new, subject.test, own_split=False)
    broken, told = repetitions(new)
    broken = broken or standardized(new, both)
    return Material(
        name=subject.name,
        prior="learned",
        network=network,
        train=both,
        bound=new,
        learned_on=subject.train,
        test=subject.test,
        digests=digests,
        notes=(*notes, *told, *_buffers(network, "learned")),
        broken=broken,
    )


def _of_initial(subject: Subject, rebuilt: nn.Module | None) -> Material:
    if subject.initial is None:
        raise InputError(
            "A certificate on the training data needs the weights from before training, got a "
            "subject without. Pass initial=… to Subject, or held_out=(inputs, targets) that the "
            "model was never trained on."
        )
    if rebuilt is None:
        check_state(subject.model)
    network = copy.deepcopy(subject.model) if rebuilt is None else rebuilt
    check_outputs(copy.deepcopy(subject.model), subject.train)
    trained = {name: p.detach().clone() for name, p in subject.model.named_parameters()}
    network.load_state_dict(subject.initial)
    digests, notes = _checked(None, subject.train, subject.test, own_split=False)
    broken, told = repetitions(subject.train)
    broken = broken or standardized(subject.train)
    return Material(
        name=subject.name,
        prior="initial",
        network=network,
        train=subject.train,
        bound=subject.train,
        learned_on=None,
        test=subject.test,
        digests=digests,
        start=trained,
        notes=(*notes, *told, *_buffers(network, "initial")),
        broken=broken,
    )


def _check_task(subject: Subject) -> None:
    """Refuse what has no 0-1 risk."""
    if subject.task != "classification":
        raise InputError(
            f"A certificate is about the error rate of a classification, got a {subject.task}. "
            "Use a model with one output per class."
        )


def _buffers(network: nn.Module, prior: str) -> list[str]:
    when = "were learned with the prior" if prior == "learned" else "are those from before training"
    some = any(True for _ in network.buffers())
    return [f"Buffers (running statistics) {when} and stay as they are."] if some else []


def _checked(
    learned_on: Split | None, bound: Split, test: Split | None, *, own_split: bool
) -> tuple[dict[str, str], list[str]]:
    """Hash every part of the data, and check that they share nothing but by chance."""
    parts = {"prior": learned_on, "bound": bound, "test": test}
    given = {name: split for name, split in parts.items() if split is not None}
    digests = {
        name: hashlib.sha256(sample_hashes(split).numpy().tobytes()).hexdigest()[:16]
        for name, split in given.items()
    }
    return digests, check_shared(given, own_split)


class JoinedSplit(Split):
    """The samples of one split, then those of another."""

    def __init__(self, first: Split, second: Split) -> None:
        self.first, self.second = first, second

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def take(self, index: Tensor) -> Batch:
        """Read from both splits and restore the order that was asked for."""
        early = index < len(self.first)
        asked = ((self.first, index[early]), (self.second, index[~early] - len(self.first)))
        parts = [split.take(own) for split, own in asked if len(own)]
        places = torch.cat([early.nonzero().flatten(), (~early).nonzero().flatten()]).argsort()
        target = torch.cat([part.target for part in parts])[places]
        return Batch(_joined([part.inputs for part in parts], places), target, index)


def _joined(inputs: list[Inputs], places: Tensor) -> Inputs:
    first = inputs[0]
    if isinstance(first, dict):
        return {name: torch.cat([part[name] for part in inputs])[places] for name in first}  # type: ignore[call-overload]
    return tuple(torch.cat(list(values))[places] for values in zip(*inputs, strict=True))


def material_of(
    given: Subject | Recipe | Fitted,
    prior: str | None,
    held_out: Any,
    share: float,
    seed: int,
    transform: Transform | None,
) -> Material:
    """Find the prior and the data in what ``certify`` was given.

    Args:
        given: What is certified.
        prior: ``"learned"``, ``"initial"`` or None.
        held_out: Samples that a trained model has never seen, or None.
        share: The share of a recipe's training data for a learned prior.
        seed: Fixes the split and the training of the prior.
        transform: Fitted on the prior's part of a recipe's data.
    """
    if prior is not None:
        choice("prior", prior, PRIORS)
    if isinstance(given, Recipe):
        if held_out is not None:
            raise InputError(
                "held_out belongs to a trained subject, got a recipe. Pass prior_share instead."
            )
        return of_recipe(given, prior or "learned", share, seed, transform)
    if not isinstance(given, Subject | Fitted):
        raise InputError(
            f"certify needs a Subject or a Recipe, got {type(given).__name__}. Pass one."
        )
    if transform is not None:
        raise InputError(
            "transform belongs to a recipe, whose prior it is fitted with, got a trained model. "
            "Transform the held-out data as the training data were."
        )
    if prior is not None and (prior == "learned") != (held_out is not None):
        advice = "Pass held_out=(inputs, targets)" if prior == "learned" else "Leave held_out away"
        raise InputError(
            f"A subject's learned prior goes with held-out data, got prior={prior!r}. {advice}."
        )
    if isinstance(given, Fitted):
        return _of_subject(given.subject(), held_out, given.recipe.build(given.seed))
    return _of_subject(given, held_out)
