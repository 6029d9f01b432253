"""A training loop written out, with which the loops of other packages are compared: same net, same batches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from mindgap.core.remedy import Remedy
from mindgap.core.subject import Subject
from mindgap.integrations.remedy_optimizer import RemedyOptimizer
from mindgap.remedies import (
    ActiveBias,
    Annealing,
    ClassBalance,
    GradientPenalty,
    InputNoise,
    JacobianPenalty,
    LabelSmoothing,
    LogitPenalty,
    Mixup,
    OrthogonalRegularization,
    SpectralNormalization,
    VarianceWeighting,
    WeightAveraging,
)
from mindgap.training.perturbed_optimizer import PerturbedOptimizer

SETTINGS = {"gamma": 2.0, "beta2": 5.0, "seed": 3}
ROWS, SIZE, EPOCHS = 27, 4, 3  # seven batches an epoch, the last one short
Optimizer = Callable[..., torch.optim.Optimizer]
# Remedies that act on inputs, on losses, by a penalty, on the rate, after epochs and at the end.
EVERYWHERE: list[Remedy] = [
    LabelSmoothing(),
    InputNoise(),
    Mixup(alpha=1.0),
    LogitPenalty(form="darc", draws=3),
    Annealing(peak=2.0),
    WeightAveraging(share=0.6),
]
# Remedies that hold down slopes: in the losses, in the gradient, after steps and at the end.
SMOOTH: list[Remedy] = [
    JacobianPenalty(factor=0.1),
    InputNoise(),
    GradientPenalty(factor=0.5),
    OrthogonalRegularization(factor=0.01),
    SpectralNormalization(limit=0.5),
]

# Weights from the training data before the first step, and weights that change with training.
WEIGHTED: list[Remedy] = [ClassBalance(), ActiveBias(burn_in=2), VarianceWeighting()]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, 4, generator=generator), torch.randint(
        0, 3, (ROWS,), generator=generator
    )


def batches() -> list[tuple[Tensor, Tensor]]:
    inputs, targets = samples()
    return list(zip(inputs.split(SIZE), targets.split(SIZE), strict=True))


def base(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def perturbed(parameters: object) -> PerturbedOptimizer:
    return PerturbedOptimizer(base(parameters), **SETTINGS)


def by_perturbation(
    *,
    epochs: int = EPOCHS,
    collect: int = 1,
    clip: float = 0.0,
    autocast: bool = False,
    part: Callable | None = None,
) -> nn.Module:
    """Train with a PerturbedOptimizer; ``part`` gives the share of a batch in its step, else 1/collect."""
    model = network()
    optimizer, data = perturbed(model.parameters()), batches()
    for epoch in range(1, epochs + 1):
        optimizer.epoch = epoch
        for number, (inputs, targets) in enumerate(data):
            if number % collect == 0:
                optimizer.zero_grad()
            mixed = (
                torch.autocast("cpu", dtype=torch.bfloat16)
                if autocast
                else contextlib.nullcontext()
            )
            with optimizer.perturbed():
                with mixed:
                    loss = nn.functional.cross_entropy(model(inputs), targets)
                (loss / (part(number) if part else collect)).backward()
            if (number + 1) % collect == 0 or number + 1 == len(data):
                if clip:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
    return model


def joined(model: nn.Module) -> Subject:
    return Subject(model, "cross_entropy", samples())


def by_remedies(
    remedies: list[Remedy], epochs: int = EPOCHS, *, sampled: bool = False
) -> nn.Module:
    """Train with a RemedyOptimizer and every call that remedies may need.

    The samples come in their order, or ``sampled`` as the optimizer's sampler has them.
    """
    model = network()
    optimizer = RemedyOptimizer(
        base(model.parameters()), remedies, model=model, seed=3, subject=joined
    )
    data, sampler = TensorDataset(*samples()), optimizer.sampler(ROWS)
    loader = DataLoader(data, SIZE, sampler=sampler) if sampled else batches()
    for _ in optimizer.training(epochs):
        for number, (inputs, targets) in enumerate(loader):
            places = torch.arange(number * SIZE, number * SIZE + len(targets))

            def closure(
                inputs: Tensor = inputs, targets: Tensor = targets, places: Tensor = places
            ) -> Tensor:
                optimizer.zero_grad()
                output = model(optimizer.inputs(inputs))
                loss = optimizer.loss("cross_entropy", output, targets, index=places)
                loss.backward()
                return loss

            optimizer.step(closure)
    return model


def by_plain_steps(epochs: int = EPOCHS) -> nn.Module:
    model = network()
    optimizer = base(model.parameters())
    for inputs, targets in batches() * epochs:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return model


def same(left: nn.Module, right: nn.Module) -> bool:
    """Whether all weights and buffers are equal bit by bit."""
    pairs = zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def near(left: nn.Module, right: nn.Module, within: float = 1e-6) -> bool:
    pairs = zip(left.parameters(), right.parameters(), strict=True)
    return all(torch.allclose(one, other, rtol=0, atol=within) for one, other in pairs)
