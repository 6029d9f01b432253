"""PerturbedOptimizer takes the same steps in every kind of loop and resumes exactly."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.ops.perturbed.step import Perturbation, PerturbedStep
from mindgap.training.perturbed_optimizer import PerturbedOptimizer

SETTINGS = {"gamma": 2.0, "beta2": 5.0}
BASES: list[Callable[..., torch.optim.Optimizer]] = [
    lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=0.01),
    lambda weights: torch.optim.Adam(weights, lr=0.01),
    lambda weights: torch.optim.AdamW(weights, lr=0.01, foreach=True),
    lambda weights: torch.optim.Adam(weights, lr=0.01, fused=True),
    lambda weights: torch.optim.RMSprop(weights, lr=0.01),
]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def data(count: int = 8) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(9, 4, generator=generator), torch.randint(0, 3, (9,), generator=generator))
        for _ in range(count)
    ]


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def by_closure(
    model: nn.Module, optimizer: PerturbedOptimizer, batch: tuple[Tensor, Tensor]
) -> None:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    optimizer.step(closure)


def by_context(
    model: nn.Module, optimizer: PerturbedOptimizer, batch: tuple[Tensor, Tensor]
) -> None:
    optimizer.zero_grad()
    with optimizer.perturbed():
        loss_of(model, batch).backward()
    optimizer.step()


def run(
    model: nn.Module,
    optimizer: PerturbedOptimizer,
    batches: list[tuple[Tensor, Tensor]],
    one=by_closure,
) -> None:
    for number, batch in enumerate(batches):
        one(model, optimizer, batch)
        if number % 3 == 2:
            optimizer.next_epoch()


def pair(
    base: Callable[..., torch.optim.Optimizer] = BASES[0],
) -> tuple[nn.Module, PerturbedOptimizer]:
    model = network()
    return model, PerturbedOptimizer(base(model.parameters()), seed=3, **SETTINGS)


def same(left: nn.Module, right: nn.Module) -> bool:
    return all(map(torch.equal, left.state_dict().values(), right.state_dict().values()))


@pytest.mark.parametrize("base", BASES)
def test_closure_context_and_bare_core_take_the_same_steps(
    base: Callable[..., torch.optim.Optimizer],
) -> None:
    (one, first), (two, second), three = pair(base), pair(base), network()
    core, plain = PerturbedStep(Perturbation(**SETTINGS), seed=3), base(three.parameters())
    run(one, first, data(), by_closure)
    run(two, second, data(), by_context)
    for number, batch in enumerate(data()):

        def closure(batch: tuple[Tensor, Tensor] = batch) -> None:
            plain.zero_grad()
            loss_of(three, batch).backward()

        core.gradient(closure, list(three.parameters()), 1 + number // 3)
        plain.step()
    assert same(one, two)
    assert same(one, three)


def test_differs_from_the_base_and_no_threshold_is_the_base() -> None:
    model, optimizer = pair()
    plain, base = network(), BASES[0]
    stepper = base(plain.parameters())
    off = network()
    without = PerturbedOptimizer(base(off.parameters()), beta2=0.0)
    for batch in data():
        by_closure(model, optimizer, batch)
        by_closure(off, without, batch)
        stepper.zero_grad()
        loss_of(plain, batch).backward()
        stepper.step()
    assert same(plain, off)
    assert not same(plain, model)


def test_batch_normalization_moves_once_per_step() -> None:
    model, optimizer = pair()
    run(model, optimizer, data(5))
    assert int(model[1].num_batches_tracked) == 5


@pytest.mark.parametrize("together", [True, False])
def test_accumulated_gradients_belong_to_one_perturbation(together: bool) -> None:
    whole, optimizer = pair()
    parts, other = pair()
    for model in (whole, parts):
        model[1].eval()
    for inputs, targets in data():
        by_context(whole, optimizer, (inputs, targets))
        other.zero_grad()
        chunks = [(inputs[rows], targets[rows]) for rows in (slice(0, 3), slice(3, 9))]
        if together:
            with other.perturbed():
                for chunk in chunks:
                    (loss_of(parts, chunk) * (len(chunk[1]) / 9)).backward()
        else:
            for chunk in chunks:
                with other.perturbed():
                    (loss_of(parts, chunk) * (len(chunk[1]) / 9)).backward()
        other.step()
    for left, right in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.allclose(left, right, atol=1e-5)


def test_clipping_between_backward_and_step() -> None:
    model, optimizer = pair()
    for batch in data(3):
        optimizer.zero_grad()
        with optimizer.perturbed():
            loss_of(model, batch).backward()
        before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        assert torch.linalg.vector_norm(optimizer.core.blocks[0].gradient) <= 1.001e-3
    assert not torch.equal(before, nn.utils.parameters_to_vector(model.parameters()))


def test_schedulers_and_groups_are_shared_with_the_base() -> None:
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[3].parameters()}]
    optimizer = PerturbedOptimizer(torch.optim.SGD(groups, lr=0.1), **SETTINGS)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    for batch in data(2):
        by_closure(model, optimizer, batch)
        schedule.step()
    assert [group["lr"] for group in optimizer.base.param_groups] == pytest.approx([0.005, 0.001])
    optimizer.add_param_group({"params": model[1].parameters()})
    before = model[1].weight.detach().clone()
    with optimizer.perturbed():
        assert torch.equal(model[1].weight, before)  # its first step
    run(model, optimizer, data(2))
    assert len(optimizer.param_groups) == len(optimizer.base.param_groups) == 3
    assert not torch.equal(model[1].weight, before)
    with optimizer.perturbed():
        assert not torch.equal(model[1].weight, before)


def test_gradient_scaler_sees_unscaled_gradients_and_may_skip() -> None:
    plain, optimizer = pair()
    model, other = pair()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=10_000)
    for number, batch in enumerate(data()):
        by_context(plain, optimizer, batch)
        if (
            number == 3
        ):  # a gradient that overflows: the scaler skips, the next batch goes on as if nothing had been
            state = copy.deepcopy(other.state_dict())
            statistics = copy.deepcopy(model[1].state_dict())
            other.zero_grad()
            with other.perturbed():
                scaler.scale(loss_of(model, batch) * torch.inf).backward()
            scaler.step(other)
            scaler.update()
            model[1].load_state_dict(statistics)
            assert other.core.step == state["perturbation"]["step"]
        other.zero_grad()
        with other.perturbed():
            scaler.scale(loss_of(model, batch)).backward()
        scaler.step(other)
        scaler.update()
    for left, right in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.allclose(left, right, atol=1e-6)
    found = [optimizer.core.blocks[0].gradient, other.core.blocks[0].gradient]
    assert torch.allclose(*found, atol=1e-6)


def test_under_autocast_the_perturbed_weights_are_used() -> None:
    model = network()
    optimizer = PerturbedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), gamma=20.0, beta2=100.0
    )
    run(model, optimizer, data(3))
    inputs, _ = data(1)[0]
    model.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        calm = model(inputs)
        with optimizer.perturbed():
            moved = model(inputs)
        assert not torch.equal(calm, moved)
        assert torch.equal(calm, model(inputs))


@pytest.mark.parametrize("base", [BASES[0], BASES[1]])
@pytest.mark.parametrize("frozen", [True, False])
def test_resumes_exactly_from_a_file(
    base: Callable[..., torch.optim.Optimizer], frozen: bool
) -> None:
    whole, optimizer = pair(base)
    whole[0].weight.requires_grad_(not frozen)
    run(whole, optimizer, data()[:4])
    file = io.BytesIO()
    torch.save({"model": whole.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    run(whole, optimizer, data()[4:])
    model, other = pair(base)
    other.core.seed = 99  # the seed is part of the state
    model[0].weight.requires_grad_(not frozen)
    model.load_state_dict(saved["model"])
    other.load_state_dict(saved["optimizer"])
    assert other.epoch == 2
    assert other.param_groups is other.base.param_groups
    run(model, other, data()[4:])
    assert same(whole, model)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_copies_go_their_own_way_exactly(copied: Callable[[object], object]) -> None:
    both = pair(BASES[1])
    torch.optim.lr_scheduler.StepLR(both[1], 100)  # it patches step, which no pickle could carry
    run(*both, data()[:4])
    twin = copied(both)
    run(*both, data()[4:])
    assert not same(both[0], twin[0])
    run(*twin, data()[4:])
    assert same(both[0], twin[0])
    assert twin[1].param_groups[0]["params"][0] is twin[0][0].weight


@pytest.mark.parametrize("base", [torch.optim.SparseAdam, torch.optim.SGD])
def test_sparse_embeddings(base: type[torch.optim.Optimizer]) -> None:
    def trained(sparse: bool, kind: type[torch.optim.Optimizer]) -> nn.Embedding:
        torch.manual_seed(0)
        table = nn.Embedding(10, 3, sparse=sparse)
        optimizer = PerturbedOptimizer(kind(table.parameters(), lr=0.1), **SETTINGS)
        for number in range(5):
            optimizer.zero_grad()
            with optimizer.perturbed():
                table(torch.tensor([number, 2, 7])).square().sum().backward()
            assert table.weight.grad.is_sparse == sparse
            optimizer.step()
        return table

    table = trained(True, base)
    assert torch.isfinite(table.weight).all()
    if base is torch.optim.SGD:
        assert torch.allclose(table.weight, trained(False, base).weight, atol=1e-6)


def test_frozen_and_unused_weights_are_left_alone() -> None:
    model, optimizer = pair()
    spare = nn.Parameter(torch.ones(3))
    optimizer.add_param_group({"params": [spare]})
    model[0].weight.requires_grad_(False)
    before = model[0].weight.detach().clone()
    run(model, optimizer, data(4))
    with optimizer.perturbed():
        assert torch.equal(model[0].weight, before)
    assert torch.equal(model[0].weight, before)
    assert torch.equal(spare, torch.ones(3))


def test_backward_outside_of_the_context_is_refused_by_autograd() -> None:
    model, optimizer = pair()
    run(model, optimizer, data(2))
    with optimizer.perturbed():
        loss = loss_of(model, data(1)[0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_misuse_is_told() -> None:
    model, optimizer = pair()
    loss_of(model, data(1)[0]).backward()
    with pytest.raises(InputError, match=r"perturbed\(\)"):
        optimizer.step()
    with pytest.raises(InputError, match="epoch must be"):
        optimizer.epoch = 0
    with pytest.raises(InputError, match="got LBFGS"):
        PerturbedOptimizer(torch.optim.LBFGS(model.parameters()))
    with pytest.raises(InputError, match=r"optimizer\.base"):
        optimizer.load_state_dict(optimizer.base.state_dict())
    with pytest.raises(InputError, match="gamma must be"):
        PerturbedOptimizer(optimizer.base, gamma=-1.0)
    assert "momentum" in repr(optimizer)
    optimizer.epoch = 7
    assert optimizer.epoch == 7
