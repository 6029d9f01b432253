"""A model whose gates come from weights of its own past, which it carries in buffers."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import InputError, evaluating, with_weights
from mindgap.ops.models.gates import recorded, replayed

_NORMALIZERS = nn.modules.batchnorm._BatchNorm
_KEPT, _PHASE = "phase_1:", "phase"  # names of buffers


def two_phased(model: nn.Module) -> nn.Module:
    """Give a model the place for its weights of phase 1 and a forward pass that uses them.

    It is changed in place and is in phase 1, where its answers are those of the plain model.

    Args:
        model: The model.

    >>> net = two_phased(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    >>> list(net.state_dict())
    ['phase_1:0:weight', 'phase_1:0:bias', 'phase', '0.weight', '0.bias']
    """
    if isinstance(model.forward, Gated):
        raise InputError(
            "Two-phase training must begin with a plain model, got one that was prepared for it "
            "before. Build a new one."
        )
    names = tuple(name for name, value in model.state_dict().items() if torch.is_tensor(value))
    gated = Gated(model, names)
    for name, value in zip(names, gated.live(), strict=True):
        model.register_buffer(_kept(name), value.clone())
    model.register_buffer(_PHASE, torch.tensor(1))
    model.forward = gated
    # Engines that take a model apart refuse this hook, and would not see the new ``forward``.
    model.register_forward_pre_hook(_freeze_statistics)
    return model


@dataclasses.dataclass(eq=False)
class Gated:
    """The forward pass of a model whose gates come from its weights of phase 1.

    Those weights are buffers of the model. So they are saved, moved and restored with it, and are
    not among its parameters. The layers exist only once and are run with either weights.

    Args:
        model: The model whose ``forward`` this is.
        names: The tensors of its state dict, as it was without phases.
    """

    model: nn.Module
    names: tuple[str, ...]
    _released: bool = False

    @property
    def frozen(self) -> bool:
        """Whether phase 2 has begun."""
        return int(self.model.get_buffer(_PHASE)) > 1

    def live(self) -> list[Tensor]:
        """Return the weights that are trained, and the buffers, in the order of their names."""
        state = self.model.state_dict()
        return [state[name] for name in self.names]

    def first(self) -> dict[str, Tensor]:
        """Return the weights and buffers at the end of phase 1, by name."""
        return {name: self.model.get_buffer(_kept(name)) for name in self.names}

    def freeze(self) -> None:
        """Begin phase 2: the weights as they are now decide the gates from here on."""
        for kept, value in zip(self.first().values(), self.live(), strict=True):
            kept.copy_(value)
        self.model.get_buffer(_PHASE).fill_(2)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Let the model decide its gates by its own weights, as a plain model does."""
        before, self._released = self._released, True
        try:
            yield
        finally:
            self._released = before

    def gates(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Return the gates of phase 1 on a batch, in evaluation mode."""
        with evaluating(self.model), self.released():
            _, gates = recorded(lambda: with_weights(self.model, self.first(), args, kwargs))
        return gates

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model, with the gates of phase 1 once that has ended."""
        model = self.model
        if self._released or not self.frozen:
            return type(model).forward(model, *args, **kwargs)
        gates = self.gates(*args, **kwargs)
        return replayed(gates, lambda: type(model).forward(model, *args, **kwargs))


def gates_of(model: nn.Module) -> Gated:
    """Return the gates of a model that was prepared for two-phase training.

    >>> net = two_phased(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    >>> gates_of(net).frozen
    False
    """
    if not isinstance(model.forward, Gated):
        raise InputError(
            "The model must be one of two-phase training, got a plain one. Train it with the "
            "remedy 'two-phase', or prepare it by TwoPhase().attach(model)."
        )
    return model.forward


def _kept(name: str) -> str:
    return f"{_KEPT}{name.replace('.', ':')}"  # the name of a buffer has no dots


def _freeze_statistics(model: nn.Module, _: Any) -> None:
    """Keep batch normalization at the statistics of phase 1; it is then linear."""
    if model.training and gates_of(model).frozen:
        for module in model.modules():
            if isinstance(module, _NORMALIZERS):
                module.eval()
