"""Fitted: what training gives back.

Checkpoints: written in one piece, read without opening a pickle of unknown origin.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import CheckpointError, Recipe, Subject, write_whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """A trained model, its curves, where it began and why it ended.

    ``stopped`` is empty when all epochs ran; ``recipe`` is the recipe after the remedies prepared
    it.
    """

    model: nn.Module
    history: tuple[Mapping[str, float], ...]
    initial: Mapping[str, Tensor]
    recipe: Recipe
    seed: int
    epochs: int
    stopped: str = ""

    @property
    def diverged(self) -> bool:
        """Whether the loss left the finite numbers."""
        return self.stopped.startswith("diverged")

    def subject(self) -> Subject:
        """The trained model with its data, ready to be examined."""
        recipe = self.recipe
        names = self.model.state_dict()
        known = all(
            name in self.initial and self.initial[name].shape == value.shape
            for name, value in names.items()
        )
        return Subject(
            self.model,
            recipe.loss,
            recipe.train,
            recipe.test,
            initial=self.initial if known else None,
            task=recipe.task,
            target=recipe.target,
            name=recipe.name,
            classes=recipe.classes,
            history=self.history,
        )


FORMAT = "mindgap-checkpoint-1"


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Write in one piece: a crash leaves the old checkpoint whole."""
    write_whole(path, lambda file: torch.save({"format": FORMAT, **content}, file))


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint with ``weights_only``; whatever is wrong with the file becomes one sentence."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"The checkpoint must be an existing file, got {str(path)!r}. Check the path."
        ) from error
    except Exception as error:  # torch raises half a dozen types for damaged or unsafe files
        raise CheckpointError(
            f"The checkpoint {str(path)!r} must be a file of plain tensors, got one that is "
            "damaged or holds code "
            f"({type(error).__name__}); it was not opened further. Delete it or pass another path."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(
            f"The checkpoint {str(path)!r} must be one that mindgap wrote ({FORMAT}), got another "
            "kind of file. "
            "Pass another path."
        )
    return content


def identity(settings: Mapping[str, Any]) -> str:
    """A hash that tells runs apart."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode()).hexdigest()[
        :16
    ]
