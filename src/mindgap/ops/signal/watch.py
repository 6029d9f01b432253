"""Watch: note what passes through the layers of a network while it is trained."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from mindgap.core.purity import preserved
from mindgap.ops.evidence.activations import Activation, Seen, joined

COMPILED = "_orig_mod"  # where torch.compile keeps the module that it compiled
TIME = 8  # calls of a layer in a pass, from which on they are steps of a recurrent net


@dataclasses.dataclass(frozen=True)
class Passed:
    """What one layer saw in the last pass.

    Args:
        activation: The root mean square of its outputs.
        backward: The norm of the gradient of the loss by its outputs, in all calls together; None
            if no gradient came.
        calls: The same for every call, in the order of the calls: of a recurrent layer, for every
            step of the sequence.
    """

    activation: float
    backward: float | None
    calls: tuple[float, ...]


class Watch:
    """Notes activations and gradients of layers in the passes between ``start`` and ``stop``.

    A layer is a module with weights of its own. Passes without gradient, as in an evaluation, are
    left out. If a layer is called in several passes, the last one counts; whether units are
    inactive is counted in all. The hooks only read, so training is bit-identical with them. What
    ``torch.compile`` made is left alone: it is called once more, as it was before, without
    gradient, and all it changes is restored.

    Args:
        model: The network that is trained, or a module that holds it.
        always: Whether to note passes without gradient too.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> with Watch(model) as watch:
    ...     model(torch.ones(4, 2)).mean().backward()
    >>> list(watch.passed()), [layer.place for layer in watch.units()]
    (['0', '2'], ['1'])
    """

    def __init__(self, model: nn.Module, *, always: bool = False) -> None:
        self.always = always
        self.modules = dict(_open_modules(model))
        self.compiled = {
            clean(name): module
            for name, module in model.named_modules()
            if COMPILED in module._modules
        }
        self.seen = Seen()
        self.order: dict[str, None] = {}
        self._pass = 0
        self._noted: dict[str, _Noted] = {}
        self._handles: list[Any] = []

    def start(self) -> None:
        """Begin to note."""
        for name, module in self.modules.items():
            enter, leave = _Enter(self, name, module), _Leave(self, name, module)
            self._handles += [
                module.register_forward_pre_hook(enter),
                # Also called if the pass fails, so that the stack is right in the next one.
                module.register_forward_hook(leave, always_call=True),
            ]
            if isinstance(module, nn.RNNBase):
                self._handles.append(module.register_forward_pre_hook(_Sequence(self, name)))
        for name, module in self.compiled.items():
            again = _Again(self, name, module)
            self._handles.append(module.register_forward_pre_hook(again, with_kwargs=True))

    def stop(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def passed(self) -> dict[str, Passed]:
        """Return what every layer saw, in the order of their first calls."""
        noted = [(name, self._noted[name]) for name in self.order if name in self._noted]
        tensors = [part.reshape(-1) for _, note in noted for part in note.tensors()]
        if not tensors:
            return {}
        home = tensors[0].device
        sizes = [len(part) for part in tensors]
        # One transfer for everything: on a GPU each of them would wait for all that is queued.
        values = torch.cat([part.to(home) for part in tensors]).cpu().double().split(sizes)
        rest = iter(values)
        return {name: note.told([next(rest) for _ in note.tensors()]) for name, note in noted}

    def units(self) -> list[Activation]:
        """Return for every activation how often its units were inactive."""
        return list(joined(self.seen.noted))

    @property
    def open(self) -> bool:
        """Whether a pass is to be noted; one that torch is compiling must not have a trace."""
        return not torch.compiler.is_compiling() and (self.always or torch.is_grad_enabled())

    def _enter(self, name: str) -> None:
        if not self.seen.stack:
            self.seen.begin()
            self._pass += 1
            self.seen.__enter__()  # type: ignore[no-untyped-call]
        self.seen.stack.append(name)

    def _leave(self, outputs: Any) -> None:
        self.seen.stack.pop()
        if not self.seen.stack:
            self.seen.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self.seen.end(outputs)

    def _note(self, name: str, outputs: Any) -> None:
        values = _first(outputs)
        if values is None:
            return
        note = self._fresh(name)
        note.sizes.append(_norm(values) / values.numel() ** 0.5)
        if values.requires_grad:
            values.register_hook(_Gradient(note.gradients, len(note.sizes)))

    def _fresh(self, name: str) -> "_Noted":
        self.order.setdefault(name)
        note = self._noted.get(name)
        if note is None or note.number != self._pass:
            note = self._noted[name] = _Noted(self._pass)
        return note


def clean(name: str) -> str:
    """Return the name of a module or weight without what ``torch.compile`` adds to it.

    >>> clean("_orig_mod.0.weight")
    '0.weight'
    """
    return ".".join(part for part in name.split(".") if part != COMPILED)


def _place(name: str, module: nn.Module) -> str:
    return name or type(module).__name__


def _open_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """List all modules outside of compiled ones: a hook inside would be compiled too."""
    closed: list[str] = []
    for name, module in model.named_modules():
        if COMPILED in module._modules:
            closed.append(f"{name}." if name else "")
        elif not any(name.startswith(prefix) for prefix in closed):
            yield name, module


def _first(outputs: Any) -> Tensor | None:
    """Return the first tensor of real numbers among some outputs."""
    if isinstance(outputs, Tensor):
        return outputs if outputs.is_floating_point() and outputs.numel() else None
    parts = outputs.values() if isinstance(outputs, Mapping) else outputs
    if not isinstance(outputs, Mapping | tuple | list):
        return None
    return next((part for part in map(_first, parts) if part is not None), None)


def _norm(values: Tensor, axes: list[int] | None = None) -> Tensor:
    """Return the norm in double precision where there is one: exploding gradients overflow else."""
    dtype = torch.float32 if values.device.type == "mps" else torch.float64
    norm: Tensor = torch.linalg.vector_norm(values.detach(), dim=axes, dtype=dtype)
    return norm


@dataclasses.dataclass
class _Noted:
    """The tensors of one layer in one pass."""

    number: int
    sizes: list[Tensor] = dataclasses.field(default_factory=list)
    gradients: dict[int, Tensor] = dataclasses.field(default_factory=dict)
    times: list[Tensor] = dataclasses.field(default_factory=list)

    def tensors(self) -> list[Tensor]:
        ordered = [self.gradients[key] for key in sorted(self.gradients)]
        return [torch.stack(self.sizes).square().mean().sqrt(), *self.times[:1], *ordered]

    def told(self, values: list[Tensor]) -> Passed:
        size, *rest = values
        steps = rest.pop(0).tolist() if self.times else []
        norms = [float(value) for value in rest]
        total = sum(norm**2 for norm in norms) ** 0.5 if norms else None
        return Passed(float(size), total, tuple(steps or norms))


@dataclasses.dataclass(frozen=True)
class _Enter:
    watch: Watch
    name: str
    module: nn.Module

    def __call__(self, *_: Any) -> None:
        if self.watch.open:
            self.watch._enter(_place(self.name, self.module))


@dataclasses.dataclass(frozen=True)
class _Leave:
    watch: Watch
    name: str
    module: nn.Module

    def __call__(self, module: nn.Module, inputs: Any, outputs: Any) -> None:  # noqa: ARG002
        stack = self.watch.seen.stack
        # Whether it was entered is asked, and not whether gradients are on: that may have changed.
        if torch.compiler.is_compiling() or stack[-1:] != [_place(self.name, self.module)]:
            return
        self.watch._leave(outputs)
        if self.watch.open and next(self.module.parameters(recurse=False), None) is not None:
            self.watch._note(self.name, outputs)


@dataclasses.dataclass(frozen=True)
class _Gradient:
    """Notes the norm of the gradient that reaches the outputs of one call."""

    gradients: dict[int, Tensor]
    call: int

    def __call__(self, gradient: Tensor) -> None:
        self.gradients[self.call] = _norm(gradient)


@dataclasses.dataclass(frozen=True)
class _Sequence:
    """Lets the gradient reach the input of torch's recurrent layers, whose steps have no hooks."""

    watch: Watch
    name: str

    def __call__(self, module: nn.RNNBase, inputs: tuple[Any, ...]) -> Any:
        given = inputs[0] if inputs else None
        if (
            not self.watch.open
            or self.watch.always
            or not isinstance(given, Tensor)
            or given.ndim != 3
        ):
            return None
        open_ = given if given.requires_grad else given.detach().requires_grad_()
        axis = 1 if module.batch_first else 0
        times = self.watch._fresh(self.name).times

        def note(gradient: Tensor) -> None:
            others = [k for k in range(3) if k != axis]
            times.append(_norm(gradient, others))

        open_.register_hook(note)
        return (open_, *inputs[1:])


@dataclasses.dataclass(frozen=True)
class _Again:
    """Calls what was compiled once more as it was, to see its activations."""

    watch: Watch
    name: str
    module: nn.Module

    def __call__(self, _: nn.Module, inputs: Any, named: Any) -> None:
        if not torch.is_grad_enabled():
            return
        inner, watch = getattr(self.module, COMPILED), self.watch
        with preserved(inner, weights=False), torch.no_grad(), Watch(inner, always=True) as other:
            other.seen = watch.seen
            inner(*inputs, **named)
        for name, note in other._noted.items():
            place = f"{self.name}.{name}".strip(".")
            watch.order.setdefault(place)
            watch._noted[place] = note
