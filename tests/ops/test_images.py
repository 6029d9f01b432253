"""Shapes that are images."""

from __future__ import annotations

import pytest
import torch

from mindgap.ops.images import as_images, channels_first


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
