"""Which samples to look at: the heaviest, and the suspects that are most surely wrong."""

from __future__ import annotations

import torch

from mindgap.data import two_moons
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.ops.variance.heaviest import Cloud, look, weigh


def test_the_surest_suspects_come_first() -> None:
    """Neighbors that agree against a label say more than neighbors that differ among themselves."""
    features = torch.arange(60.0)[:, None]
    labels = torch.arange(60) // 30
    labels[[10, 28, 50]] = torch.tensor([2, 2, 2])
    weighed = weigh(VarianceWeights(7), features, labels)
    cloud = Cloud(
        features, labels, lambda value: str(int(value)), lambda places: [{}] * len(places)
    )
    found = look(cloud, VarianceWeights(7, task="classification"), weighed, 3)
    assert found.suspects == 3
    assert [heavy.index for heavy in found.doubtful] == [10, 50]
    assert found.doubtful[0].around == "0\u00a0(6)"
    assert [chart.title for chart in found.charts] == [
        "Weights of all samples",
        "The 3 heaviest",
        "Suspects",
    ]


def test_suspects_are_found_but_kept_and_weights_are_those_of_the_weigher() -> None:
    data = two_moons(150, noise=0.35)
    for noise in ("keep", "mark", "cap", "drop"):
        weigher = VarianceWeights(10, 8, noise=noise, normalize="mean")
        weighed = weigh(weigher, data.inputs, data.targets)
        assert torch.equal(
            weighed.weights, torch.from_numpy(weigher.fit(data.inputs, data.targets).weights_)
        )
        assert int(weighed.suspects.sum()) > 0
