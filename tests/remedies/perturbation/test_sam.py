"""SAM and ASAM against their formulas written out, and what a second pass must not do."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from mindgap.core.remedy import Remedy, TrainingState
from mindgap.remedies import ASAM, SAM

REMEDIES = [SAM(radius=0.3), ASAM(radius=0.7, floor=0.05)]
INPUTS = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.arange(9) % 3


def network(*extra: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), *extra, nn.Tanh(), nn.Linear(6, 3)).double()


def moment_of(model: nn.Module) -> TrainingState:
    return TrainingState(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


def closure_of(model: nn.Module):
    def closure() -> Tensor:
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(INPUTS), TARGETS)
        loss.backward()
        return loss.detach()

    return closure


def gradient_at(model: nn.Module, weights: list[float]) -> list[float]:
    twin = network()
    nn.utils.vector_to_parameters(torch.tensor(weights, dtype=torch.float64), twin.parameters())
    closure_of(twin)()
    return torch.cat([weight.grad.flatten() for weight in twin.parameters()]).tolist()


def worst(remedy: Remedy, w: list[float], g: list[float]) -> list[float]:
    """The formulas, weight by weight."""
    if isinstance(remedy, SAM):
        length = math.sqrt(sum(a * a for a in g))
        return [a + remedy.radius * b / length for a, b in zip(w, g, strict=True)]
    sizes = [abs(a) + remedy.floor for a in w]
    length = math.sqrt(sum((t * b) ** 2 for t, b in zip(sizes, g, strict=True)))
    return [a + remedy.radius * t * t * b / length for a, t, b in zip(w, sizes, g, strict=True)]


@pytest.mark.parametrize("remedy", REMEDIES)
def test_equals_the_formula(remedy: Remedy) -> None:
    model = network()
    w = nn.utils.parameters_to_vector(model.parameters()).detach()
    wanted = gradient_at(model, worst(remedy, w.tolist(), gradient_at(model, w.tolist())))
    loss = remedy.backward(moment_of(model), closure_of(model))
    found = torch.cat([weight.grad.flatten() for weight in model.parameters()])
    assert found.tolist() == pytest.approx(wanted, rel=1e-12, abs=1e-14)
    assert torch.equal(w, nn.utils.parameters_to_vector(model.parameters()))
    assert float(loss) == pytest.approx(nn.functional.cross_entropy(model(INPUTS), TARGETS).item())
    assert found.tolist() != pytest.approx(gradient_at(model, w.tolist()), rel=1e-3)


@pytest.mark.parametrize("remedy", REMEDIES)
def test_batch_normalization_moves_once(remedy: Remedy) -> None:
    model, plain = network(nn.BatchNorm1d(6)), network(nn.BatchNorm1d(6))
    remedy.backward(moment_of(model), closure_of(model))
    plain(INPUTS)
    assert int(model[1].num_batches_tracked) == 1
    assert torch.equal(model[1].running_mean, plain[1].running_mean)
    assert torch.equal(model[1].running_var, plain[1].running_var)


@pytest.mark.parametrize("remedy", REMEDIES)
def test_both_passes_drop_the_same_units(remedy: Remedy) -> None:
    model, seen = network(nn.Dropout(0.5)), []
    model[1].register_forward_hook(
        lambda module, inputs, output: seen.append((output == 0).clone())
    )
    torch.manual_seed(4)
    closure_of(model)()
    after_one = torch.get_rng_state()
    torch.manual_seed(4)
    remedy.backward(moment_of(model), closure_of(model))
    assert torch.equal(seen[1], seen[2])
    assert torch.equal(after_one, torch.get_rng_state())


@pytest.mark.parametrize("remedy", REMEDIES)
def test_weights_and_statistics_come_back_after_an_exception(remedy: Remedy) -> None:
    model = network(nn.BatchNorm1d(6))
    kept, passes, closure = (
        nn.utils.parameters_to_vector(model.parameters()).detach(),
        [],
        closure_of(model),
    )

    def failing() -> Tensor:
        passes.append(int(model[1].num_batches_tracked))
        loss = closure()
        if len(passes) == 2:
            assert not torch.equal(kept, nn.utils.parameters_to_vector(model.parameters()))
            raise ZeroDivisionError
        return loss

    with pytest.raises(ZeroDivisionError):
        remedy.backward(moment_of(model), failing)
    assert torch.equal(kept, nn.utils.parameters_to_vector(model.parameters()))
    assert int(model[1].num_batches_tracked) == 1


@pytest.mark.parametrize("remedy", REMEDIES)
def test_frozen_unused_and_sparse_weights_and_a_zero_gradient(remedy: Remedy) -> None:
    model = nn.ModuleDict({"table": nn.Embedding(5, 2, sparse=True), "spare": nn.Linear(2, 2)})
    model["spare"].weight.requires_grad_(False)

    def closure() -> Tensor:
        model.zero_grad()
        loss = model["table"](torch.tensor([0, 3])).square().sum()
        loss.backward()
        return loss.detach()

    before = model["table"].weight.detach().clone()
    remedy.backward(moment_of(model), closure)
    assert torch.equal(before, model["table"].weight)
    assert model["spare"].weight.grad is None
    gradient = model["table"].weight.grad.to_dense()
    assert (gradient[[0, 3]].abs() > (2 * before[[0, 3]]).abs()).all()  # further uphill, so steeper
    assert not gradient[[1, 2, 4]].any()
    flat = nn.Linear(2, 2)
    flat.weight.data.zero_()

    def level() -> Tensor:
        flat.zero_grad()
        loss = flat.weight.square().sum()
        loss.backward()
        return loss.detach()

    remedy.backward(moment_of(flat), level)
    assert torch.equal(flat.weight.grad, torch.zeros(2, 2))
