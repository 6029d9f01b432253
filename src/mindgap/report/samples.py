"""The hardest samples: those with the largest loss, as pictures, numbers or tokens."""

from __future__ import annotations

import base64
import struct
import zlib

import torch
from torch import Tensor

from mindgap.core.split import Inputs
from mindgap.core.subject import Subject, Which
from mindgap.report import wording
from mindgap.report.parts import Sample

MOST_VALUES = 12  # a row that a reader can still take in
LARGEST_SIDE = 160  # pixels; a larger picture is thinned, for two dozen of them travel inside the page


def hardest(subject: Subject, count: int) -> tuple[Sample, ...]:
    """The ``count`` samples with the largest loss, of the test data if there are any."""
    which: Which = "train" if subject.test is None else "test"
    losses = subject.losses(which)
    order = losses.argsort(descending=True)[:count].cpu()
    if len(order) == 0:
        return ()
    shown = shown_inputs(subject.split(which).take(order).inputs)
    pictures = as_pictures(shown)
    return tuple(
        Sample(
            index=place,
            which=which,
            loss=float(losses[place]),
            target=label(subject, subject.targets(which)[place]),
            prediction=label(subject, subject.predictions(which)[place]),
            confidence=_confidence(subject, which, place),
            picture=pictures[k] if pictures else "",
            values=() if pictures else _row(shown[k]),
            more=0 if pictures else max(shown[k].numel() - MOST_VALUES, 0),
        )
        for k, place in enumerate(order.tolist())
    )


def shown_inputs(inputs: Inputs) -> Tensor:
    """The tensor to show where a model takes several: token numbers, or the first."""
    if isinstance(inputs, dict):
        return inputs["input_ids"] if "input_ids" in inputs else next(iter(inputs.values()))
    return inputs[0]


def label(subject: Subject, value: Tensor) -> str:
    """A target or prediction in words."""
    if subject.task == "classification":
        return class_name(subject.classes, int(value))
    if subject.task == "multilabel":
        chosen = value.flatten().nonzero().flatten().tolist()
        return ", ".join(class_name(subject.classes, k) for k in chosen) or "none"
    return ", ".join(wording.number(float(item)) for item in value.flatten()[:MOST_VALUES])


def class_name(classes: tuple[str, ...], place: int) -> str:
    """The class's name, or its number where it has none."""
    return str(classes[place]) if place < len(classes) else str(place)


def _confidence(subject: Subject, which: Which, place: int) -> float | None:
    if subject.task != "classification":
        return None
    return float(subject.outputs(which)[place].double().softmax(0).max())


def _row(value: Tensor) -> tuple[str, ...]:
    first = value.flatten()[:MOST_VALUES].tolist()
    return tuple(wording.number(item, 3) if isinstance(item, float) else str(item) for item in first)


def as_pictures(inputs: Tensor) -> list[str]:
    """PNG data addresses of inputs of shape (n, 1 or 3, h, w); an empty list for any other shape."""
    if inputs.ndim != 4 or inputs.shape[1] not in (1, 3) or min(inputs.shape[2:]) < 2:
        return []
    thin = max(-(-max(inputs.shape[2:]) // LARGEST_SIDE), 1)
    pixels = _bytes(inputs.detach().cpu()[:, :, ::thin, ::thin])
    return [f"data:image/png;base64,{base64.b64encode(png(picture)).decode()}" for picture in pixels]


def _bytes(inputs: Tensor) -> Tensor:
    """Pixels from 0 to 255: as they are if they look like it, else stretched over the range of the batch."""
    if inputs.dtype == torch.uint8:
        return inputs
    values = inputs.double()
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= 0 and 1 < high <= 255 and bool((values == values.round()).all()):
        low, high = 0.0, 255.0
    return ((values - low) / max(high - low, 1e-12) * 255).round().to(torch.uint8)


def png(pixels: Tensor) -> bytes:
    """A PNG file of uint8 pixels of shape (1, h, w), grey, or (3, h, w), colour.

    >>> png(torch.zeros(1, 2, 2, dtype=torch.uint8))[1:4]
    b'PNG'
    """
    channels, height, width = pixels.shape
    rows = pixels.permute(1, 2, 0).reshape(height, width * channels)
    filtered = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), rows], 1)  # filter 0 in front of every row
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    body = zlib.compress(filtered.numpy().tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
