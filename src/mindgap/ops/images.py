"""Images as PNG data URLs, which a page or a JSON file can embed, without another package."""

import base64
import struct
import zlib

import torch
from torch import Tensor

LARGEST_SIDE = 160  # pixels; larger images are thinned, because a page embeds two dozen of them
CHANNELS = (1, 3)  # gray, or red, green and blue


def as_images(inputs: Tensor) -> list[str]:
    """Convert inputs of shape (n, 1 or 3, h, w) to PNG data URLs; other shapes give none.

    >>> [image[:22] for image in as_images(torch.zeros(1, 3, 8, 8))], as_images(torch.zeros(2, 5))
    (['data:image/png;base64,'], [])
    """
    if not inputs.numel() or inputs.ndim != 4 or inputs.shape[1] not in CHANNELS:
        return []
    if min(inputs.shape[2:]) < 2:
        return []
    thin = max(-(-max(inputs.shape[2:]) // LARGEST_SIDE), 1)
    pixels = _bytes(inputs.detach().cpu()[:, :, ::thin, ::thin])
    return [f"data:image/png;base64,{base64.b64encode(png(image)).decode()}" for image in pixels]


def channels_first(inputs: Tensor) -> Tensor:
    """Reshape inputs (n, h, w) or (n, h, w, c) to (n, c, h, w); other shapes stay as they are.

    >>> channels_first(torch.zeros(5, 8, 9)).shape, channels_first(torch.zeros(5, 8, 9, 3)).shape
    (torch.Size([5, 1, 8, 9]), torch.Size([5, 3, 8, 9]))
    """
    if inputs.ndim == 3:
        return inputs[:, None]
    last = inputs.ndim == 4 and inputs.shape[1] not in CHANNELS and inputs.shape[3] in CHANNELS
    return inputs.permute(0, 3, 1, 2) if last else inputs


def _bytes(inputs: Tensor) -> Tensor:
    """Convert to 0…255: keep values in [0, 1] or [0, 255] to scale, stretch any other range."""
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
    """Encode uint8 pixels of shape (1, h, w), gray, or (3, h, w), color, as a PNG file.

    >>> png(torch.zeros(1, 2, 2, dtype=torch.uint8))[1:4]
    b'PNG'
    """
    channels, height, width = pixels.shape
    rows = pixels.permute(1, 2, 0).reshape(height, width * channels)
    no_filter = torch.zeros(height, 1, dtype=torch.uint8)  # PNG wants a filter type before each row
    filtered = torch.cat([no_filter, rows], 1)
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    body = zlib.compress(filtered.numpy().tobytes(), 9)
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
