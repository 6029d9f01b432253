"""The recipes of the studies: splits share no sample, and images are small."""

from __future__ import annotations

import torch

from mindgap.data import load
from mindgap.studies.improve.recipes import SIDE, Sizes, _small, plain_recipe


def test_splits_share_no_sample_and_images_are_small() -> None:
    recipe = plain_recipe(load("digits"), Sizes(200, 100, 8, 2), 0)
    rows = [{tuple(row.tolist()) for row in part[0]} for part in (recipe.train, recipe.test)]
    assert (len(rows[0]), len(rows[1])) == (200, 100)
    assert not rows[0] & rows[1]
    assert _small(torch.zeros(2, 3, 32, 32)).shape == (2, 3 * SIDE * SIDE)
