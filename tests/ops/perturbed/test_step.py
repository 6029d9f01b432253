"""The core of PerturbedOPT against a literal transcription of Algorithm 1, weight by weight, and its promises."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.ops.perturbed import block as perturbed_kernels
from mindgap.ops.perturbed.block import CompiledBlock, PerturbedBlock
from mindgap.ops.perturbed.noise import UniformNoise, mixed
from mindgap.ops.perturbed.step import Perturbation, PerturbedStep

BASES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9),
    "adam": lambda weights: torch.optim.Adam(weights, lr=0.01),
}


def network(kind: torch.dtype = torch.float64) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).to(kind)
    for weight in model.parameters():
        weight.data.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return model


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    return [
        (
            torch.randn(7, 3, generator=generator, dtype=torch.float64),
            torch.randint(0, 2, (7,), generator=generator),
        )
        for _ in range(count)
    ]


def flat(model: nn.Module) -> list[float]:
    return nn.utils.parameters_to_vector(model.parameters()).detach().tolist()


def gradient_at(weights: list[float], batch: tuple[Tensor, Tensor]) -> list[float]:
    model = network()
    nn.utils.vector_to_parameters(torch.tensor(weights, dtype=torch.float64), model.parameters())
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()]).tolist()


class LiteralBase:
    """SGD, momentum and Adam in Python numbers."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind, self.first, self.second, self.count = kind, [0.0] * size, [0.0] * size, 0

    def step(self, weights: list[float], gradient: list[float]) -> list[float]:
        self.count += 1
        moved = []
        for i, (w, g) in enumerate(zip(weights, gradient, strict=True)):
            if self.kind == "sgd":
                moved.append(w - 0.1 * g)
            elif self.kind == "momentum":
                self.first[i] = 0.9 * self.first[i] + g
                moved.append(w - 0.05 * self.first[i])
            else:
                self.first[i] = 0.9 * self.first[i] + 0.1 * g
                self.second[i] = 0.999 * self.second[i] + 0.001 * g * g
                mean, square = (
                    self.first[i] / (1 - 0.9**self.count),
                    self.second[i] / (1 - 0.999**self.count),
                )
                moved.append(w - 0.01 * mean / (math.sqrt(square) + 1e-8))
        return moved


def literal(
    settings: Perturbation,
    seed: int,
    kind: str,
    data: list[tuple[Tensor, Tensor]],
    epochs: list[int],
):
    """Algorithm 1 as printed: one weight after the other."""
    w = flat(network())
    size, base = len(w), LiteralBase(kind, len(w))
    noise = UniformNoise(
        size, mixed(seed, 0), pool=settings.pool, like=torch.empty(0, dtype=torch.float64)
    )
    sigma, h, h_before, w_before, g = (
        [0.0] * size,
        [0.0] * size,
        [0.0] * size,
        list(w),
        [0.0] * size,
    )
    for t, (batch, epoch) in enumerate(zip(data, epochs, strict=True)):
        if t > 0:
            length = math.sqrt(sum((a - b) ** 2 for a, b in zip(w, w_before, strict=True)))
            for i in range(size):
                rho = abs(h[i] - h_before[i]) / length
                kappa = settings.gamma / math.log(1 + epoch) * abs(w_before[i]) + settings.epsilon
                inner = settings.eta * (h[i] + rho * kappa)
                reach = 1 / (math.log(1 + epoch) * math.sqrt(inner)) if inner else math.inf
                sigma[i] = min(reach, kappa) * (abs(g[i]) < settings.beta2)
        xi = noise(t).tolist()
        g = gradient_at([a + s * x for a, s, x in zip(w, sigma, xi, strict=True)], batch)
        h_before, h = (
            h,
            [settings.beta1 * a + (1 - settings.beta1) * b * b for a, b in zip(h, g, strict=True)],
        )
        w_before, w = w, base.step(w, g)
        yield w, list(sigma), [s * x for s, x in zip(sigma, xi, strict=True)], g


# settings under which the curvature, the radius and the threshold each decide for some weights
SETTINGS = [
    Perturbation(),
    Perturbation(eta=30.0, gamma=1.0, beta1=0.5, beta2=0.2, epsilon=0.01, pool=50),
    Perturbation(eta=400.0, gamma=10.0, beta1=0.9, beta2=10.0, pool=0),
]


@pytest.fixture(params=["torch", "compiled"])
def way(request, monkeypatch) -> type[PerturbedBlock]:
    """Both ways to compute a step, chosen by the number of weights from which numba is used."""
    if request.param == "compiled":
        pytest.importorskip("numba", reason="the package numba is not installed")
    monkeypatch.setattr(perturbed_kernels, "SMALLEST", 1 if request.param == "compiled" else 10**9)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    return CompiledBlock if request.param == "compiled" else PerturbedBlock


