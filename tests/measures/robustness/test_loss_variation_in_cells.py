"""Variation of the loss in cells, against a loop over all pairs."""

from __future__ import annotations

import itertools

import pytest
import torch

from mindgap import Subject
from mindgap.measures import LossVariationInCells
from mindgap.nets import MLP
from mindgap.ops.concentration import robustness_bound


def test_equals_all_pairs() -> None:
    random = torch.Generator().manual_seed(0)
    x, y = (
        torch.randn(90, 3, generator=random).double(),
        torch.randint(0, 2, (90,), generator=random),
    )
    subject = Subject(MLP((3, 4, 2)).double(), "cross_entropy", (x[:50], y[:50]), (x[50:], y[50:]))
    found = LossVariationInCells(planes=2)(subject)
    planes = torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    sides = (x @ planes > 0).tolist()
    losses = [*subject.losses("train").tolist(), *subject.losses("test").tolist()]
    wanted = max(
        abs(losses[i] - losses[j])
        for i, j in itertools.product(range(50), range(90))
        if sides[i] == sides[j] and y[i] == y[j]
    )
    assert found.value == pytest.approx(wanted, rel=1e-12)
    assert found.terms["cells"] == 8
    plugged = robustness_bound(sum(losses[:50]) / 50, wanted, 8, 50, 0.05, max(losses))
    assert found.terms["plugged_in"] == pytest.approx(plugged)


def test_finer_partitions_vary_less() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=random)
    subject = Subject(MLP((2, 8, 2)), "cross_entropy", (x, (x[:, 0] > 0).long()))
    coarse, fine = (LossVariationInCells(planes=k)(subject) for k in (0, 12))
    assert fine.terms["mean_variation"] < coarse.terms["mean_variation"]
    assert fine.terms["plugged_in"] > coarse.terms["plugged_in"]
