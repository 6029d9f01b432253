"""Networks trained together equal networks trained alone, and noise has its stated size."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core.checks import generator
from mindgap.ops.perturbed.step import Perturbation, PerturbedStep
from mindgap.studies.perturbed import noisy_networks as together
from mindgap.studies.perturbed.noisy_networks import Arm, Noise, Plan, outputs, train

PLAN = Plan(width=5, epochs=3, batch_size=8, learning_rate=0.01)


SEEDS, SAMPLES, FEATURES = 3, 24, 4


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SEEDS, SAMPLES, FEATURES, generator=source)
    return inputs, (inputs.sum(2) > 0).long() + (inputs[:, :, 0] > 1).long()


def alone(weights: list[Tensor], seed: int) -> nn.Sequential:
    """A network of torch with the weights of one seed."""
    model = nn.Sequential(nn.Linear(FEATURES, PLAN.width), nn.ReLU(), nn.Linear(PLAN.width, 3))
    with torch.no_grad():
        for layer, (weight, bias) in zip(
            (model[0], model[2]), ((weights[0], weights[1]), (weights[2], weights[3])), strict=True
        ):
            layer.weight.copy_(weight[seed].T)
            layer.bias.copy_(bias[seed, 0])
    return model


def start() -> list[Tensor]:
    torch.manual_seed(5)
    return together._initial(SEEDS, FEATURES, PLAN.width, 3)


def test_plain_training_equals_torchs_adam_network_by_network() -> None:
    inputs, labels = data()
    found = train(inputs, labels, Arm("plain"), PLAN, seed=5)
    orders = [index for _, index in together._batches(inputs, PLAN, generator(5))]
    for seed in range(SEEDS):
        model = alone(start(), seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=PLAN.learning_rate)
        for index in orders:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[seed, index[seed]]), labels[seed, index[seed]]).backward()
            optimizer.step()
        assert torch.allclose(model[0].weight.T, found[0][seed], atol=1e-5)
        assert torch.allclose(model[2].bias, found[3][seed, 0], atol=1e-5)


def test_published_radius_is_that_of_the_library() -> None:
    """The moves of PerturbedStep, which is tested against Algorithm 1, stay within these radii."""
    inputs, labels = data()
    noise, weights = Noise(Arm("published", 2.0), PLAN, start(), SAMPLES), start()
    flat = [w[:1].clone().requires_grad_() for w in weights]
    step = PerturbedStep(Perturbation(gamma=2.0, pool=0), seed=0)
    for number in range(1, 4):
        radii = [r[0] for r in noise._radii(weights, epoch=number)]
        moves = list[Tensor]()

        def closure(moves: list[Tensor] = moves) -> Tensor:
            moves.extend(f.detach() - w[:1] for f, w in zip(flat, weights, strict=True))
            for f in flat:
                f.grad = None
            loss = F.cross_entropy(outputs(flat, inputs[:1])[0], labels[0])
            loss.backward()
            return loss

        step.gradient(closure, flat, number)
        ratio = torch.cat(
            [(m[0].abs() / (r + 1e-12)).flatten() for m, r in zip(moves, radii, strict=True)]
        )
        assert float(ratio.max()) <= 1 + 1e-3
        if number > 1:
            assert float(ratio.max()) > 0.8  # uniform on all of it
        slopes = [f.grad.expand_as(w).clone() for f, w in zip(flat, weights, strict=True)]
        noise._remember(weights, slopes)
        with torch.no_grad():
            for f, w, slope in zip(flat, weights, slopes, strict=True):
                w.sub_(0.1 * slope)
                f.copy_(w[:1])


def test_fisher_radius() -> None:
    noise = Noise(Arm("fisher", 0.5), PLAN, start(), SAMPLES)
    assert all(not r.any() for r in noise._fisher(0.5))
    slopes = [torch.randn_like(w) for w in start()]
    noise._remember(start(), slopes)
    found, size = noise._fisher(0.5), sum(w[0].numel() for w in start())
    squares = torch.cat([s[1].flatten() for s in slopes]).square() * PLAN.batch_size
    for radius, slope in zip(found, slopes, strict=True):
        bend = PLAN.batch_size * slope[1].square() + 0.1 * squares.mean()
        wanted = 0.5 / (math.sqrt(size * SAMPLES) * bend / 3).sqrt()
        assert torch.allclose(radius[1], wanted, rtol=1e-4)


def test_noise_for_each_sample_has_the_moments_of_fresh_weights() -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(1, 1, 6), torch.randn(1, 6, 2), torch.randn(1, 1, 2)
    radius, bias_radius = torch.rand(1, 6, 2), torch.rand(1, 1, 2)
    many = together._noisy(x.expand(1, 40_000, 6), weight, bias, radius, bias_radius)[0]
    draws = weight + radius * (2 * torch.rand(40_000, 6, 2) - 1)
    literal = (
        (x[0, 0][None, :, None] * draws).sum(1)
        + bias[0]
        + bias_radius[0] * (2 * torch.rand(40_000, 2) - 1)
    )
    assert torch.allclose(many.mean(0), literal.mean(0), atol=0.05)
    assert torch.allclose(many.std(0), literal.std(0), rtol=0.03)
