"""What a certificate is made of: the prior's network, and bound data it has not seen."""

import copy
import dataclasses
import hashlib
import itertools

import torch
from torch import Tensor, nn

from mindgap.core import Batch, InputError, Inputs, Recipe, Split, Subject, as_split
from mindgap.ops.samples import sample_hashes
from mindgap.training.certify.settings import check_outputs
from mindgap.training.fit import fit


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

    @property
    def sizes(self) -> dict[str, int]:
        """Number of samples of every part."""
        parts = {"prior": self.learned_on, "bound": self.bound, "test": self.test}
        return {name: len(split) for name, split in parts.items() if split is not None}


def of_recipe(recipe: Recipe, prior: str, share: float, seed: int) -> Material:
    """Train the prior on a random share of the training data, or take the initial weights.

    The share is drawn without regard to classes. After a stratified split the bound data would
    not be independent of the prior.
    """
    whole, test = recipe.splits()
    network = recipe.build(seed)
    _check_task(Subject(network, recipe.loss, whole, test, task=recipe.task))
    check_outputs(network, whole)
    common = {"name": recipe.name, "prior": prior, "train": whole, "test": test}
    if prior == "initial":
        digests, notes = _checked(None, whole, test)
        told = (*notes, *_buffers(network, prior))
        return Material(
            network=network,
            bound=whole,
            learned_on=None,
            digests=digests,
            notes=told,
            **common,  # type: ignore[arg-type]
        )
    mine, rest = _parted(len(whole), share, seed)
    own, other = whole.subset(mine), whole.subset(rest)
    digests, notes = _checked(own, other, test)
    weights = None if recipe.sample_weights is None else recipe.sample_weights[mine]
    fitted = fit(
        recipe.replace(train=own, test=None, sample_weights=weights), seed=seed, evaluate_every=0
    )
    stopped = (f"Training of the prior stopped: {fitted.stopped}.",) if fitted.stopped else ()
    told = (*stopped, *notes, *_buffers(network, prior))
    return Material(
        network=fitted.model,
        bound=other,
        learned_on=own,
        digests=digests,
        notes=told,
        **common,  # type: ignore[arg-type]
    )


def _parted(count: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    first = round(share * count)
    if not 1 <= first < count:
        raise InputError(
            f"prior_share must leave samples on both sides, got {share} of {count}. Pass another "
            "share or more data."
        )
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[:first].sort().values, order[first:].sort().values


def of_subject(subject: Subject, held_out: object) -> Material:
    """Take a trained model as the prior of new samples, or its initial weights without them."""
    _check_task(subject)
    network = copy.deepcopy(subject.model)
    common = {"name": subject.name, "network": network, "test": subject.test}
    if held_out is not None:
        new = as_split(held_out, None, "held-out data")
        both = JoinedSplit(subject.train, new)
        check_outputs(network, both)
        digests, notes = _checked(subject.train, new, subject.test)
        told = (*notes, *_buffers(network, "learned"))
        common |= {"train": both, "bound": new, "learned_on": subject.train, "digests": digests}
        return Material(prior="learned", notes=told, **common)  # type: ignore[arg-type]
    if subject.initial is None:
        raise InputError(
            "A certificate on the training data needs the weights from before training, got a "
            "subject without. Pass initial=… to Subject, or held_out=(inputs, targets) that the "
            "model was never trained on."
        )
    check_outputs(network, subject.train)
    trained = {name: p.detach().clone() for name, p in network.named_parameters()}
    network.load_state_dict(subject.initial)
    digests, notes = _checked(None, subject.train, subject.test)
    told = (*notes, *_buffers(network, "initial"))
    common |= {
        "train": subject.train,
        "bound": subject.train,
        "learned_on": None,
        "digests": digests,
    }
    return Material(prior="initial", start=trained, notes=told, **common)  # type: ignore[arg-type]


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
    learned_on: Split | None, bound: Split, test: Split | None
) -> tuple[dict[str, str], list[str]]:
    """Hash every part of the data, refuse parts that overlap, and note repeated bound samples."""
    parts = {"prior": learned_on, "bound": bound, "test": test}
    hashes = {name: sample_hashes(split) for name, split in parts.items() if split is not None}
    for left, right in itertools.combinations(hashes, 2):
        both = int(torch.isin(hashes[right], hashes[left]).sum())
        if both:
            raise InputError(
                f"The {right} data must hold no sample of the {left} data, got {both} of "
                f"{len(hashes[right])} that do. A bound needs samples that its prior has not seen: "
                "remove them, or pass other data."
            )
    repeated = len(bound) - len(hashes["bound"].unique())
    told = (
        f"{repeated:,} bound samples repeat another one: valid if they were drawn independently "
        "all the same."
    )
    digests = {
        name: hashlib.sha256(found.numpy().tobytes()).hexdigest()[:16]
        for name, found in hashes.items()
    }
    return digests, [told] if repeated else []


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
