"""Shapes that are images, and images as PNG data addresses."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from mindgap.ops.images import LARGEST_SIDE, as_images, channels_first, png


@pytest.mark.parametrize("shape", [(2, 6, 7), (2, 6, 7, 1), (2, 1, 6, 7)])
def test_gray_images_of_every_layout_are_the_same(shape: tuple[int, ...]) -> None:
    pixels = torch.arange(2 * 6 * 7, dtype=torch.uint8).reshape(2, 6, 7)
    assert as_images(channels_first(pixels.reshape(shape))) == as_images(pixels[:, None])


def test_channels_that_stand_last_are_brought_to_the_front() -> None:
    pixels = torch.randint(
        0, 256, (2, 5, 7, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    assert as_images(channels_first(pixels)) == as_images(pixels.permute(0, 3, 1, 2))


@pytest.mark.parametrize("shape", [(4, 9), (4, 2, 5, 6), (4, 5, 6, 4)])
def test_other_shapes_stay(shape: tuple[int, ...]) -> None:
    assert channels_first(torch.zeros(shape)).shape == shape
    assert as_images(channels_first(torch.zeros(shape))) == []


def opened(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,"))))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_holds_the_pixels(channels: int) -> None:
    pixels = torch.randint(
        0, 256, (channels, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    image = Image.open(io.BytesIO(png(pixels)))
    read = torch.from_numpy(np.array(image)).reshape(5, 7, channels).permute(2, 0, 1)
    assert image.size == (7, 5)
    assert torch.equal(read, pixels)


def test_pixels_from_zero_to_one_keep_their_brightness() -> None:
    (address,) = as_images(torch.full((1, 1, 4, 4), 0.5))
    assert opened(address).getpixel((0, 0)) == 128


def test_standardized_pixels_are_stretched() -> None:
    image = opened(as_images(torch.tensor([-2.0, 2.0, 0.0, 0.0]).reshape(1, 1, 2, 2))[0])
    assert [image.getpixel((x, 0)) for x in (0, 1)] == [0, 255]


def test_whole_numbers_up_to_255_are_bytes() -> None:
    assert opened(as_images(torch.full((1, 1, 2, 2), 200.0))[0]).getpixel((0, 0)) == 200


def test_large_images_are_thinned() -> None:
    assert max(opened(as_images(torch.rand(1, 3, 400, 300))[0]).size) <= LARGEST_SIDE


@pytest.mark.parametrize("shape", [(2, 8), (2, 4, 8, 8), (2, 8, 8), (2, 3, 1, 8)])
def test_other_shapes_are_no_images(shape: tuple[int, ...]) -> None:
    assert as_images(torch.zeros(shape)) == []


def test_no_inputs_give_no_images() -> None:
    assert as_images(torch.zeros(0, 1, 8, 8)) == []
