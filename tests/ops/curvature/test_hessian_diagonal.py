"""Hessian products and the four diagonals against the whole Hessian."""

from __future__ import annotations

import math

import pytest
import torch
from cases import CASES, LAYERED, deep_classes, loaders, mlp_classes
from ops.curvature.dense import brute_hessian

from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.hessian_diagonal import hessian_diagonal, running_squares

PIECEWISE_LINEAR = (*LAYERED, "convolution")


@pytest.mark.parametrize("case", CASES)
class TestDiagonals:
    def test_exact_and_products_equal_the_whole_hessian(self, case: str) -> None:
        subject = CASES[case](torch.float64)
        flat, whole = FlatLoss(subject), brute_hessian(subject)
        assert torch.allclose(hessian_diagonal(flat, flat.point, "exact"), whole.diag(), atol=1e-12)
        assert torch.allclose(
            flat.products(flat.point, torch.eye(len(whole)).double()), whole, atol=1e-12
        )

    def test_gauss_newton_equals_jacobians(self, case: str) -> None:
        """Σ over samples of Jᵀ S J, with J by one backward pass an output and S by torch's Hessian of the loss."""
        subject = CASES[case](torch.float64)
        flat, rows = FlatLoss(subject), []
        point = flat.point.requires_grad_()
        subject.model.eval()
        for batch in flat.batches(size=1):
            output = flat.outputs(point, batch.inputs)
            slopes = [
                torch.autograd.grad(value, point, retain_graph=True)[0] for value in output[0]
            ]
            hessian = torch.autograd.functional.hessian(
                lambda o, truth=batch.target: subject.loss(o[None], truth).sum(), output[0].detach()
            )
            jacobian = torch.stack(slopes)
            rows.append((jacobian.T @ hessian @ jacobian).diag())
        assert torch.allclose(
            hessian_diagonal(flat, flat.point), torch.stack(rows).mean(0), atol=1e-12
        )

    def test_gauss_newton_is_exact_for_piecewise_linear_outputs_only(self, case: str) -> None:
        flat = FlatLoss(CASES[case](torch.float64))
        found, wanted = (
            hessian_diagonal(flat, flat.point, kind) for kind in ("gauss-newton", "exact")
        )
        assert torch.allclose(found, wanted, atol=1e-12) == (case in PIECEWISE_LINEAR)

    def test_hutchinson_is_unbiased(self, case: str) -> None:
        flat = FlatLoss(CASES[case](torch.float64))
        wanted = hessian_diagonal(flat, flat.point, "exact")
        many = torch.stack(
            [hessian_diagonal(flat, flat.point, "hutchinson", probes=50, seed=k) for k in range(40)]
        )
        error = many.std(0) / math.sqrt(40)
        assert bool(((many.mean(0) - wanted).abs() <= 5 * error + 1e-12).all())


class TestSquaredGradients:
    def test_running_mean_follows_what_is_computed_exactly(self) -> None:
        flat = FlatLoss(mlp_classes(torch.float64))
        wanted = hessian_diagonal(flat, flat.point, "squared-gradient", batch_size=1)
        orders = [
            running_squares(flat, flat.point, batch_size=1, beta=1 - 1e-9, seed=seed)
            for seed in range(2)
        ]
        assert torch.allclose(
            orders[0], wanted, rtol=1e-5
        )  # every sample once, all with the same weight
        assert torch.allclose(orders[0], orders[1], rtol=1e-5)

    def test_running_mean_is_adams(self) -> None:
        subject = loaders(torch.float64)
        flat, model = FlatLoss(subject), subject.model.eval()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.999))
        order = torch.randperm(flat.samples, generator=torch.Generator().manual_seed(3))
        for batch in subject.train.batches(10, order):
            optimizer.zero_grad()
            subject.loss(model(*batch.inputs), batch.target).mean().backward()
            optimizer.step()
        states = [optimizer.state[p] for p in model.parameters()]
        wanted = torch.cat(
            [s["exp_avg_sq"].flatten() / (1 - 0.999 ** float(s["step"])) for s in states]
        )
        assert torch.allclose(
            running_squares(flat, flat.point, batch_size=10, seed=3), wanted, rtol=1e-9
        )

    def test_mean_over_random_batches(self) -> None:
        flat = FlatLoss(deep_classes(torch.float64))
        wanted = hessian_diagonal(flat, flat.point, "squared-gradient", batch_size=4)
        source, point = torch.Generator().manual_seed(0), flat.point.requires_grad_()
        squares = []
        for _ in range(2000):
            batch = next(flat.batches(torch.randint(0, flat.samples, (4,), generator=source)))
            squares.append(torch.autograd.grad(flat.losses(point, batch).mean(), point)[0].square())
        rows = torch.stack(squares)
        error = rows.std(0) / math.sqrt(len(rows))
        assert bool(((rows.mean(0) - wanted).abs() <= 5 * error + 1e-15).all())
