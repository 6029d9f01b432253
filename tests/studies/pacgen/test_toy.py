"""The toy network of Figure 1: its outputs, samples, bound and scores."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from mindgap.ops.pac_bayes.hessian import lemma3
from mindgap.studies.pacgen.calculus import derivatives
from mindgap.studies.pacgen.toy import DELTA, ETA, Toy, bound8, noisy_loss, scores


def network(toy: Toy, place: Tensor) -> nn.Sequential:
    """The same network, plainly: one linear layer used five times."""
    layer = nn.Linear(2, 2, bias=False).double()
    matrix = torch.diag(toy.fixed)
    matrix[0, 1], matrix[1, 0] = place
    layer.weight = nn.Parameter(matrix)
    return nn.Sequential(*(part for _ in range(4) for part in (layer, nn.Sigmoid())), layer)


def test_the_toy_is_a_five_layer_network_with_one_matrix() -> None:
    toy = Toy.draw(50, seed=3)
    places = 5 * torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss, error = toy.losses(places), toy.error(places)
    for k, place in enumerate(places):
        logits = network(toy, place)(toy.inputs).detach()
        assert float(loss[k]) == pytest.approx(
            float(nn.functional.cross_entropy(logits, toy.labels)), rel=1e-8
        )
        wrong = logits.argmax(1) != toy.labels
        assert float(error[k]) == pytest.approx(float(wrong.double().mean()))


def test_samples_are_seeded_and_come_from_three_clusters() -> None:
    toy, truth = Toy.draw(100, seed=1), Toy.draw(100, seed=1).fresh(30_000, seed=5)
    assert torch.equal(toy.inputs, Toy.draw(100, seed=1).inputs)
    assert not torch.equal(toy.inputs[:50], truth.inputs[:50])
    assert float(truth.labels.double().mean()) == pytest.approx(1 / 3, abs=0.01)
    assert torch.allclose(truth.inputs[truth.labels == 1].mean(0), toy.means[2], atol=0.03)
    assert torch.allclose(truth.inputs[truth.labels == 0].mean(0), toy.means[:2].mean(0), atol=0.1)


def test_the_bound_is_lemma_3_where_that_applies() -> None:
    weights = torch.tensor([[2.0, -5.0], [0.3, 9.0]], dtype=torch.float64)
    bend, rho = (
        torch.tensor([[3.0, 0.2], [0.0, 40.0]], dtype=torch.float64),
        torch.tensor([0.5, 20.0]).double(),
    )
    found = bound8(torch.tensor([0.2, 0.4], dtype=torch.float64), weights, bend, rho, samples=100)
    for k, loss in enumerate((0.2, 0.4)):
        radius = 0.1 * weights[k].abs() + 0.1
        limit = weights[k].abs() + radius
        same = {"lipschitz": float(rho[k]), "eta": ETA, "samples": 100, "delta": DELTA}
        wanted = lemma3(loss, weights[k], bend[k], radius, limit, **same)
        assert float(found.bound[k]) == pytest.approx(wanted.bound, rel=1e-9)
        assert torch.allclose(found.scales[k], wanted.scales)


def test_noise_has_its_largest_width_where_the_curvature_is_negative() -> None:
    weights = torch.tensor([[2.0, -5.0]], dtype=torch.float64)
    found = bound8(torch.zeros(1), weights, torch.full((1, 2), -9.0), torch.zeros(1), samples=100)
    assert found.scales.tolist() == [pytest.approx([0.3, 0.6])]


def test_scores_are_the_papers_formulas() -> None:
    toy = Toy.draw(100, seed=3)
    places = torch.tensor([[4.0, -3.0], [10.0, 1.0]], dtype=torch.float64)
    found = scores(toy, places, toy.fresh(1000, 7))
    for row, place in zip(found, places, strict=True):
        assert row["rho"] > 0
        diagonal = derivatives(toy.loss, place[None]).diagonal[0]
        radius = 0.1 * place.abs() + 0.1
        psi = 0.0
        for weight, bend, kappa in zip(
            place.tolist(), diagonal.tolist(), radius.tolist(), strict=True
        ):
            root = math.sqrt(max(0.0, bend + row["rho"] * math.sqrt(2) * kappa))
            psi += math.log((abs(weight) + kappa) * max(root, 1 / kappa))
        assert row["psi"] == pytest.approx(psi)
        assert row["psi"] >= row["psi_without_rho"] >= row["null"]
        assert row["gap"] == pytest.approx(row["risk"] - row["loss"])
        assert row["trace"] == pytest.approx(float(diagonal.sum()))


def test_rho_bounds_the_change_of_the_hessian_nearby() -> None:
    toy, place = Toy.draw(100, seed=4), torch.tensor([[6.0, -4.0]], dtype=torch.float64)
    rho = scores(toy, place, toy)[0]["rho"]
    step = (
        torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    )
    step *= 0.1 * place.abs() + 0.1
    change = derivatives(toy.loss, place + step).hessian - derivatives(toy.loss, place).hessian
    assert float((torch.linalg.matrix_norm(change, 2) / step.norm(dim=1)).max()) <= rho * 1.02


def test_the_noisy_loss_is_an_average() -> None:
    toy = Toy.draw(100, seed=4)
    places, scales = torch.tensor([[6.0, -4.0]]).double(), torch.tensor([[0.3, 0.2]]).double()
    noise = (
        torch.rand(20_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
        - 1
    )
    values = toy.losses(places + noise * scales)
    error = float(values.std()) / math.sqrt(len(values))
    assert float(noisy_loss(toy, places, scales)) == pytest.approx(
        float(values.mean()), abs=5 * error
    )
