"""Stills as PNG: shapes where they belong, in their colors; words inside the image."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from mindgap.core import Mark, Points, Surface
from mindgap.report.figures.raster import png_of
from mindgap.report.figures.still import surface_still


def pixels(body: str, width: int = 40, height: int = 20) -> np.ndarray:
    image = Image.open(io.BytesIO(png_of(f'<svg viewBox="0 0 {width} {height}">{body}</svg>')))
    return np.asarray(image)


def test_a_polygon_is_filled() -> None:
    found = pixels('<path d="M10 5L30 5L30 15L10 15Z" fill="#102030"/>')
    assert found[10, 20].tolist() == [0x10, 0x20, 0x30]
    assert found[2, 20].tolist() == found[10, 35].tolist() == [255, 255, 255]
    inside = (found == [0x10, 0x20, 0x30]).all(-1)
    assert inside.sum() == 20 * 10


def test_lines_circles_and_inherited_style() -> None:
    found = pixels('<g stroke-width="4"><path d="M5 2V18" stroke="#f00" fill="none"/></g>')
    assert found[10, 5].tolist() == [255, 0, 0]
    assert (found[10, :, 1] == 0).sum() == 4
    disc = pixels('<circle cx="20" cy="10" r="5" fill="#00f"/>')
    assert abs((disc[..., 0] == 0).sum() - np.pi * 25) < 12


def test_words_stay_in_the_image() -> None:
    for anchor in ("start", "middle", "end"):
        found = pixels(
            f'<text x="2" y="15" text-anchor="{anchor}" fill="#000">loss</text>', width=60
        )
        assert (found < 128).any()
        assert not (found[:2] < 255).any()
    one, other = (pixels(f'<text x="2" y="15">{word}</text>') for word in ("1", "7"))
    assert (one != other).any()


def test_a_surface_with_a_path() -> None:
    axis = [-1.0, 0.0, 1.0]
    bowl = [[x * x + y * y for x in axis] for y in axis]
    path = Points(name="run", x=[-1.0, 0.0], y=[1.0, 0.0], values=[2.0, 0.0])
    plain = Surface(x=axis, y=axis, z=bowl)
    marked = Surface(x=axis, y=axis, z=bowl, paths=[path], marks=[Mark(name="m", x=0.0, y=0.0)])
    first, second = (
        np.asarray(Image.open(io.BytesIO(png_of(str(surface_still(chart))))))
        for chart in (plain, marked)
    )
    assert first.shape == (520, 760, 3)
    assert 500 < (first != second).any(-1).sum() < 20_000