def perturbation(core: PerturbedStep) -> Tensor:
    """u, while the weights are moved or after."""
    return torch.cat([(block.moved - block.before).double() for block in core.blocks])


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", BASES)
def test_equals_the_literal_algorithm(
    kind: str, settings: Perturbation, way: type[PerturbedBlock]
) -> None:
    data, epochs = batches(10), [1, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    model, core = network(), PerturbedStep(settings, seed=5)
    weights = list(model.parameters())
    base = BASES[kind](weights)
    perturbed = 0
    for (inputs, targets), epoch, (w, sigma, u, g) in zip(
        data, epochs, literal(settings, 5, kind, data, epochs), strict=True
    ):

        def closure(inputs: Tensor = inputs, targets: Tensor = targets) -> None:
            base.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()

        core.gradient(closure, weights, epoch)
        found = torch.cat([weight.grad.flatten() for weight in weights]).tolist()
        assert found == pytest.approx(g, rel=1e-12, abs=1e-12)
        drawn = perturbation(core) if core.step > 1 else torch.zeros(len(sigma))
        assert drawn.tolist() == pytest.approx(u, rel=1e-12, abs=1e-14)
        base.step()
        assert flat(model) == pytest.approx(w, rel=1e-12, abs=1e-12)
        perturbed += sum(one > 0 for one in sigma)
    assert perturbed > 50
    assert [type(block) for block in core.blocks] == [way]


def test_the_settings_reach_every_branch() -> None:
    """The comparison above would prove little if one side of the minimum, or of the threshold, always won."""
    seen = set()
    for settings in SETTINGS:
        passed = [flat(network())]  # w_0, w_1, …: the reach at step t knows w_{t-1}
        for t, (w, sigma, *_) in enumerate(literal(settings, 5, "momentum", batches(10), [1] * 10)):
            kappa = [
                settings.gamma / math.log(2) * abs(a) + settings.epsilon
                for a in passed[max(t - 1, 0)]
            ]
            kinds = (
                "none" if not s else "radius" if s == k else "curvature"
                for s, k in zip(sigma, kappa, strict=True)
            )
            seen |= set(kinds)
            passed.append(w)
    assert seen == {"none", "radius", "curvature"}


def plain(weight: Tensor, scale: float = 1.0) -> Callable[[], None]:
    def closure() -> None:
        weight.grad = None
        (scale * weight.square().sum()).backward()

    return closure


def settled(weight: Tensor, **settings: float) -> PerturbedStep:
    """A core that has seen one step, after which the weight moved."""
    core = PerturbedStep(Perturbation(beta2=100.0, **settings))
    core.gradient(plain(weight), [weight], 1)
    with torch.no_grad():
        weight.sub_(0.01)
    return core


def test_weights_come_back_bit_for_bit_and_moved_meanwhile() -> None:
    weight = torch.randn(50, generator=torch.Generator().manual_seed(0)).requires_grad_()
    core = settled(weight, gamma=3.0)
    kept = weight.detach().clone()
    with core.perturbed([weight], 1):
        inside = weight.detach().clone()
    assert (inside != kept).all()
    assert torch.equal(weight, kept)


def test_weights_come_back_after_an_exception() -> None:
    weight = torch.ones(5, requires_grad=True)
    core = settled(weight)
    kept = weight.detach().clone()

    def failing() -> None:
        assert not torch.equal(weight, kept)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        core.gradient(failing, [weight], 1)
    assert torch.equal(weight, kept)
    core.gradient(plain(weight), [weight], 1)
    assert core.step == 2


def test_nothing_moves_at_the_first_step() -> None:
    weight = torch.ones(5, requires_grad=True)
    with PerturbedStep(Perturbation(gamma=5.0)).perturbed([weight], 1):
        assert torch.equal(weight, torch.ones(5))


def test_perturbation_stays_the_same_until_the_step_ends() -> None:
    weight = torch.ones(5, requires_grad=True)
    core, seen = settled(weight), []
    for _ in range(2):
        with core.perturbed([weight], 1):
            seen.append(weight.detach().clone())
    plain(weight)()
    core.observe()
    with core.perturbed([weight], 1):
        seen.append(weight.detach().clone())
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_weights_that_did_not_move(way: type[PerturbedBlock]) -> None:
    """ρ is infinite where the curvature changed, and 0/0 counts as 0: then only κ limits."""
    weight = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    core = PerturbedStep(Perturbation(beta2=100.0, gamma=0.5))
    core.gradient(plain(weight), [weight], 1)
    core.gradient(plain(weight), [weight], 1)  # the optimizer did not step
    spread = (perturbation(core) / core.blocks[0].noise(1)).tolist()
    assert spread[0] == spread[2] == 0
    assert spread[1] == pytest.approx(1e-5)  # no gradient, so h = ρ = 0 and σ = κ = ε


@pytest.mark.parametrize("step", [0.0, 1e-30])
def test_large_gradients_while_the_weights_stand_still(
    way: type[PerturbedBlock], step: float
) -> None:
    """A warm-up begins with a step of length 0: ρ is infinite, and a weight past the threshold has κ = 0."""
    weight = torch.tensor([100.0, -3.0, 0.0, 1e-3, 2.0], requires_grad=True)
    core = PerturbedStep(Perturbation(gamma=10.0))
    for _ in range(3):
        core.gradient(plain(weight, 50.0), [weight], 1)
        with torch.no_grad():
            weight.sub_(step * weight.grad)
    with core.perturbed([weight], 1):
        assert torch.equal(weight, torch.tensor([100.0, -3.0, weight[2].item(), 1e-3, 2.0]))
        assert 0 < abs(weight[2].item()) < 1e-5


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_other_kinds_of_numbers_and_a_transposed_weight(kind: torch.dtype) -> None:
    weight = torch.randn(6, 4).to(kind).t().requires_grad_()
    assert not weight.is_contiguous()
    core = settled(weight, gamma=2.0)
    kept = weight.detach().clone()
    with core.perturbed([weight], 1):
        assert (weight != kept).float().mean() > 0.8
        assert (weight - kept).abs().max() < 2 / math.log(2) * (kept.abs().max() + 0.1)
    assert torch.equal(weight, kept)
    assert core.blocks[0].curvature.dtype == torch.promote_types(kind, torch.float32)


def test_kinds_are_mixed_under_one_length_of_step() -> None:
    """Two blocks share ‖w_t - w_{t-1}‖: the same weights in one block or in two get the same reach."""
    one = torch.arange(1.0, 9.0, dtype=torch.float64).requires_grad_()
    core = settled(one)
    core.gradient(plain(one), [one], 1)
    parts = [one.detach()[:3].clone(), one.detach()[3:].clone()]
    first = (parts[0] + 0.01).requires_grad_(), (parts[1] + 0.01).float().requires_grad_()
    two = PerturbedStep(Perturbation(beta2=100.0))

    def closure() -> None:
        for weight in first:
            plain(weight)()

    two.gradient(closure, first, 1)
    with torch.no_grad():
        for weight in first:
            weight.sub_(0.01)
    two.gradient(closure, first, 1)
    assert len(two.blocks) == 2
    noises = [
        torch.cat([block.noise(1).double() for block in one_or_two.blocks])
        for one_or_two in (two, core)
    ]
    assert torch.allclose(perturbation(two) / noises[0], perturbation(core) / noises[1], rtol=1e-4)


def test_a_backward_pass_on_the_wrong_side_is_refused() -> None:
    weight = torch.ones(5, requires_grad=True)
    core = settled(weight)
    outside = weight.square().sum()
    with core.perturbed([weight], 1):
        inside = weight.square().sum()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            outside.backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        inside.backward()


def test_weights_changed_between_two_contexts_keep_the_perturbation(
    way: type[PerturbedBlock],
) -> None:
    weight = torch.ones(5, dtype=torch.float64, requires_grad=True)
    core = settled(weight, gamma=2.0)
    drawn = []
    for shift in (0.0, 0.25):
        with torch.no_grad():
            weight.add_(shift)
        kept = weight.detach().clone()
        with core.perturbed([weight], 1):
            drawn.append(weight.detach() - kept)
        assert torch.equal(weight, kept)
    assert drawn[0].abs().min() > 0
    assert torch.allclose(*drawn, rtol=1e-12, atol=1e-14)
    assert type(core.blocks[0]) is way


def test_weights_stay_where_they_are_in_memory() -> None:
    weight = torch.ones(5, requires_grad=True)
    core, view = settled(weight), weight.detach()
    address = weight.data_ptr()
    core.gradient(plain(weight), [weight], 1)
    assert weight.data_ptr() == address
    weight.data.fill_(3.0)
    assert torch.equal(view, torch.full((5,), 3.0))


def test_the_order_of_channels_stays_and_a_fused_base_steps_alike() -> None:
    """A gradient takes the strides of its weight, and a fused optimizer wants both to be the same."""
    ends = []
    for kind in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        net = nn.Conv2d(3, 4, 3).to(memory_format=kind)
        weights = list(net.parameters())
        base, core = (
            torch.optim.Adam(weights, lr=0.01, fused=True),
            PerturbedStep(Perturbation(beta2=100.0, gamma=1.0)),
        )
        inputs = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
        for _ in range(4):
            base.zero_grad()
            with core.perturbed(weights, 1):
                assert net.weight.is_contiguous(memory_format=kind)
                net(inputs).square().mean().backward()
            assert net.weight.grad.stride() == net.weight.stride()
            core.observe()
            base.step()
        ends.append(net.weight.detach().clone())
    assert torch.allclose(*ends, atol=1e-6)


def test_frozen_weights_stay_and_thawed_ones_start_anew(way: type[PerturbedBlock]) -> None:
    first, second = torch.ones(3, requires_grad=True), torch.full((2,), 5.0)
    core = settled(first)
    with core.perturbed([first, second], 1):
        assert torch.equal(second, torch.full((2,), 5.0))
    curvature = core.blocks[0].curvature.clone()
    second.requires_grad_()
    with core.perturbed([first, second], 1):
        assert not torch.equal(first, torch.full((3,), 0.99))
        assert torch.equal(second, torch.full((2,), 5.0))
    assert torch.equal(core.blocks[0].curvature[:3], curvature)
    for weight in (first, second):
        plain(weight)()
    core.observe()
    second.data.sub_(0.1)
    with core.perturbed([first, second], 1):
        assert not torch.equal(second, torch.full((2,), 4.9))


def test_unused_weights_and_sparse_gradients_count_as_zero() -> None:
    table, unused = nn.Embedding(6, 2, sparse=True), torch.ones(2, requires_grad=True)
    weights = [table.weight, unused]
    core = PerturbedStep(Perturbation())
    core.gradient(lambda: table(torch.tensor([1, 4])).sum().backward(), weights, 1)
    assert unused.grad is None
    assert table.weight.grad.is_sparse
    gradient = core.blocks[0].gradient
    assert gradient[:12].view(6, 2).sum(1).tolist() == [0, 2, 0, 0, 2, 0]
    assert gradient[12:].tolist() == [0, 0]


def test_a_state_between_two_contexts_goes_on_exactly(way: type[PerturbedBlock]) -> None:
    weight = torch.ones(5, requires_grad=True)
    core = settled(weight)
    with core.perturbed([weight], 1):
        inside = weight.detach().clone()
    other = PerturbedStep(core.settings)
    other.load(core.state())
    with other.perturbed([weight], 1):
        assert torch.equal(weight, inside)
    plain(weight)()
    core.observe(), other.observe()
    with core.perturbed([weight], 2):
        inside = weight.detach().clone()
    with other.perturbed([weight], 2):
        assert torch.equal(weight, inside)


def test_does_not_touch_global_random_numbers() -> None:
    before = torch.get_rng_state()
    for pool in (0, 10):
        weight = torch.ones(5, requires_grad=True)
        core = settled(weight, pool=pool)
        core.gradient(plain(weight), [weight], 1)
    assert torch.equal(before, torch.get_rng_state())


def test_bad_input_is_told() -> None:
    weight = torch.ones(3, requires_grad=True)
    core = settled(weight)
    with (
        core.perturbed([weight], 1),
        pytest.raises(InputError, match="Do not nest"),
        core.perturbed([weight], 1),
    ):
        pass
    assert torch.equal(weight, torch.full((3,), 0.99))
    with pytest.raises(InputError, match="epoch must be"), core.perturbed([weight], 0):
        pass
    with pytest.raises(InputError, match="real numbers"):
        PerturbedStep(Perturbation()).lay_out(
            [torch.ones(2, dtype=torch.complex64, requires_grad=True)]
        )
    with pytest.raises(InputError, match="eta must be"):
        Perturbation(eta=0.0)
    other = PerturbedStep(Perturbation())
    other.load(core.state())
    with pytest.raises(InputError, match="same model"):
        other.lay_out([torch.ones(4, requires_grad=True)])


@pytest.mark.parametrize("pool", [0, 2**12])
def test_noise_is_uniform_symmetric_and_new_at_every_step(pool: int) -> None:
    from scipy import stats

    noise = UniformNoise(20_000, seed=3, pool=pool)
    first, second = noise(1), noise(2)
    assert stats.kstest(first.numpy(), "uniform", args=(-1, 2)).pvalue > 1e-3
    assert (
        stats.kstest(
            torch.stack([noise(step)[7] for step in range(400)]).numpy(), "uniform", (-1, 2)
        ).pvalue
        > 1e-3
    )
    assert abs(float((first * second).mean())) < 5 / 3 / math.sqrt(20_000)
    assert abs(float((first[1:] * first[:-1]).mean())) < 5 / 3 / math.sqrt(20_000)
    assert torch.equal(noise(1), UniformNoise(20_000, seed=3, pool=pool)(1))
    assert not torch.equal(noise(1), UniformNoise(20_000, seed=4, pool=pool)(1))
    grid = first.double() * 2**24
    assert torch.equal(grid, grid.round())
    assert (grid.long() % 2 == 1).all()
