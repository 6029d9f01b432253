"""Purity: leave a model and all random state as they were, also after an exception."""

import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_TABLES = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_parameters",
    "_buffers",
    "_modules",
)


@contextlib.contextmanager
def same_environment() -> Iterator[None]:
    """Remove the environment variables that torch sets when an optimizer is first used.

    Programs started later would inherit them, among them the folder of torch's compiler.

    >>> with same_environment():
    ...     os.environ["TORCH_EXAMPLE"] = "1"
    >>> "TORCH_EXAMPLE" in os.environ
    False
    """
    before = set(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - before:
            if name.startswith("TORCH"):
                del os.environ[name]


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run with every global generator set from ``seed``; restore their states afterwards.

    >>> with seeded(3):
    ...     first = torch.rand(1)
    >>> with seeded(3):
    ...     print(torch.equal(torch.rand(1), first))
    True
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  (this is the state to protect)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            # torch.manual_seed formats a stack trace for GPUs that are not there.
            (torch if torch.cuda.is_available() else torch.default_generator).manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextlib.contextmanager
def preserved(model: nn.Module, *, seed: int = 0, weights: bool = True) -> Iterator[None]:
    """Restore the model at the end: modes, gradients, buffers, weights, hooks.

    Args:
        model: Anything may be done to it inside.
        seed: For the global generators, whose states are restored too.
        weights: False skips the copy of the parameters, for a huge model.
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    tables = [{name: dict(getattr(module, name, {})) for name in _TABLES} for module in modules]
    tensors = _saved(model, weights)
    parameters = [
        (p, p.requires_grad, p.grad, None if p.grad is None else p.grad.clone())
        for p in model.parameters()
    ]
    try:
        with seeded(seed):
            yield
    finally:
        for module, mode, kept in zip(modules, modes, tables, strict=True):
            module.training = mode
            _restore_tables(module, kept)
        for parameter, wanted, grad, copy in parameters:
            parameter.requires_grad_(wanted)
            parameter.grad = grad
            if grad is not None and copy is not None and not torch.equal(grad, copy):
                grad.copy_(copy)
        _put_back(tensors)


def _saved(model: nn.Module, weights: bool) -> list[tuple[Tensor, Tensor]]:
    kept = list(model.buffers()) + (list(model.parameters()) if weights else [])
    return [(tensor, tensor.detach().clone()) for tensor in kept]


@torch.no_grad()
def _put_back(tensors: list[tuple[Tensor, Tensor]]) -> None:
    for tensor, copy in tensors:
        # Writing only what changed keeps the version counters, and with them a subject's caches.
        if not _same(tensor, copy):
            tensor.copy_(copy)


def _same(left: Tensor, right: Tensor) -> bool:
    if torch.equal(left, right):  # much faster, and nearly always so
        return True
    both_nan = (left != left) & (right != right)
    return bool(((left == right) | both_nan).all())


def _restore_tables(module: nn.Module, kept: dict[str, dict[Any, Any]]) -> None:
    for name, entries in kept.items():
        current = getattr(module, name, None)
        if current is not None and [*map(id, current.values())] != [*map(id, entries.values())]:
            current.clear()
            current.update(entries)


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode without gradients; restore every module's own mode.

    >>> model = nn.Dropout(0.5)
    >>> with evaluating(model):
    ...     model.training
    False
    >>> model.training
    True
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
