"""From bytes to pictures."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mindgap.core.arguments import integer
from mindgap.data.splits import stratified_split

Bytes = NDArray[np.uint8]


def pictures(pixels: Bytes, labels: Bytes, size: int | None, seed: int, what: str) -> tuple[Tensor, Tensor]:
    """Pictures with values in [0, 1] and labels; only ``size`` of them, every class with its share, if given.

    The choice comes before the conversion to float32, which takes four times the room.
    """
    numbers = torch.from_numpy(labels.astype(np.int64))
    if size is not None:
        integer(what, size, 1, len(labels), "the number of pictures")
        chosen = stratified_split(numbers, (size,), seed)[0]
        pixels, numbers = pixels[chosen.numpy()], numbers[chosen]
    return torch.from_numpy(pixels.astype(np.float32)).div_(255), numbers
