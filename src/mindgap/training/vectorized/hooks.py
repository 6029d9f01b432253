"""The hooks of remedies in an ensemble: member by member in a step, all members after an epoch."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Inputs, Loss, Losses, Remedy, Stack, StackState, TrainingState

_PURE = ("rate_factor", "inputs", "losses", "penalty")


class Hooks:
    """What the remedies of every member do to its inputs, losses and learning rate.

    These hooks depend on their arguments and on seed, epoch and step alone. So each member gets the
    numbers of the plain loop, and steps can be repeated.

    Args:
        remedies: One tuple per member.
        seeds: One per member.
        models: One per member; their weights are the initial ones.
        loss: The loss without remedies.
        epochs: How many epochs are planned.
    """

    def __init__(
        self,
        remedies: Sequence[tuple[Remedy, ...]],
        seeds: Sequence[int],
        models: Sequence[nn.Module],
        loss: Loss,
        epochs: int,
    ) -> None:
        own = [[one for one in row if one.hooks() & set(_PURE)] for row in remedies]
        self.written = frozenset(hook for row in own for one in row for hook in one.hooks())
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
        state = functools.partial(TrainingState, optimizer=optimizer, epochs=epochs)
        self._states = [state(model=m, seed=s) for m, s in zip(models, seeds, strict=True)]
        self._own, self._loss = own, loss
        acting = [[one for one in row if "losses" in one.hooks()] for row in own]
        self._alike = all(row == acting[0] and all(one.rowwise for one in row) for row in acting)

    @property
    def changes_inputs(self) -> bool:
        """Whether a remedy writes ``inputs``."""
        return "inputs" in self.written

    @property
    def changes_losses(self) -> bool:
        """Whether a remedy writes ``losses`` or ``penalty``."""
        return bool({"losses", "penalty"} & self.written)

    def at(self, epoch: int, step: int) -> None:
        """Tell epoch and step, both counted from 1 over the whole training."""
        for state in self._states:
            state.epoch, state.step = epoch, step

    def factors(self, epoch: int) -> list[float]:
        """Return the factor of every member's learning rate in an epoch."""
        self.at(epoch, 0)
        pairs = zip(self._own, self._states, strict=True)
        return [math.prod(one.rate_factor(state) for one in row) for row, state in pairs]

    def inputs(self, member: int, inputs: Inputs) -> Inputs:
        """Change the inputs of a member's batch."""
        for remedy in self._own[member]:
            inputs = remedy.inputs(self._states[member], inputs)
        return inputs

    def losses(self, member: int, output: Tensor, target: Tensor) -> Tensor:
        """Compute the losses of a member's batch, one per sample."""
        loss: Losses = self._loss
        for remedy in self._own[member]:
            loss = functools.partial(remedy.losses, self._states[member], loss)
        return loss(output, target)

    def penalty(self, member: int, output: Tensor, target: Tensor, weights: Tensor) -> Tensor:
        """Compute the further terms of a member's loss, added up."""
        state = self._states[member]
        found = [one.penalty(state, output, target, weights) for one in self._own[member]]
        return sum((term for term in found if term is not None), output.new_zeros(()))

    def slopes(
        self, members: Sequence[int], outputs: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute the derivatives of the mean losses with penalties by the outputs, and their values.

        Args:
            members: The members to whom the rows belong.
            outputs: (members, batch, …).
            targets: (members, batch, …).
            weights: Sample weights, (members, batch).
        """
        with torch.enable_grad():
            leaves = outputs.detach().requires_grad_()
            if self._alike:
                found = self.losses(members[0], leaves.flatten(0, 1), targets.flatten(0, 1))
                values = (found.view(leaves.shape[:2]) * weights).mean(1)
            else:
                rows = zip(members, leaves, targets, weights, strict=True)
                values = torch.stack([(self.losses(k, o, t) * w).mean() for k, o, t, w in rows])
            if "penalty" in self.written:
                rows = zip(members, leaves, targets, weights, strict=True)
                values = values + torch.stack([self.penalty(*row) for row in rows])
            (slope,) = torch.autograd.grad(values.sum(), leaves)
        return slope, values.detach()


class EpochEnds:
    """What remedies do after an epoch, for all members at once, and what they remember.

    Args:
        remedies: One tuple per member, of the same kinds.
        store: The weights of all members.
        epochs: How many epochs are planned.
    """

    def __init__(self, remedies: Sequence[tuple[Remedy, ...]], store: Stack, epochs: int) -> None:
        columns = dict(enumerate(zip(*remedies, strict=True)))
        own = {k: column for k, column in columns.items() if _remembers(column[0])}
        alive = torch.ones(len(remedies), dtype=torch.bool)
        self._columns, self._store = own, store
        self._states = {k: StackState(epoch=0, epochs=epochs, alive=alive) for k in own}

    def look(self, epoch: int, alive: Tensor) -> None:
        """Call ``vectorized_epoch`` of every remedy that writes it."""
        for k, column in self._columns.items():
            self._states[k].epoch, self._states[k].alive = epoch, alive
            type(column[0]).vectorized_epoch(column, self._store, self._states[k])

    def state(self) -> dict[int, dict[str, Tensor]]:
        """Copy what the remedies remember."""
        return {
            k: {name: value.clone() for name, value in state.memory.items()}
            for k, state in self._states.items()
        }

    def restore(self, kept: dict[int, dict[str, Tensor]]) -> None:
        """Go back to a copy; it is copied once more, so that it can serve again."""
        for k, memory in kept.items():
            self._states[k].memory = {name: value.clone() for name, value in memory.items()}

    def memory(self, place: int, member: int) -> dict[str, Any]:
        """Return what the remedy at a place remembers of a member, by parameter name."""
        found = self._states[place].memory if place in self._states else {}
        return {
            name: {part: view[member] for part, view in self._store.named(flat).items()}
            for name, flat in found.items()
        }


def _remembers(remedy: Remedy) -> bool:
    return "vectorized_epoch" in remedy.hooks()
