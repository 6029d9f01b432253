"""Proposals: weights, candidates and draws, against integrals and closed forms."""

import numpy as np
import pytest
import torch

from mindgap.sampling import Box, Proposal
from mindgap.sampling.proposal import carried, cell_shares, drawn


def test_draws_follow_the_tempered_and_capped_values() -> None:
    """Candidates in proportion to the weights: counted in slices, against the integral."""
    domain = Box(0, 1)
    whole = Proposal(kind="exact", temper=1.0, cap=1.0, pool=200)
    random = torch.Generator().manual_seed(0)
    found = whole.points(
        4000, domain, torch.zeros(1, 1), torch.ones(1), lambda x: x[:, 0] ** 2, random
    )[:, 0]
    share = torch.histc(found, 5, 0, 1) / 4000
    expected = torch.tensor([(k + 1) ** 3 - k**3 for k in range(5)]) / 125
    assert float((share - expected).abs().max()) < 0.02
    half = Proposal(kind="exact", temper=0.5, cap=1.0, pool=200)
    found = half.points(
        4000, domain, torch.zeros(1, 1), torch.ones(1), lambda x: x[:, 0] ** 2, random
    )[:, 0]
    expected = torch.tensor([(k + 1) ** 2 - k**2 for k in range(5)]) / 25
    assert float((torch.histc(found, 5, 0, 1) / 4000 - expected).abs().max()) < 0.02


def test_weights_are_capped_and_never_all_zero() -> None:
    values = torch.cat([torch.ones(99), torch.tensor([1e9])])
    assert Proposal(cap=0.99, temper=1).weights(values).tolist() == [1.0] * 100
    assert Proposal(cap=1, temper=1).weights(values)[0] == pytest.approx(1e-9)
    assert Proposal().weights(torch.zeros(5)).tolist() == [1.0] * 5
    spike = torch.cat([torch.zeros(999), torch.ones(1)])
    assert Proposal(cap=0.9).weights(spike).sum() == 1  # the cap is zero, the spike is not
    assert Proposal().weights(torch.tensor([1.0, float("nan"), float("inf")])).tolist() == [
        1.0,
        0.0,
        0.0,
    ]


def test_weights_are_carried_to_candidates() -> None:
    known = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    weights = torch.tensor([0.0, 1.0], dtype=torch.float64)
    found = carried(
        weights, known, torch.tensor([[0.0], [0.5], [1.0], [0.9]], dtype=torch.float64), Box(0, 1)
    )
    assert found.tolist() == pytest.approx([0.0, 0.5, 1.0, 0.81 / 0.82], abs=1e-12)


def test_draws_without_replacement_have_the_right_first_choice() -> None:
    random = torch.Generator().manual_seed(0)
    weights = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    first = [int(drawn(weights, 1, random)) for _ in range(2000)]
    assert 0 not in first
    assert np.mean([place == 2 for place in first]) == pytest.approx(0.75, abs=0.04)
    assert sorted(drawn(weights, 3, random).tolist()) == [0, 1, 2]


def test_the_number_of_components_can_be_left_to_bic() -> None:
    points = torch.linspace(0, 1, 200, dtype=torch.float64)[:, None]
    weights = torch.exp(-((points[:, 0] - 0.2) ** 2) / 2e-3) + torch.exp(
        -((points[:, 0] - 0.8) ** 2) / 2e-3
    )
    found = Proposal(kind="mixture", components=0).mixture(points, weights, seed=0)
    assert found.components == 2
    assert sorted(found.means[:, 0].tolist()) == pytest.approx([0.2, 0.8], abs=0.02)
    one = Proposal(kind="mixture", components=0).mixture(
        points[:1].repeat(3, 1) + torch.eye(3)[:, :1], weights[:3], 0
    )
    assert one.components <= 2


def test_cells_share_the_domain() -> None:
    known = torch.tensor([[0.0], [0.1], [1.0]], dtype=torch.float64)
    found = cell_shares(known, Box(0, 1), torch.Generator().manual_seed(0), each=20_000)
    assert (found / 3).tolist() == pytest.approx([0.05, 0.5, 0.45], abs=0.01)
