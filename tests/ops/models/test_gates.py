"""Recorded gates are those of the layers, and a replay with the same weights is the same pass."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.ops.models.gates import recorded, replayed


def images(seed: int = 0) -> Tensor:
    return torch.randn(3, 2, 9, 9, generator=torch.Generator().manual_seed(seed))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(4, 5, 3, padding=1),
        nn.LeakyReLU(0.1, inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.Flatten(),
        nn.Linear(45, 3),
    )


def test_a_replay_with_the_same_weights_is_the_same_pass_bit_by_bit() -> None:
    net, x = network(), images()
    output, gates = recorded(lambda: net(x))
    assert torch.equal(output, net(x))
    assert torch.equal(replayed(gates, lambda: net(x)), output)
    assert [gate.dtype for gate in gates] == [torch.bool, torch.int64] * 2


def test_a_replay_has_the_gradient_of_the_plain_pass() -> None:
    net, x = network().double(), images().double()
    _, gates = recorded(lambda: net(x))
    plain = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    frozen = torch.autograd.grad(
        replayed(gates, lambda: net(x).square().sum()), list(net.parameters())
    )
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(plain, frozen, strict=True))


def test_a_replay_is_linear_in_the_input_of_the_gates() -> None:
    net = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.LeakyReLU(0.3))
    x, one, other = (images(seed).double() for seed in range(3))
    _, gates = recorded(lambda: net(x))
    whole = replayed(gates, lambda: net(one + 3 * other))
    parts = [replayed(gates, lambda given=given: net(given)) for given in (one, other)]
    assert torch.allclose(whole, parts[0] + 3 * parts[1], rtol=1e-12)


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 3]), st.integers(1, 3), st.integers(0, 1))
@settings(max_examples=30, deadline=None)
def test_the_places_of_a_pool_hold_its_largest_entries(
    seed: int, dimensions: int, stride: int, padding: int
) -> None:
    pool = getattr(nn, f"MaxPool{dimensions}d")(2, stride=stride, padding=padding)
    random = torch.Generator().manual_seed(seed)
    # Few values, so that ties are common: torch's own choice must be kept.
    x = torch.randint(0, 3, (2, 2, *[5] * dimensions), generator=random).double()
    output, (places,) = recorded(lambda: pool(x))
    assert torch.equal(output, pool(x))
    assert torch.equal(x.flatten(2).gather(2, places.flatten(2)).view(output.shape), output)
    assert torch.equal(replayed([places], lambda: pool(x)), output)


def test_a_unit_at_zero_is_closed_and_a_tie_goes_to_the_first_entry() -> None:
    x = torch.zeros(1, 1, 4)
    _, gates = recorded(lambda: F.max_pool1d(F.relu(x), 4))
    assert not gates[0].any()
    assert gates[1].item() == 0


def test_functions_and_methods_are_seen_and_indices_are_returned() -> None:
    x = images()

    def run() -> tuple[Tensor, Tensor]:
        y = torch.relu(x - 1).relu()
        F.relu_(y)
        return F.max_pool2d(F.leaky_relu(y, 0.2), 3, return_indices=True)

    plain = run()
    found, gates = recorded(run)
    assert len(gates) == 5
    for values in (found, replayed(gates, run)):
        assert all(torch.equal(a, b) for a, b in zip(values, plain, strict=True))


def test_a_function_in_place_leaves_its_answer_in_the_input() -> None:
    def run() -> Tensor:
        y = torch.tensor([-1.0, 2.0])
        F.leaky_relu_(y, 0.5)
        return y

    gates = [torch.tensor([True, False])]
    assert replayed(gates, run).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize(
    "layer", [nn.GELU(), nn.PReLU(), nn.AdaptiveMaxPool2d(1), nn.Hardtanh(), nn.ReLU6(), nn.ELU()]
)
def test_other_gates_are_refused(layer: nn.Module) -> None:
    with pytest.raises(InputError, match="ReLU, a leaky ReLU or a max-pool"):
        recorded(lambda: layer(images()))


def test_another_number_of_gates_is_refused() -> None:
    gates = [torch.ones(2, dtype=torch.bool)]
    for count in (0, 2):
        with pytest.raises(InputError, match="another number"):
            replayed(gates, lambda count=count: [F.relu(torch.ones(2)) for _ in range(count)])
