"""Theorem 2 on subjects: exact curvature, what is proved for linear models, and what is not elsewhere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from cases import deep_classes, mlp_classes, multilabel
from test_contracts import fixed_classifier
from torch import Tensor, nn
from torch.func import functional_call

from mindgap.bounds import PacBayesHessian
from mindgap.core.subject import Subject
from mindgap.ops.curvature import hessian_diagonal
from mindgap.ops.pac_bayes import hessian
from mindgap.ops.pac_bayes.hessian import theorem2, uniform_scales

FLOOR = 1e-6


def whole_hessian(subject: Subject, weights: Tensor) -> Tensor:
    """All second derivatives by one call of torch."""
    (x,), y = subject.train.inputs, subject.train.target
    sizes = [p.numel() for p in subject.model.parameters()]

    def loss(flat: Tensor) -> Tensor:
        named = zip(subject.model.named_parameters(), flat.split(sizes), strict=True)
        logits = functional_call(
            subject.model, {name: part.view_as(p) for (name, p), part in named}, (x,)
        )
        return hessian.bounded_cross_entropy(logits, y, FLOOR).mean()

    return torch.autograd.functional.hessian(loss, weights)


@pytest.mark.parametrize("case", [mlp_classes, deep_classes])
def test_diagonal_equals_that_of_the_whole_hessian(
    case: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = case(torch.float64)
    weights = hessian.flat_weights(subject.model)
    monkeypatch.setattr(hessian_diagonal, "ROWS", 7)
    found = hessian.curvature(subject, weights, FLOOR)
    assert found.diagonal.numpy() == pytest.approx(
        whole_hessian(subject, weights).diagonal().numpy(), abs=1e-12
    )
    subject.batch_size = 10
    parts = hessian.curvature(subject, weights, FLOOR)
    assert parts.diagonal.numpy() == pytest.approx(found.diagonal.numpy(), abs=1e-14)
    assert found.loss == pytest.approx(subject.mean_loss() / math.log(1 / FLOOR), rel=1e-12)


def test_third_moment_of_scores_of_norm_one() -> None:
    random = np.random.default_rng(0)
    chance = random.dirichlet(np.full(4, 0.5), size=100_000)
    scores = random.normal(size=chance.shape)
    scores /= np.linalg.norm(scores, axis=1, keepdims=True)
    centered = scores - (chance * scores).sum(1, keepdims=True)
    assert np.abs((chance * centered**3).sum(1)).max() <= hessian.THIRD
    p = (1 - 1 / math.sqrt(3)) / 2  # two classes and opposite scores reach it
    assert math.sqrt(2) ** 3 * p * (1 - p) * (1 - 2 * p) == pytest.approx(hessian.THIRD)


def test_proved_lipschitz_constant_is_above_every_change_of_the_hessian() -> None:
    subject, _ = fixed_classifier(60, 0)
    proved = hessian.proved_lipschitz(subject, subject.model, FLOOR)
    source = torch.Generator().manual_seed(0)
    points = [
        hessian.flat_weights(subject.model) + 0.3 * torch.randn(6, generator=source).double()
        for _ in range(12)
    ]
    hessians = [whole_hessian(subject, point) for point in points]
    changes = [
        float(
            torch.linalg.matrix_norm(hessians[i] - hessians[j], 2) / (points[i] - points[j]).norm()
        )
        for i, j in itertools.combinations(range(12), 2)
    ]
    assert 0.02 * proved < max(changes) <= proved
    assert min(float(torch.linalg.eigvalsh(hessian).min()) for hessian in hessians) > -1e-12


def test_value_on_a_linear_model_equals_plain_arithmetic() -> None:
    subject, _ = fixed_classifier(3000, 0)
    bound = PacBayesHessian(absolute=2.0, relative=0.5)
    x, y = (part.numpy() for part in (subject.train.inputs[0], subject.train.target))
    weight, bias = subject.model.weight.detach().numpy(), subject.model.bias.detach().numpy()
    logits = x @ weight.T + bias
    chance = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    scale = math.log(1 / FLOOR)
    spread = chance * (1 - chance)
    diagonal = np.concatenate([(spread.T @ x**2).ravel(), spread.sum(0)]) / len(x) / scale
    lipschitz = 2**1.5 / (6 * math.sqrt(3)) * (((x**2).sum(1) + 1) ** 1.5).mean() / scale
    radius = 0.5 * np.abs(np.concatenate([weight.ravel(), bias])) + 2
    free = (math.sqrt(6 * len(x)) * (diagonal / 3 + lipschitz * math.sqrt(6) * radius / 9)) ** -0.5
    assert (free < radius).all()  # here the curvature decides, not the radius
    empirical = -np.log(chance[np.arange(len(x)), y]).mean() / scale
    expected = theorem2(
        empirical, float(np.log(10 / np.minimum(free, radius)).sum()), 6, len(x), 0.05
    )
    assert float(bound(subject)) == pytest.approx(expected, rel=1e-10)


def test_the_rise_of_the_train_loss_under_noise_is_what_inequality_7_allows() -> None:
    subject, _ = fixed_classifier(200, 1)
    weights = hessian.flat_weights(subject.model)
    radius = 0.3 * weights.abs() + 0.3
    here, lipschitz = (
        hessian.curvature(subject, weights, FLOOR),
        hessian.proved_lipschitz(subject, subject.model, FLOOR),
    )
    scales = uniform_scales(here.diagonal, radius, lipschitz=lipschitz, eta=math.sqrt(6 * 200))
    noise = scales * (
        2 * torch.rand(4000, 6, generator=torch.Generator().manual_seed(0)).double() - 1
    )
    (x,), y = subject.train.inputs, subject.train.target
    noisy = weights + noise
    logits = torch.einsum("ni,dci->dnc", x, noisy[:, :4].view(-1, 2, 2)) + noisy[:, None, 4:]
    losses = hessian.bounded_cross_entropy(logits.flatten(0, 1), y.repeat(4000), FLOOR)
    allowed = ((here.diagonal / 6 + lipschitz * math.sqrt(6) * radius / 18) * scales.square()).sum()
    assert 0 < float(losses.mean()) - here.loss <= float(allowed)


class TestWhereItIsProved:
    def test_linear_models_in_any_dress(self) -> None:
        subject, _ = fixed_classifier(50, 0)
        data, layer = subject.train, subject.model
        dressed = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), layer)
        assert hessian.linear_layer(Subject(dressed, "cross_entropy", data)) is layer
        assert PacBayesHessian()(Subject(dressed, "cross_entropy", data)).valid
        for bent in (
            nn.Sequential(layer, nn.ReLU()),
            nn.Sequential(nn.Linear(2, 2).double(), layer),
        ):
            assert hessian.linear_layer(Subject(bent, "cross_entropy", data)) is None

    def test_says_which_assumption_is_not_met(self) -> None:
        net = PacBayesHessian()(mlp_classes(torch.float64))
        assert not net.valid
        assert "not linear in its weights" in net.reason

    def test_knows_where_the_loss_may_be_cut_off(self) -> None:
        subject, _ = fixed_classifier(50, 0)
        weights = hessian.flat_weights(subject.model)
        radius = 0.1 * weights.abs() + 0.1
        signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=6)), dtype=torch.float64)
        corners = weights + signs * radius
        (x,), y = subject.train.inputs, subject.train.target
        logits = (
            torch.einsum("ni,dci->dnc", x, corners[:, :4].view(-1, 2, 2)) + corners[:, None, 4:]
        )
        least = float(
            logits.softmax(2)[:, torch.arange(50), y].min()
        )  # the chance is least at a corner
        assert hessian.meets_floor(subject, subject.model, radius, least * 1.001)
        assert not hessian.meets_floor(subject, subject.model, radius, least * 0.1)
        cut = PacBayesHessian(floor=least * 1.001)(subject)
        assert not cut.valid
        assert "cut off" in cut.reason
        assert PacBayesHessian(floor=least * 0.1)(subject).valid

    def test_is_undefined_where_it_cannot_be_computed(self) -> None:
        subject, _ = fixed_classifier(50, 0)
        assert "at most 5 weights" in PacBayesHessian(largest=5)(subject).reason
        assert "prior's limit of 1" in PacBayesHessian(limit=1.0)(subject).reason
        assert "needs a classification" in PacBayesHessian()(multilabel(torch.float64)).reason
