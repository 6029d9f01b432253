"""Adversarial training: the gradient by hand, the model's statistics, and accuracy under attack."""

from __future__ import annotations

import torch
from torch import nn

from mindgap import fit
from mindgap.measures import RobustAccuracy
from mindgap.remedies import AdversarialTraining
from mindgap.remedies.perturbation.adversarial_training import adversarial_gradient
from mindgap.studies.diagnoses.healthy import healthy_recipe


def test_gradient_and_statistics_are_those_of_the_attacked_batch() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).double()
    twin = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).double()
    twin.load_state_dict(model.state_dict())
    x, y = torch.randn(10, 3).double(), torch.arange(10) % 2

    def closure() -> torch.Tensor:
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    loss = adversarial_gradient(closure, model, epsilon=0.2, steps=3, seed=5)
    radius = 0.2 * x.std(0, correction=0, keepdim=True)
    random = torch.Generator().manual_seed(5)
    move = radius * (2 * torch.rand(x.shape, generator=random) - 1).double()
    statistics = {name: value.clone() for name, value in twin.state_dict().items()}
    for _ in range(3):
        point = (x + move).requires_grad_()
        (slope,) = torch.autograd.grad(nn.functional.cross_entropy(twin(point), y), point)
        move = (move + 2.5 / 3 * radius * slope.sign()).clamp(-radius, radius)
    twin.load_state_dict(statistics)
    nn.functional.cross_entropy(twin(x + move), y).backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)
    assert int(model[1].num_batches_tracked) == 1
    assert float(loss) > float(nn.functional.cross_entropy(twin(x), y).detach())
    assert not model._forward_pre_hooks


def test_more_predictions_hold_under_attack() -> None:
    recipe = healthy_recipe("image", seed=2).replace(epochs=12)
    measure = RobustAccuracy(epsilon=0.1)
    plain, trained = (
        float(measure(fit(recipe, remedies, seed=2).subject()))
        for remedies in ([], [AdversarialTraining(epsilon=0.3)])
    )
    assert trained > plain + 0.1
