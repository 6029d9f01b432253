"""The chain of a subject's model, and the two groups of samples that path space compares."""

import dataclasses
import math

import torch
from torch import Tensor
from torch.nn import functional

from mindgap.core import InputError, Subject, Undefined, Which, align, generator
from mindgap.ops.paths.chain import Chain, read_chain
from mindgap.ops.paths.gram import most_places

WORK = 2**27  # inner products at places of an image: some ten seconds


def chain_of(subject: Subject) -> Chain:
    """Read the subject's model as a chain; raise Undefined, with the reason, if it is none.

    >>> from mindgap.nets import MLP
    >>> data = torch.eye(2), torch.tensor([0, 1])
    >>> chain_of(Subject(MLP((2, 3, 2)), "cross_entropy", data)).shape
    (2, 1, 1)
    """
    return subject.cached("paths: chain", lambda: _read(subject))


def _read(subject: Subject) -> Chain:
    inputs = inputs_of(subject, "train", torch.arange(min(64, len(subject.train))))
    try:
        chain = read_chain(subject.model, tuple(inputs.shape[1:]))
    except InputError as error:
        raise Undefined(str(error)) from error
    # On real samples too: what happens between layers may leave random ones alone.
    known = subject.outputs("train")[: len(inputs)].double().cpu()
    found = chain.run(inputs)[0]
    if not torch.allclose(
        found, known.view(len(known), -1), rtol=1e-3, atol=1e-3 * float(known.abs().max())
    ):
        raise Undefined("needs a model that does nothing but call its layers one after the other")
    return chain


def inputs_of(subject: Subject, which: Which, places: Tensor) -> Tensor:
    """Return some inputs as one tensor; raise Undefined if a sample has several, or words."""
    inputs = subject.split(which).take(places).inputs
    if isinstance(inputs, dict) or len(inputs) != 1 or not inputs[0].is_floating_point():
        raise Undefined("needs a single input of real numbers per sample")
    return inputs[0]


@dataclasses.dataclass(frozen=True)
class Sides:
    """Held-out and training samples, one after the other.

    Args:
        chain: The network.
        inputs: The inputs of all.
        targets: One column per output; classes as zeros and a one.
        outputs: What the network answers.
        held: Whether a sample is held out.
    """

    chain: Chain
    inputs: Tensor
    targets: Tensor
    outputs: Tensor
    held: Tensor

    @property
    def weights(self) -> Tensor:
        """One over the number of held-out samples on them, minus one over the others' on them."""
        count = float(self.held.sum())
        held = self.held.double()
        return held / count - (1 - held) / (len(held) - count)

    @property
    def gap(self) -> float:
        """The difference of mean squared losses, summed over the outputs."""
        losses = (self.outputs - self.targets).square().sum(1)
        return float(self.weights @ losses)


def sides_of(subject: Subject, most: int, seed: int) -> Sides:
    """Take up to so many test samples, and as many training samples at most.

    Args:
        subject: With test data.
        most: The largest number of samples of each kind; they are drawn at random. Images pass a
            convolution place by place, so that fewer of them are taken.
        seed: The seed of the draw.
    """
    chain = chain_of(subject)
    both: tuple[Which, ...] = ("test", "train")
    most = min(most, max(2, math.isqrt(WORK // most_places(chain)) // 2))
    places = {which: _places(len(subject.split(which)), most, seed) for which in both}
    inputs = torch.cat([inputs_of(subject, which, places[which]) for which in both])
    targets = torch.cat([_targets(subject, which)[places[which]] for which in both])
    held = torch.arange(len(inputs)) < len(places["test"])
    return Sides(chain, inputs, targets, chain.run(inputs)[0], held)


def _places(count: int, most: int, seed: int) -> Tensor:
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=generator(seed))[:most]


def _targets(subject: Subject, which: Which) -> Tensor:
    outputs, targets = subject.outputs(which), subject.targets(which)
    if subject.task == "classification":
        return functional.one_hot(targets.cpu(), outputs.shape[1]).double()
    aligned = align(outputs, targets).double().cpu()
    return aligned.reshape(len(aligned), -1)
