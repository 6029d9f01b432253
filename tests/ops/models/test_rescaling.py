"""Rescaled ReLU layers: the same function, another spectrum."""

from __future__ import annotations

import math

import pytest
import torch
from cases import deep_classes
from torch import nn

from mindgap.core.errors import InputError
from mindgap.core.subject import Subject
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import hessian_products
from mindgap.ops.curvature.spectrum import top_eigenpairs
from mindgap.ops.models.rescaling import rescaled


class TestRescaling:
    @pytest.mark.parametrize("factor", [1e-3, 1e3])
    def test_same_function_other_spectrum(self, factor: float) -> None:
        subject = deep_classes(torch.float64)
        for layer in (0, 1):
            other = rescaled(subject.model, factor, layer=layer)
            moved = Subject(other, subject.loss, subject.train, subject.test)
            assert torch.allclose(
                moved.outputs("train"), subject.outputs("train"), rtol=1e-9, atol=1e-12
            )
            ratio = [
                float(top_eigenpairs(hessian_products(flat)).values[0])
                for flat in (FlatLoss(moved), FlatLoss(subject))
            ]
            assert ratio[0] > 1e4 * ratio[1]  # the square of the factor, up to the other layers

    def test_convolutions_pooling_and_nested_chains(self) -> None:
        model = nn.Sequential(
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU()), nn.Flatten(), nn.Dropout(), nn.Linear(8, 3)
        ).double().eval()  # fmt: skip
        images = torch.randn(5, 1, 6, 6).double()
        assert torch.allclose(model(images), rescaled(model, 100.0)(images), rtol=1e-9)

    def test_layers_called_twice(self) -> None:
        bend, dense = nn.Tanh(), nn.Linear(2, 2)
        with pytest.raises(InputError, match="two layers with ReLU or pooling between them"):
            rescaled(nn.Sequential(nn.Linear(2, 2), bend, nn.Linear(2, 2), bend, dense), 2.0)
        relu = nn.ReLU()
        with pytest.raises(InputError, match="two layers with ReLU or pooling between them"):
            rescaled(nn.Sequential(nn.Linear(2, 2), relu, dense, relu, dense), 2.0)

    @pytest.mark.parametrize("between", [nn.Tanh(), nn.BatchNorm1d(4)])
    def test_refuses_what_does_not_commute(self, between: nn.Module) -> None:
        with pytest.raises(InputError, match="two layers with ReLU or pooling between them"):
            rescaled(nn.Sequential(nn.Linear(2, 4), between, nn.Linear(4, 2)), 2.0)

    def test_refuses_a_chain_that_runs_otherwise(self) -> None:
        class Backwards(nn.Sequential):
            def forward(self, given: torch.Tensor) -> torch.Tensor:
                return self[2](self[1](self[0](given))) + given

        with pytest.raises(InputError, match="chain of modules"):
            rescaled(Backwards(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), 2.0)

    @pytest.mark.parametrize("factor", [0.0, -1.0, math.inf, math.nan])
    def test_refuses_a_bad_factor(self, factor: float) -> None:
        with pytest.raises(InputError, match="factor must be a finite number above 0"):
            rescaled(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), factor)
