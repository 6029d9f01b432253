"""The study of good data sets: its divisions, and what its table says."""

from __future__ import annotations

import torch

from mindgap.core import Trial
from mindgap.studies import GoodDataSet


def test_wrong_labels_are_where_they_should_be() -> None:
    study = GoodDataSet()
    plain, training, both = (
        study._data(Trial(parameters={"size": 250, "noise": noise, "where": where}, seed=1))
        for noise, where in ((0.0, "nowhere"), (0.5, "training"), (0.5, "both"))
    )
    assert len(plain[0][0]) == 250
    wrong = [
        float((one[k][1].argmax(1) != plain[k][1].argmax(1)).float().mean())
        for one in (training, both)
        for k in (0, 1)
    ]
    assert wrong == [0.5, 0.0, 0.5, 0.5]
    rows = torch.cat([plain[0][0], plain[1][0]]).flatten(1)
    assert len(rows.unique(dim=0)) == len(rows)  # no sample is on both sides
