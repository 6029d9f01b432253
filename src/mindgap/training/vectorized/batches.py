"""The samples of every step: each member sees those that the plain loop would draw."""

import dataclasses
import functools

import torch
from torch import Tensor

from mindgap.core import align
from mindgap.training.batches import epoch_seed
from mindgap.training.vectorized.layers import Block, Program
from mindgap.training.vectorized.problem import Problem, Unsupported

_EPOCH_NUMBERS = 2**23  # gather a whole epoch at once up to this many numbers
_NARROW = 16  # up to this many features a gather by feature beats one by sample


@dataclasses.dataclass(frozen=True)
class Batch:
    """The samples of a step, in buffers that stay the same.

    Args:
        inputs: (members, columns, batch), or (columns, batch) if all members see the same.
        target: Broadcasts against (members, outputs, batch).
        weights: Sample weights, which broadcast likewise.
        label: (members, batch, …), as a loss takes it.
        fetch: Fills the buffers just before the step, where a whole epoch would not fit.
    """

    inputs: Tensor
    target: Tensor
    weights: Tensor | None
    label: Tensor
    fetch: Program


class Columns:
    """Samples, targets and weights as columns, gathered for every member in its own order."""

    def __init__(self, problem: Problem, data: Tensor, first: Block, outputs: int) -> None:
        self.problem, self.outputs = problem, outputs
        if data.shape[1] != first.linear.in_features:
            raise Unsupported(
                f"the inputs have {data.shape[1]} features, the model takes "
                f"{first.linear.in_features}"
            )
        bias = first.linear.bias is not None
        self.rows = torch.cat([data, torch.ones(len(data), 1).to(data)], 1) if bias else data
        self.target = aligned_targets(problem, outputs)
        self.weights = None if problem.weights is None else problem.weights.to(data)
        self._places = torch.empty(0, dtype=torch.long)
        # All members see the same columns if a batch holds all samples as they are.
        self.shared = problem.full and not problem.hooks.changes_inputs
        if not self.shared:
            self._allocate()

    def _allocate(self) -> None:
        members, samples, features = self.problem.members, self.problem.samples, self.rows.shape[1]
        hooked, numbers = self.problem.hooks.changes_inputs, features + self.outputs + 1
        self.whole = members * samples * numbers <= _EPOCH_NUMBERS and not hooked
        self.length = samples if self.whole else min(self.problem.batch_size, samples)
        self.narrow = features <= _NARROW and not hooked
        shape = (
            (features, members, self.length) if self.narrow else (members, self.length, features)
        )
        self._source = self.rows.t().contiguous() if self.narrow else self.rows
        self._inputs = torch.empty(shape, dtype=self.rows.dtype)
        self._targets = self.target.new_empty(members, self.length, *self.target.shape[1:])
        self._weights = (
            None if self.weights is None else self.weights.new_empty(members, self.length)
        )

    def gather(self, places: Tensor) -> None:
        """Lay out an epoch in the order of ``places`` (members, samples)."""
        self._places = places
        if self.whole:
            self._fill(places, 0, self.length)

    def _fetch(self, start: int, stop: int) -> None:
        self._fill(self._places[:, start:stop].contiguous(), 0, stop - start)

    def _fill(self, places: Tensor, start: int, stop: int) -> None:
        flat, members, size = places.flatten(), len(places), stop - start
        if self.problem.hooks.changes_inputs:
            for member, own in enumerate(places):
                found = self.problem.hooked_input(member, own).flatten(1)
                self._inputs[member, :size, : found.shape[1]] = found
                self._inputs[member, :size, found.shape[1] :] = 1
        elif self.narrow:
            self._put(
                self._inputs[:, :, :size],
                self._source.index_select(1, flat).view(-1, members, size),
            )
        else:
            self._put(
                self._inputs[:, :size], self._source.index_select(0, flat).view(members, size, -1)
            )
        self._put(
            self._targets[:, :size],
            self.target.index_select(0, flat).view(members, size, *self.target.shape[1:]),
        )
        if self.weights is not None and self._weights is not None:
            found = (
                self.weights[places] if self.weights.ndim == 1 else self.weights.gather(1, places)
            )
            self._put(self._weights[:, :size], found)

    @staticmethod
    def _put(buffer: Tensor, found: Tensor) -> None:
        buffer.copy_(found)

    def batch(self, step: int) -> Batch:
        """Return the buffers of a step."""
        if self.shared:
            return self._everything()
        size, samples = self.problem.batch_size, self.problem.samples
        start, stop = step * size, min((step + 1) * size, samples)
        fetch: Program = [] if self.whole else [functools.partial(self._fetch, start, stop)]
        if not self.whole:
            start, stop = 0, stop - start
        inputs = (
            self._inputs[:, :, start:stop].transpose(0, 1)
            if self.narrow
            else self._inputs[:, start:stop].mT
        )
        label = self._targets[:, start:stop]
        weights = None if self._weights is None else self._weights[:, None, start:stop]
        return Batch(inputs, featured(label), weights, label, fetch)

    def _everything(self) -> Batch:
        weights = self.weights
        if weights is not None:
            weights = weights.view(-1, 1, self.problem.samples)
        label = self.target.expand(self.problem.members, *self.target.shape)
        return Batch(self.rows.t().contiguous(), featured(self.target[None]), weights, label, [])


def aligned_targets(problem: Problem, outputs: int) -> Tensor:
    """Give targets the shape (samples, outputs) of the outputs, unless they are class numbers."""
    target = problem.targets
    if not problem.named_loss:
        return target
    if problem.named_loss == "cross_entropy":
        if target.ndim != 1 or target.is_floating_point():
            raise Unsupported("the targets are not class numbers")
        return target
    target = align(target.new_empty(len(target), outputs), target)
    if target.shape != (problem.samples, outputs):
        raise Unsupported(f"targets of shape {tuple(target.shape)} do not fit {outputs} outputs")
    return target


def featured(label: Tensor) -> Tensor:
    """Turn (members, batch) or (members, batch, outputs) into (members, outputs, batch)."""
    return label.unsqueeze(1) if label.ndim == 2 else label.mT


class Orders:
    """Which samples make which batch, for every member."""

    def __init__(self, samples: int, batch_size: int, seeds: tuple[int, ...]) -> None:
        self.samples, self.batch_size, self.seeds = samples, batch_size, seeds
        self._generator = torch.Generator()  # reseeded for every member: making one is slow
        self._places = torch.arange(samples).repeat(len(seeds), 1)
        self._rows = list(self._places)

    @property
    def full(self) -> bool:
        """Whether a batch holds all samples, in the order of the data."""
        return self.batch_size >= self.samples

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First and last place of every batch in an epoch's order."""
        step = min(self.batch_size, self.samples)
        return [(start, min(start + step, self.samples)) for start in range(0, self.samples, step)]

    def places(self, epoch: int) -> Tensor:
        """Draw the epoch's order of samples, (members, samples), into a tensor that is reused."""
        if not self.full:
            for row, seed in zip(self._rows, self.seeds, strict=True):
                self._generator.manual_seed(epoch_seed(seed, epoch))
                torch.randperm(self.samples, generator=self._generator, out=row)
        return self._places
