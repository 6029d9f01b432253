"""Products with the Hessian and the Gauss–Newton matrix against matrices written out in float64."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from cases import CASES, LAYERED, convolution, mlp_classes
from ops.curvature.dense import brute_gauss_newton, brute_hessian
from torch import nn

from mindgap.core.errors import InputError
from mindgap.core.subject import Subject
from mindgap.ops.curvature import products
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.hessian_diagonal import exact
from mindgap.ops.curvature.products import gauss_newton_products, hessian_products


def whole(operator: products.Operator) -> torch.Tensor:
    return operator(torch.eye(operator.size).double())


@pytest.mark.parametrize("case", CASES)
class TestEveryCase:
    @pytest.mark.parametrize("chunk", [5, 1000])
    def test_hessian(self, case: str, chunk: int) -> None:
        subject = CASES[case](torch.float64)
        operator = hessian_products(FlatLoss(subject), chunk=chunk)
        expected = brute_hessian(subject)
        for _ in range(2):  # the second product reuses graphs
            assert torch.allclose(whole(operator), expected, atol=1e-12)
        assert torch.allclose(operator(expected[:1]), expected[:1] @ expected, atol=1e-12)

    @pytest.mark.parametrize("chunk", [5, 1000])
    def test_gauss_newton(self, case: str, chunk: int) -> None:
        subject = CASES[case](torch.float64)
        found = whole(gauss_newton_products(FlatLoss(subject), chunk=chunk))
        assert torch.allclose(found, brute_gauss_newton(subject), atol=1e-12)
        assert torch.linalg.eigvalsh(found)[0] > -1e-12

    def test_single_precision_is_close(self, case: str) -> None:
        for make in (hessian_products, gauss_newton_products):
            single, double = (
                whole(make(FlatLoss(CASES[case](d)))) for d in (torch.float32, torch.float64)
            )
            assert torch.allclose(single, double, atol=1e-5)


class TestHessianProducts:
    @pytest.mark.parametrize("held", [0, 20_000, 2**29])
    def test_what_is_kept_changes_nothing(self, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(products, "HELD", held)
        subject = convolution(torch.float64)
        operator = hessian_products(FlatLoss(subject), chunk=7)
        for _ in range(3):
            assert torch.allclose(whole(operator), brute_hessian(subject), atol=1e-12)

    @pytest.mark.parametrize("held", [0, 2**29])
    def test_graphs_are_freed(self, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """A graph whose tensors are counted must not keep itself alive."""
        monkeypatch.setattr(products, "HELD", held)
        subject, alive = convolution(torch.float64), list[weakref.ref[torch.Tensor]]()
        for module in subject.model.modules():
            if isinstance(module, nn.ReLU):
                module.register_forward_hook(lambda _, x, y: alive.append(weakref.ref(y)))
        operator = hessian_products(FlatLoss(subject), chunk=7)
        whole(operator)
        del operator
        gc.collect()
        assert alive
        assert not any(one() is not None for one in alive)

    def test_large_graphs_make_small_chunks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        subject = convolution(torch.float64)
        seen = list[int]()
        subject.model.register_forward_hook(lambda _, x, y: seen.append(len(y)))
        operator = hessian_products(FlatLoss(subject), chunk=30)
        whole(operator)
        assert max(seen) == 30
        monkeypatch.setattr(products, "HELD", 100_000)
        seen.clear()
        found = whole(hessian_products(FlatLoss(subject), chunk=30))
        assert max(seen) < 30
        assert torch.allclose(found, brute_hessian(subject), atol=1e-12)

    def test_some_layers(self) -> None:
        subject = convolution(torch.float64)
        everything = FlatLoss(subject)
        mask = torch.cat([
            torch.full((size,), name.startswith("head"))
            for name, size in zip(everything.named, everything.sizes, strict=True)
        ])  # fmt: skip
        expected = brute_hessian(subject)[mask][:, mask]
        flat = FlatLoss(subject, only=["head"])
        assert torch.allclose(whole(hessian_products(flat)), expected, atol=1e-12)
        assert list(FlatLoss(subject, only=["head.2.bias"]).named) == ["head.2.bias"]
        with pytest.raises(InputError, match=r"only must name trained weights .* got 'hea'"):
            FlatLoss(subject, only=["hea"])

    def test_elsewhere_than_at_the_weights(self) -> None:
        subject = mlp_classes(torch.float64)
        flat = FlatLoss(subject)
        moved = copy.deepcopy(subject.model)
        nn.utils.vector_to_parameters(flat.point + 0.3, moved.parameters())
        expected = brute_hessian(Subject(moved, subject.loss, subject.train))
        assert torch.allclose(whole(hessian_products(flat, flat.point + 0.3)), expected, atol=1e-12)

    def test_attention_has_second_derivatives(self) -> None:
        class Attention(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.mix, self.out = nn.Linear(3, 9), nn.Linear(3, 2)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                q, k, v = self.mix(x)[:, None].chunk(3, dim=-1)
                return self.out(F.scaled_dot_product_attention(q, k, v)[:, 0].mean(1))

        x = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        subject = Subject(Attention().double(), "cross_entropy", (x, torch.arange(6) % 2))
        found = whole(hessian_products(FlatLoss(subject)))
        assert torch.allclose(found, found.T, atol=1e-12)
        assert found.abs().max() > 1e-3

    def test_a_transformer_has_them_for_many_weights_at_once(self) -> None:
        layer = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
        model = nn.Sequential(layer, nn.Flatten(), nn.Linear(8, 2)).double()
        x = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        flat = FlatLoss(Subject(model, "cross_entropy", (x, torch.tensor([0, 1, 0]))))
        (batch,) = flat.batches()
        points = flat.point.repeat(2, 1).requires_grad_()
        model.eval()  # in which torch takes a fused kernel without derivatives
        losses = torch.vmap(lambda point: flat.sum(point, batch))(points)
        (slopes,) = torch.autograd.grad(losses.sum(), points)
        assert torch.allclose(slopes[1] / flat.samples, flat.gradient(flat.point))
        assert exact(flat, flat.point).isfinite().all()

    def test_a_linear_loss_has_none(self) -> None:
        model = nn.Linear(2, 1)
        subject = Subject(
            model,
            lambda output, _: output.squeeze(1),
            (torch.eye(2), torch.zeros(2, 1)),
            task="regression",
        )
        assert not whole(hessian_products(FlatLoss(subject))).any()

    def test_the_model_is_left_alone(self) -> None:
        subject = convolution(torch.float32)
        subject.model.train()
        before = copy.deepcopy(subject.model.state_dict())
        whole(hessian_products(FlatLoss(subject)))
        whole(gauss_newton_products(FlatLoss(subject)))
        after = subject.model.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert all(module.training for module in subject.model.modules())
        assert all(p.grad is None for p in subject.model.parameters())


class Noisy(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(super().forward(x))  # also in evaluation mode


class Normalized(nn.Sequential):
    """Statistics of the batch also in evaluation mode."""


@pytest.mark.parametrize("make", [hessian_products, gauss_newton_products])
class TestRefusals:
    def test_random_outputs(self, make: object) -> None:
        x = torch.randn(20, 4)
        with pytest.raises(InputError, match=r"other outputs when asked again\. Switch dropout"):
            make(FlatLoss(Subject(Noisy(4, 3), "cross_entropy", (x, torch.arange(20) % 3))))

    def test_statistics_of_the_batch(self, make: object) -> None:
        x = torch.randn(20, 4)
        net = Normalized(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False))
        with pytest.raises(InputError, match="running statistics"):
            make(FlatLoss(Subject(net, "cross_entropy", (x, torch.arange(20) % 3))))

    def test_dropout_layers_are_off(self, make: object) -> None:
        subject = mlp_classes(torch.float64)
        net = nn.Sequential(subject.model, nn.Dropout(0.5)).train()
        other = Subject(net, subject.loss, subject.train)
        expected = whole(make(FlatLoss(subject)))
        assert torch.equal(whole(make(FlatLoss(other))), expected)


def test_relu_networks_have_the_diagonal_of_gauss_newton() -> None:
    for case in LAYERED:
        flat = FlatLoss(CASES[case](torch.float64))
        pair = [whole(make(flat)).diag() for make in (hessian_products, gauss_newton_products)]
        assert torch.allclose(*pair, atol=1e-12)
