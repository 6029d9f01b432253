"""Checkpoints: the file of an unfinished run, and what tells one run from another."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import (
    CheckpointError,
    Loss,
    Recipe,
    Remedy,
    Split,
    Task,
    call,
    canonical,
    evaluating,
    plain,
    seeded,
    typed,
    write_whole,
)

FORMAT = "mindgap-checkpoint-2"
FEW = 64  # samples on which the untrained model and the loss answer
_PLAIN = (bool, int, float, str, type(None))
# These change how long the run is and what reports call it, not the weights after an epoch.
_FREE = ("epochs", "name", "loss", "optimizer")


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint in one piece: a crash leaves the old one complete."""
    write_whole(path, lambda file: torch.save({"format": FORMAT, **content}, file))


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint; whatever is wrong with the file becomes one sentence."""
    try:
        # A pickle runs code when it is opened. ``weights_only`` refuses all but plain tensors.
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"The checkpoint must be an existing file, got {str(path)!r}. Check the path."
        ) from error
    except Exception as error:  # torch raises half a dozen types for damaged or unsafe files
        raise CheckpointError(
            f"The checkpoint {str(path)!r} must be a file of plain tensors, got one that is "
            f"damaged or holds code ({type(error).__name__}); it was not opened further. Delete it "
            "or pass another path."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(
            f"The checkpoint {str(path)!r} must be one that this version of mindgap wrote "
            f"({FORMAT}), got another kind of file. Pass another path."
        )
    return content


def identity(
    recipe: Recipe,
    remedies: Sequence[Remedy],
    seed: int,
    *,
    model: nn.Module,
    loss: Loss,
    task: Task,
    optimizer: torch.optim.Optimizer,
    schedule: Any,
    data: Mapping[str, Split | None],
    sample_weights: Tensor | None,
) -> dict[str, Any]:
    """Describe all on which the weights and curves of a run depend, part by part.

    Args:
        recipe: The recipe after the remedies prepared it.
        remedies: The remedies that are on.
        seed: The seed of the run.
        model: The model before its first step.
        loss: The loss.
        task: The task, which decides the type of the targets.
        optimizer: The optimizer before its first step.
        schedule: The scheduler before its first step, or None.
        data: The splits by name; the first one trains the model.
        sample_weights: One factor per training sample, or None.

    Returns:
        Plain data and tensors by the name of the part, for :func:`differences`.
    """
    train = next(split for split in data.values() if split is not None)
    outputs, losses = _answers(model, loss, task, train, seed)
    free = set(_FREE) - ({"epochs"} if any(remedy.horizon for remedy in remedies) else set())
    settings = {name: value for name, value in recipe.settings.items() if name not in free}
    return {
        "seed": seed,
        **settings,
        "remedies": _text([[remedy.name, remedy.parameters] for remedy in remedies]),
        "model structure": _text(_structure(model)),
        "initial weights": _tensors_hash(model.state_dict()),
        # A forward method or a loss may change while all names and settings stay. Their answers
        # tell, and unlike a hash of the source they survive a renamed variable.
        "model's answers before training": outputs,
        "loss": _text([loss.name, _attributes(recipe.loss)]),
        "loss on the answers before training": losses,
        "optimizer": _text(_optimizer_settings(optimizer)),
        "schedule": _text(_schedule_settings(schedule)),
        **{name: _split_hash(split) for name, split in data.items()},
        "sample weights": "none" if sample_weights is None else _tensors_hash({"": sample_weights}),
    }


def differences(kept: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """Name the parts in which two identities differ, with both values if they are short.

    >>> differences({"seed": 1, "loss": "mse"}, {"seed": 2, "loss": "mse"})
    ['seed (1 there, 2 here)']
    """
    names = [name for name in own if not _same(kept.get(name), own[name])]
    return [_told(name, kept.get(name), own[name]) for name in names]


def _told(name: str, there: Any, here: Any) -> str:
    # What identity() writes as text is a hash or a long description; numbers speak for themselves.
    short = all(isinstance(value, bool | int | float) for value in (there, here))
    return f"{name} ({there} there, {here} here)" if short else name


def _same(left: Any, right: Any) -> bool:
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return bool(left == right) if type(left) is type(right) else False
    # Other kernels round otherwise, on another machine or with other threads.
    return left.shape == right.shape and torch.allclose(
        left, right, rtol=1e-4, atol=1e-6, equal_nan=True
    )


def _answers(
    model: nn.Module, loss: Loss, task: Task, train: Split, seed: int
) -> tuple[Tensor, Tensor]:
    like = next(iter(model.parameters()), torch.empty(0))
    batch = train.take(torch.arange(min(FEW, len(train))))
    with evaluating(model), seeded(seed):
        outputs = call(model, batch.inputs, like)
        losses = loss(outputs, typed(batch.target, task, like))
    return outputs.detach().cpu().clone(), losses.detach().cpu().clone()


def _structure(model: nn.Module) -> list[Any]:
    """Types, settings and hooks of all modules; dropout rates are settings, for instance."""
    return [
        [
            name,
            _type_name(module),
            module.extra_repr(),
            _attributes(module),
            [name for name, own in module.named_parameters(recurse=False) if own.requires_grad],
            [
                [_type_name(hook), getattr(hook, "__qualname__", ""), _attributes(hook)]
                for hooks in (module._forward_pre_hooks, module._forward_hooks)
                for hook in hooks.values()
            ],
        ]
        for name, module in model.named_modules()
    ]


def _attributes(value: Any) -> dict[str, Any]:
    """The numbers, texts and functions that an object holds; private names aside."""
    found = vars(value) if hasattr(value, "__dict__") else {}
    return {
        name: item
        for name, item in sorted(found.items())
        # Building a model in training mode and in evaluation mode gives the same model.
        if not name.startswith("_") and name != "training" and _is_plain(item)
    }


def _is_plain(item: Any) -> bool:
    if isinstance(item, tuple | list):
        return all(map(_is_plain, item))
    return isinstance(item, _PLAIN) or callable(item)


def _optimizer_settings(optimizer: torch.optim.Optimizer) -> list[Any]:
    groups = [
        {**group, "params": [list(p.shape) for p in group["params"]]}
        for group in optimizer.param_groups
    ]
    return [_type_name(optimizer), groups]


def _schedule_settings(schedule: Any) -> list[Any]:
    if schedule is None:
        return []
    # The state of LambdaLR leaves out the functions that decide its rates.
    return [_type_name(schedule), schedule.state_dict(), getattr(schedule, "lr_lambdas", ())]


def _text(value: Any) -> str:
    """Write JSON that is the same in every process; an address in memory is not."""
    return canonical(plain(value, fallback=_named))


def _named(value: Any) -> str:
    code = getattr(value, "__code__", None)
    if code is None:
        return getattr(value, "__qualname__", _type_name(value))
    kept = [cell.cell_contents for cell in value.__closure__ or ()]
    constants = [item for item in (*code.co_consts, *kept) if isinstance(item, _PLAIN)]
    return _text([value.__qualname__, code.co_code.hex(), code.co_names, constants])


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _split_hash(split: Split | None) -> str:
    if split is None:
        return "none"
    found = hashlib.sha256()
    for batch in split.batches(1024):
        named = batch.inputs if isinstance(batch.inputs, dict) else dict(enumerate(batch.inputs))
        found.update(_tensors_hash({**named, "target": batch.target}).encode())
    return found.hexdigest()[:16]


def _tensors_hash(tensors: Mapping[Any, Tensor]) -> str:
    """Hash names, types, shapes and bits."""
    found = hashlib.sha256()
    for name, tensor in tensors.items():
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        bits = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        found.update(bits.numpy().tobytes())
    return found.hexdigest()[:16]
