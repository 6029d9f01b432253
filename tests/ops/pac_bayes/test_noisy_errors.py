"""Errors under noise on the weights: batches, sizes of the noise and bad arguments."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from cases import convolution, mlp_classes, mlp_regression, multilabel
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.ops.pac_bayes import noisy_errors
from mindgap.ops.pac_bayes.noisy_errors import noisy_outputs, noisy_weights, perturbed_errors


class Choosy(nn.Module):
    """Looks at its values before it answers, which no batched evaluation allows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        answer = self.layer(x)
        return answer if float(answer.detach().sum()) > 0 else answer * 2


class TestPerturbation:
    @pytest.mark.parametrize("kind", ["gaussian", "uniform"])
    @pytest.mark.parametrize("case", [mlp_classes, multilabel, convolution])
    def test_does_not_depend_on_how_many_are_evaluated_at_once(
        self, case: object, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        together = perturbed_errors(case(torch.float64), 0.3, draws=7, seed=2, kind=kind)
        monkeypatch.setattr(noisy_errors, "AT_ONCE", 1)
        assert torch.equal(
            together, perturbed_errors(case(torch.float64), 0.3, draws=7, seed=2, kind=kind)
        )
        assert together.unique().numel() > 1

    def test_without_noise_it_is_the_train_error(self) -> None:
        for case in (mlp_classes, multilabel):
            subject = case(torch.float64)
            assert perturbed_errors(subject, 0.0, draws=2).tolist() == pytest.approx(
                [subject.mean_error()] * 2
            )

    def test_a_model_that_cannot_be_batched_is_evaluated_one_by_one(self) -> None:
        model = Choosy().double()
        weights = noisy_weights(model, 0.5, 6, torch.Generator().manual_seed(0))
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        found = noisy_outputs(model, weights, (x,))
        for draw in range(6):
            single = copy.deepcopy(model)
            single.load_state_dict({name: value[draw] for name, value in weights.items()})
            assert torch.equal(found[draw], single(x))

    def test_noise_has_the_size_that_was_asked_for(self) -> None:
        model = nn.Linear(50, 40)
        gaussian = (
            noisy_weights(model, 0.3, 20, torch.Generator().manual_seed(0))["weight"] - model.weight
        )
        uniform = (
            noisy_weights(model, 0.3, 20, torch.Generator().manual_seed(0), "uniform")["weight"]
            - model.weight
        )
        assert float(gaussian.detach().std()) == pytest.approx(0.3, rel=0.02)
        assert float(uniform.detach().std()) == pytest.approx(0.3 / math.sqrt(3), rel=0.02)
        assert float(uniform.detach().abs().max()) <= 0.3 * (1 + 1e-6)

    def test_is_computed_once(self) -> None:
        subject = mlp_classes(torch.float64)
        assert perturbed_errors(subject, 0.1, draws=4) is perturbed_errors(subject, 0.1, draws=4)

    def test_bad_arguments(self) -> None:
        with pytest.raises(InputError, match="got a regression"):
            perturbed_errors(mlp_regression(torch.float64), 0.1, draws=2)
        with pytest.raises(InputError, match="scale must be"):
            perturbed_errors(mlp_classes(torch.float64), -1.0, draws=2)
        with pytest.raises(InputError, match="draws must be"):
            perturbed_errors(mlp_classes(torch.float64), 0.1, draws=0)
