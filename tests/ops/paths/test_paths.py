"""Path space without a list of paths equals path space with one."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from path_list import Paths
from torch import Tensor, nn
from torch.nn import functional

from mindgap.core import InputError, Subject, Undefined
from mindgap.nets import MLP, LeNet5
from mindgap.ops.models.rescaling import rescaled
from mindgap.ops.paths.chain import Chain, Rectifier, Weights, read_chain
from mindgap.ops.paths.concentrated import proposition_4
from mindgap.ops.paths.gram import gram, squared_norms
from mindgap.ops.paths.largest import largest_over_paths, path_bound
from mindgap.ops.paths.norms import log_path_norms, path_distance
from mindgap.ops.paths.spectrum import largest_eigenvalues
from mindgap.ops.paths.subject import Sides, chain_of

DEEP = nn.Sequential
NETWORKS = {
    "one hidden layer": (lambda: MLP((3, 4, 2)), (3,)),
    "two hidden layers": (lambda: MLP((3, 4, 5, 2)), (3,)),
    "three, without biases": (lambda: MLP((3, 2, 3, 2, 2), bias=False), (3,)),
    "leaky, biases in part": (
        lambda: DEEP(
            nn.Linear(3, 4, bias=False), nn.LeakyReLU(0.2), nn.Linear(4, 3), nn.Linear(3, 2, bias=False)
        ),
        (3,),
    ),
    "images, flattened": (lambda: DEEP(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (1, 2, 2)),
    "convolution and max-pool": (
        lambda: DEEP(
            nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(2, 3, 2), nn.ReLU(),
            nn.Flatten(), nn.Linear(3, 2),
        ),
        (1, 4, 4),
    ),
    "overlapping, padded windows before the gate": (
        lambda: DEEP(
            nn.Conv2d(2, 2, 2, stride=2), nn.MaxPool2d(3, stride=1, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(8, 3),
        ),
        (2, 5, 5),
    ),
    "two poolings and a gate after flattening": (
        lambda: DEEP(
            nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.LeakyReLU(0.1),
            nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.ReLU(), nn.Linear(2, 3),
        ),
        (1, 4, 4),
    ),
}  # fmt: skip


def made(make, shape: tuple[int, ...], seed: int = 0, samples: int = 9) -> tuple[nn.Module, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make().double(), torch.randn(samples, *shape, dtype=torch.double)


def weights(held: int, training: int) -> Tensor:
    return torch.cat(
        [torch.full((held,), 1 / held), torch.full((training,), -1 / training)]
    ).double()


def beta_1(chain: Chain, inputs: Tensor, own: Tensor) -> float:
    found, paths = gram(chain, inputs), float(log_path_norms(chain, 0)[0])
    return float(largest_eigenvalues(found.matrix, own[:, None], paths)) * math.exp(found.log_scale)


@pytest.mark.parametrize("name", NETWORKS)
class TestAgainstEnumeration:
    def test_outputs_are_inner_products(self, name: str) -> None:
        model, inputs = made(*NETWORKS[name])
        paths, chain = Paths(model, inputs), read_chain(model, inputs.shape[1:])
        assert np.allclose(paths.features @ paths.weights.T, paths.outputs, rtol=1e-12)
        assert np.allclose(chain.run(inputs)[0], paths.outputs, rtol=1e-12)

    def test_inner_products(self, name: str) -> None:
        model, inputs = made(*NETWORKS[name])
        features, chain = Paths(model, inputs).features, read_chain(model, inputs.shape[1:])
        found, own = gram(chain, inputs), squared_norms(chain, inputs)
        wanted = features @ features.T
        assert np.allclose(found.matrix * math.exp(found.log_scale), wanted, rtol=1e-9, atol=1e-12)
        assert np.allclose(own.matrix * math.exp(own.log_scale), np.diag(wanted), rtol=1e-9)

    @pytest.mark.parametrize("power", [0, 1, 2])
    def test_norms(self, name: str, power: int) -> None:
        model, inputs = made(*NETWORKS[name])
        found = log_path_norms(read_chain(model, inputs.shape[1:]), power).exp()
        wanted = (np.abs(Paths(model, inputs).weights) ** power).sum(1)
        assert np.allclose(found, wanted, rtol=1e-9)

    def test_distance(self, name: str) -> None:
        (one, inputs), (other, _) = made(*NETWORKS[name]), made(*NETWORKS[name], seed=1)
        chains = [read_chain(model, inputs.shape[1:]) for model in (one, other)]
        wanted = np.linalg.norm(Paths(one, inputs).weights - Paths(other, inputs).weights)
        assert path_distance(*chains) == pytest.approx(wanted, rel=1e-9)

    def test_beta_1(self, name: str) -> None:
        for samples in (9, 40):  # more paths than samples, and fewer in the smallest
            model, inputs = made(*NETWORKS[name], samples=samples)
            features, own = Paths(model, inputs).features, weights(5, samples - 5)
            moments = features.T @ (own.numpy()[:, None] * features)
            found = beta_1(read_chain(model, inputs.shape[1:]), inputs, own)
            scale = np.abs(moments).sum()
            assert found == pytest.approx(np.linalg.eigvalsh(moments)[-1], abs=1e-10 * scale)

    def test_beta_2(self, name: str) -> None:
        model, inputs = made(*NETWORKS[name])
        features, chain = Paths(model, inputs).features, read_chain(model, inputs.shape[1:])
        targets = torch.randn(9, 3, generator=torch.Generator().manual_seed(1)).double()
        targets[:3, 0] = 0  # as classes have it
        wanted = np.abs(features.T @ targets.numpy()).max(0)
        found = largest_over_paths(chain, inputs, targets)
        assert (path_bound(chain, inputs, targets).numpy() >= wanted * (1 - 1e-12)).all()
        if found.exact:
            assert np.allclose(found.values, wanted, rtol=1e-9)
        else:
            assert "conv" in str(type(model[0])).lower() or name.startswith("leaky")
            assert (found.values.numpy() >= wanted * (1 - 1e-12)).all()


def test_ninety_thousand_paths() -> None:
    model, inputs = made(lambda: MLP((20, 66, 66, 2)), (20,), samples=24)
    paths, chain, own = Paths(model, inputs), read_chain(model, (20,)), weights(10, 14)
    assert 9e4 < len(paths.weights[0]) < 1e5
    found, wanted = gram(chain, inputs), paths.features @ paths.features.T
    assert np.allclose(found.matrix * math.exp(found.log_scale), wanted, rtol=1e-9)
    for power in (1, 2):
        norms = (np.abs(paths.weights) ** power).sum(1)
        assert np.allclose(log_path_norms(chain, power).exp(), norms, rtol=1e-9)
    # The non-zero eigenvalues of the moments are those of a matrix over samples.
    values, vectors = np.linalg.eigh(wanted)
    root = vectors * np.sqrt(values.clip(0))
    largest = np.linalg.eigvalsh(root.T @ (own.numpy()[:, None] * root))[-1]
    assert beta_1(chain, inputs, own) == pytest.approx(largest, rel=1e-9)
    coefficients = own[:, None] * torch.eye(2).double()[torch.arange(24) % 2]
    exact = np.abs(paths.features.T @ coefficients.numpy()).max(0)
    assert np.allclose(largest_over_paths(chain, inputs, coefficients).values, exact, rtol=1e-9)


def random_chain(random: np.random.Generator) -> Chain:
    """Up to two hidden layers of one to four units, with weights of any size, biases or none."""
    widths = [int(k) for k in random.integers(1, 5, random.integers(2, 5))]
    biased, steps = bool(random.integers(2)), []
    for before, width in pairwise(widths):
        values = torch.from_numpy(
            random.standard_normal((width, before + 1)) * random.exponential(2)
        )
        steps += [Weights(values[:, 1:], values[:, 0] if biased else None), Rectifier()]
    return Chain(tuple(steps[:-1]), (widths[0], 1, 1))


def random_sides(seed: int) -> Sides:
    random = np.random.default_rng(seed)
    chain, (held, training) = random_chain(random), random.integers(3, 15, 2)
    inputs = torch.from_numpy(random.standard_normal((held + training, chain.shape[0])))
    outputs = chain.run(inputs)[0]
    classes = outputs.shape[1] > 1 and bool(random.integers(2))
    drawn = random.integers(0, outputs.shape[1], len(inputs))
    targets = np.eye(outputs.shape[1])[drawn] if classes else random.standard_normal(outputs.shape)
    held_out = torch.arange(len(inputs)) < int(held)
    return Sides(chain, inputs, torch.from_numpy(targets), outputs, held_out)


def test_proposition_4_holds_on_a_thousand_networks() -> None:
    positive = 0
    for seed in range(1000):
        found = proposition_4(random_sides(seed))
        scale = 1e-12 * (abs(found.quadratic) + abs(found.linear) + abs(found.beta_3) + 1)
        assert found.gap <= found.limit + scale, seed
        assert found.limit <= found.as_published + scale, seed
        assert found.gap == pytest.approx(
            found.quadratic + found.linear + found.beta_3, abs=scale
        ), seed
        positive += found.gap > 0
    assert positive > 300


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    logarithm=st.floats(-4, 4),
    layer=st.integers(0, 1),
    deep=st.booleans(),
)
def test_rescaling_a_layer_changes_nothing(
    seed: int, logarithm: float, layer: int, deep: bool
) -> None:
    """Path weights and gates are those of the function, whatever the scale of its layers."""
    widths = (3, 4, 3, 2) if deep else (3, 4, 2)
    model, inputs = made(lambda: MLP(widths), (3,), seed, 20)
    other = rescaled(model, 10**logarithm, layer=layer if deep else 0)
    one, two = (read_chain(each, (3,)) for each in (model, other))
    assert torch.allclose(gram(one, inputs).matrix, gram(two, inputs).matrix, rtol=1e-9)
    for power in (1, 2):
        assert torch.allclose(
            log_path_norms(one, power), log_path_norms(two, power), rtol=1e-9, atol=1e-9
        )
    assert path_distance(one, two) <= 1e-6 * math.exp(
        0.5 * float(log_path_norms(one, 2).logsumexp(0))
    )


def test_rescaling_one_unit_changes_nothing() -> None:
    model, inputs = made(lambda: MLP((3, 4, 3, 2)), (3,))
    before = read_chain(model, (3,))
    with torch.no_grad():
        model[1].weight[2] *= 10
        model[1].bias[2] *= 10
        model[3].weight[:, 2] /= 10
    after = read_chain(model, (3,))
    assert torch.allclose(log_path_norms(before, 1), log_path_norms(after, 1), rtol=1e-12)
    assert torch.equal(gram(before, inputs).matrix, gram(after, inputs).matrix)


def test_norms_of_deep_networks_do_not_overflow() -> None:
    model, inputs = made(lambda: MLP((4, *[64] * 200, 2)), (4,))
    chain = read_chain(model, (4,))
    assert float(log_path_norms(chain, 0)[0]) > 800
    assert torch.isfinite(log_path_norms(chain, 1)).all()
    found = gram(chain, inputs)
    assert found.log_scale > 700
    assert torch.isfinite(found.matrix).all()


def test_dead_network_has_no_moments() -> None:
    model, inputs = made(lambda: MLP((3, 4, 2), bias=False), (3,))
    with torch.no_grad():
        model[1].weight.zero_()
    assert beta_1(read_chain(model, (3,)), inputs, weights(4, 5)) == 0.0


def test_negative_definite_moments_keep_their_sign() -> None:
    """Two paths, and training samples that are larger in both directions."""
    model, _ = made(lambda: MLP((2, 1), bias=False), (2,))
    inputs = torch.tensor([[1.0, 0], [0, 1], [3, 0], [0, 3]], dtype=torch.double)
    assert beta_1(read_chain(model, (2,)), inputs, weights(2, 2)) == pytest.approx(-4.0)


def test_batch_normalization_is_folded() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Dropout(), nn.Flatten(),
        nn.Linear(12, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2),
    ).double()  # fmt: skip
    inputs = torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        model(inputs)
        wanted = model.eval()(inputs)
    assert torch.allclose(read_chain(model, (1, 4, 4)).run(inputs)[0], wanted, rtol=1e-10)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.act, self.two = nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(x + self.act(self.one(x)))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(functional.relu(self.one(x)))


@pytest.mark.parametrize(
    ("model", "shape", "word"),
    [
        (MLP((3, 4, 2), activation="tanh"), (3,), "Tanh"),
        (Residual(), (3,), "Linear"),
        (Functional(), (3,), "Linear"),
        (
            nn.Sequential(nn.Conv2d(2, 4, 1, groups=2), nn.Flatten(), nn.Linear(4, 2)),
            (2, 1, 1),
            "one group",
        ),
        (
            nn.Sequential(nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(4, 2)),
            (1, 3, 3),
            "ceil_mode",
        ),
        (nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), (3,), "BatchNorm1d"),
        (nn.Sequential(nn.Linear(3, 2), nn.LeakyReLU(2.0), nn.Linear(2, 2)), (3,), "from 0 to 1"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_other_networks_are_refused(model: nn.Module, shape: tuple[int, ...], word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        read_chain(model, shape)
    assert str(caught.value).count(". ") == 1  # what was expected and came, what to do
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert not any(hooks)


def test_what_random_samples_do_not_show_is_found_on_real_ones() -> None:
    class Clipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.clamp(-100, 100))

    x = 1000 * torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    subject = Subject(Clipped(), "cross_entropy", (x, torch.arange(20) % 2))
    with pytest.raises(Undefined, match="nothing but call its layers"):
        chain_of(subject)


def test_lenet_has_the_paths_it_should_have() -> None:
    chain = read_chain(LeNet5(activation="relu", pool="max"), (1, 28, 28))
    assert len(chain.layers) == 5
    found = gram(chain, torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0)))
    assert bool((torch.linalg.eigvalsh(found.matrix) > 0).all())
