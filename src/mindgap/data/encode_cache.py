"""Features on disk, so that a big encoder reads a text once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mindgap.core.files import write_whole
from mindgap.data.damage import reading
from mindgap.data.download import taking_turns, writing
from mindgap.data.store import cache_folder


def remembered(
    encoder: str, settings: Mapping[str, Any], items: Sequence[Sequence[str]], make: Callable[[], Tensor]
) -> Tensor:
    """What ``make`` gives, kept under a key of the encoder's hash, the settings and the texts.

    Processes that want the same features take turns, so that one of them makes and the others read.
    """
    path = cache_folder() / "features" / f"{feature_key(encoder, settings, items)}.npy"
    with writing(path), taking_turns(path):
        if not path.exists():
            write_whole(path, lambda file: np.save(file, make().numpy(), allow_pickle=False))
    with reading(path, "a table of features"):
        return torch.from_numpy(np.load(path, allow_pickle=False))


def feature_key(encoder: str, settings: Mapping[str, Any], items: Sequence[Sequence[str]]) -> str:
    """A hash that differs if the encoder, a setting, a text or the order of the texts does.

    >>> feature_key("e", {}, [("a b",)]) == feature_key("e", {}, [("a", "b")])
    False
    """
    words = json.dumps([encoder, sorted(settings.items()), [list(item) for item in items]])
    return hashlib.sha256(words.encode()).hexdigest()[:32]
