"""Snapshot ensembles: the mean prediction of weights along one training run."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Remedy, Stack, StackState, TrainingState, option, with_weights

_KEPT, _COUNT = "snapshot_", "snapshots"  # names of buffers
Average = Literal["auto", "outputs", "probabilities"]


class SnapshotEnsemble(Remedy):
    r"""Averages the predictions of snapshots that a cyclic learning rate leaves.

    Formula: $\eta_e = \frac{a \eta}{2} \left(1 + \cos\frac{\pi\, ((e - 1) \bmod C)}{C}\right),
    \quad C = \lceil E / M \rceil, \qquad \bar p(x) = \frac{1}{M} \sum_{k=1}^{M} p(x; w_{kC})$

    Reading: At the end of every cycle the small learning rate settles in a minimum, and the jump
    back to a large one leaves it. So one training run gives M networks that err in different
    places. Training costs nothing more; every answer costs M forward passes. The answer of a
    classification is the logarithm of the mean probability, which serves as logits; that of other
    tasks is the mean output. Zero cycles turn it off.

    Assumes: A number of epochs that is fixed beforehand, at least one per cycle. A run that ends
    early averages the snapshots that it has with the weights at its end.

    >>> net = SnapshotEnsemble(cycles=3).attach(nn.Linear(1, 1))
    >>> list(net.state_dict())[2:]
    ['snapshot_1:weight', 'snapshot_1:bias', 'snapshot_2:weight', 'snapshot_2:bias', 'snapshots']
    >>> [SnapshotEnsemble(cycles=2).ends(epochs) for epochs in (6, 5)]
    [[3, 6], [3, 5]]
    """

    method = ("E5",)
    cites = ("huang2017snapshot", "loshchilov2017sgdr")
    strength = "cycles"
    treats = frozenset({"over-fitting", "over-confidence"})
    cost = 1.1
    horizon = True

    cycles: int = option(
        5, help="cycles M of the learning rate, one snapshot each; 0 is off", low=0
    )
    peak: float = option(
        1.0, help="learning rate at the start of a cycle, as a multiple of the recipe's", above=0
    )
    average: Average = option(
        "auto", help="what is averaged; auto is probabilities for a classification"
    )

    def ends(self, epochs: int) -> list[int]:
        """Return the last epoch of every cycle.

        Args:
            epochs: How many epochs are planned.
        """
        if not epochs:
            raise InputError(
                "A snapshot ensemble must know the number of epochs, got a training loop that does "
                "not tell it. Pass epochs= to RemedyOptimizer."
            )
        length = self._length(epochs)
        return [min(end, epochs) for end in range(length, epochs + length, length)]

    def _length(self, epochs: int) -> int:
        return math.ceil(epochs / self.cycles)

    def rate_factor(self, state: TrainingState) -> float:
        """Follow a half wave of the cosine in every cycle."""
        self.ends(state.epochs)
        length = self._length(state.epochs)
        return self.peak * (1 + math.cos(math.pi * ((state.epoch - 1) % length) / length)) / 2

    @torch.no_grad()
    def after_epoch(self, state: TrainingState) -> bool:
        """Keep the weights at the end of a cycle; those of the last one stay in the model."""
        if state.epoch in self.ends(state.epochs)[:-1]:
            names, values = _tensors(state.model)
            copies = {name: value.clone() for name, value in zip(names, values, strict=True)}
            state.memory[str(state.epoch)] = copies
        return False

    @classmethod
    def vectorized_epoch(cls, members: Sequence[Self], stack: Stack, state: StackState) -> None:
        """Keep the weights of all members whose cycle ends and who are still trained."""
        due = [state.epoch in own.ends(state.epochs)[:-1] for own in members]
        taken = torch.tensor(due) & state.alive
        if not bool(taken.any()):
            return
        kept = state.memory.setdefault(str(state.epoch), torch.zeros_like(stack.weights))
        for place, weight in zip(stack.cut(kept), stack.cut(stack.weights), strict=True):
            place[taken] = weight[taken]

    def finish(self, state: TrainingState) -> nn.Module:
        """Give the model the snapshots of its cycles, and the forward pass that uses them."""
        ends = [end for end in self.ends(state.epochs)[:-1] if end <= state.epoch]
        taken = [state.memory[str(end)] for end in ends if str(end) in state.memory]
        if state.epoch in ends:  # the run ended early, just after a snapshot, which it still is
            taken = taken[:-1]
        model = self.attach(state.model, probabilities=self._probabilities(state))
        averaged = model.forward
        assert isinstance(averaged, _Averaged)
        averaged.keep(taken)
        return model

    def _probabilities(self, state: TrainingState) -> bool:
        if self.average != "auto":
            return self.average == "probabilities"
        if state.subject is None:
            raise InputError(
                "A snapshot ensemble must know the task, got a training loop that does not hand "
                "over its data. Pass train= to RemedyOptimizer, or set average."
            )
        return state.subject(state.model).task == "classification"

    def attach(self, model: nn.Module, *, probabilities: bool | None = None) -> nn.Module:
        """Give a model the place for the snapshots, in buffers of its own.

        Saved weights are loaded into a model that was prepared like this. Weights without
        snapshots make it a plain model again.

        Args:
            model: The model, which is changed in place.
            probabilities: Whether outputs are logits whose probabilities are averaged; as the
                setting says if None, and outputs if that is "auto".
        """
        if isinstance(model.forward, _Averaged):
            raise InputError(
                "A snapshot ensemble must begin with a plain model, got one that has snapshots "
                "already. Build a new one."
            )
        averaged = self.average == "probabilities" if probabilities is None else probabilities
        names, values = _tensors(model)
        for number in range(1, self.cycles):
            for name, value in zip(names, values, strict=True):
                model.register_buffer(_kept(number, name), value.clone())
        model.register_buffer(_COUNT, torch.tensor(0))
        model.forward = _Averaged(model, names, averaged)
        # Engines that take a model apart refuse this hook, and would not see the new ``forward``.
        model.register_forward_pre_hook(_nothing)
        model.register_load_state_dict_post_hook(_plain_again)
        return model


@dataclasses.dataclass(eq=False)
class _Averaged:
    """The forward pass of a model with snapshots; while it is trained, that of its own weights.

    Args:
        model: The model whose ``forward`` this is.
        names: The tensors of its state dict, as it was without snapshots.
        probabilities: Whether outputs are logits.
    """

    model: nn.Module
    names: tuple[str, ...]
    probabilities: bool
    _released: bool = False

    def keep(self, taken: Sequence[Mapping[str, Tensor]]) -> None:
        """Put snapshots into the buffers; what a snapshot does not hold stays as it is now."""
        for number, values in enumerate(taken, 1):
            for name in self.names:
                if name in values:
                    self.model.get_buffer(_kept(number, name)).copy_(values[name])
        self.model.get_buffer(_COUNT).fill_(len(taken))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model with every snapshot and average."""
        own = type(self.model).forward
        count = 0 if self._released else int(self.model.get_buffer(_COUNT))
        if self.model.training or not count:
            return own(self.model, *args, **kwargs)
        outputs = [own(self.model, *args, **kwargs)]
        self._released = True
        try:
            for number in range(1, count + 1):
                kept = {name: self.model.get_buffer(_kept(number, name)) for name in self.names}
                outputs.append(with_weights(self.model, kept, args, kwargs))
        finally:
            self._released = False
        return self._mean(torch.stack(outputs))

    def _mean(self, outputs: Tensor) -> Tensor:
        if not self.probabilities:
            return outputs.mean(0)
        logarithms = torch.log_softmax(outputs, dim=2)
        return torch.logsumexp(logarithms, dim=0) - math.log(len(outputs))


def _tensors(model: nn.Module) -> tuple[tuple[str, ...], list[Tensor]]:
    state = {name: value for name, value in model.state_dict().items() if torch.is_tensor(value)}
    return tuple(state), list(state.values())


def _kept(number: int, name: str) -> str:
    return f"{_KEPT}{number}:{name.replace('.', ':')}"  # the name of a buffer has no dots


def _nothing(model: nn.Module, _: Any) -> None:
    """A hook that only says that the model is not the sequence of its layers."""


def _plain_again(model: nn.Module, keys: Any) -> None:
    """Accept weights without snapshots: the model is then a plain one."""
    if _COUNT in keys.missing_keys:
        keys.missing_keys[:] = [key for key in keys.missing_keys if not key.startswith(_KEPT[:-1])]
        model.get_buffer(_COUNT).fill_(0)
