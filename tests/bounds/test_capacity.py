"""Bounds by capacity: VC dimension, Rademacher complexity, margins, and the two-phase bound."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from path_list import Paths
from torch import Tensor, nn

from mindgap import Subject
from mindgap.bounds import (
    DataIndependent,
    KoltchinskiiPanchenko,
    Rademacher,
    RobustnessOverPartition,
    ValidationSetGuarantee,
    VcDimension,
)
from mindgap.bounds.margin_bound import EXPONENTS, ramp_losses, rounded_norm, share_of
from mindgap.nets import MLP
from mindgap.ops.models.phases import gates_of, two_phased
from mindgap.ops.paths.chain import read_chain
from mindgap.ops.paths.growth import log_growth, vc_dimension

MARGINS = [Rademacher, KoltchinskiiPanchenko, DataIndependent]


def random_labels(seed: int, samples: int = 200, features: int = 30) -> Subject:
    """A linear model fitted to coin flips by least squares: its risk is one half."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=random, dtype=torch.double)
    y = torch.randint(0, 2, (samples,), generator=random)
    right = torch.linalg.lstsq(x, 2.0 * y[:, None].double() - 1).solution.T
    model = nn.Linear(features, 2, bias=False, dtype=torch.double)
    initial = {"weight": torch.zeros(2, features, dtype=torch.double)}
    model.weight.data = torch.cat([-right, right])
    return Subject(model, "cross_entropy", (x, y), initial=initial)


@pytest.mark.parametrize("bound", [*MARGINS, VcDimension, RobustnessOverPartition])
def test_a_linear_model_that_memorized_coins_is_not_praised(bound: type) -> None:
    for seed in range(5):
        subject = random_labels(seed)
        assert subject.mean_error("train") < 0.4
        found = bound()(subject)
        assert found.valid
        assert found.vacuous
        assert found.value > 0.5


def separable(samples: int = 20_000) -> Subject:
    random = torch.Generator().manual_seed(0)
    y = torch.arange(samples) % 2
    x = torch.randn(samples, 2, generator=random, dtype=torch.double) * 0.05
    x[:, 0] += 2.0 * y - 1
    model = nn.Linear(2, 2, bias=False, dtype=torch.double)
    model.weight.data = torch.tensor([[-1.0, 0], [1.0, 0]], dtype=torch.double)
    return Subject(model, "cross_entropy", (x, y), initial=copy.deepcopy(model.state_dict()))


@pytest.mark.parametrize("bound", [*MARGINS, VcDimension])
def test_capacity_bounds_say_something_where_they_can(bound: type) -> None:
    found = bound()(separable())
    assert found.valid
    assert not found.vacuous
    assert 0 < found.value < 0.3


@pytest.mark.parametrize("bound", MARGINS)
def test_networks_with_learned_features_are_flagged(bound: type) -> None:
    random = torch.Generator().manual_seed(0)
    x, model = torch.randn(40, 4, generator=random), MLP((4, 6, 3))
    subject = Subject(model, "cross_entropy", (x, torch.arange(40) % 3), initial=model.state_dict())
    found = bound()(subject)
    assert found.value is not None
    assert not found.valid
    assert "learned from" in found.reason


def test_rademacher_by_hand() -> None:
    subject = random_labels(0)
    found = Rademacher(delta=0.1)(subject)
    x, weight = (
        subject.train.take(torch.arange(200)).inputs[0].numpy(),
        subject.model.weight.detach().numpy(),
    )
    norm = 2.0 ** math.ceil(math.log2(np.linalg.norm(weight)))
    values = []
    for k in EXPONENTS:
        ramp = np.clip(1 - subject.margins("train").detach().numpy() / 2.0**k, 0, 1).mean()
        complexity = 2 * math.sqrt(2) * norm / (2.0**k * 200) * math.sqrt((x**2).sum())
        share = share_of(k) * share_of(round(math.log2(norm)))
        values.append(ramp + 2 * complexity + 3 * math.sqrt(math.log(2 / (0.1 * share)) / 400))
    assert found.value == pytest.approx(min(values), rel=1e-12)


def test_shares_of_delta_are_a_distribution() -> None:
    assert sum(share_of(k) for k in range(-100_000, 100_001)) == pytest.approx(1, abs=1e-4)
    assert sum(share_of(k) for k in range(-100_000, 100_001)) < 1
    assert rounded_norm(1.0)[0] == 1.0
    assert ramp_losses(torch.tensor([-5.0]))[0] == 1.0


def patterns(points: np.ndarray, labels: np.ndarray) -> int:
    """All error patterns of linear classifiers with a bias on points of a line, by trying cuts."""
    cuts = np.concatenate([[-np.inf], (points[1:] + points[:-1]) / 2, [np.inf]])
    return len({tuple((sign * (points - cut) > 0) != labels) for cut in cuts for sign in (1, -1)})


def test_growth_is_above_the_number_of_patterns() -> None:
    chain = read_chain(MLP((1, 2)), (1,))
    for samples in (1, 2, 5, 40, 200):
        points, labels = np.arange(samples) * 1.0, np.arange(samples) % 2 == 0
        assert log_growth(chain, samples) >= math.log(patterns(points, labels))


def test_vc_dimension_grows_with_width_and_depth_and_is_where_growth_says() -> None:
    chains = [
        read_chain(MLP(widths), (4,)) for widths in ((4, 2), (4, 8, 2), (4, 16, 2), (4, 16, 16, 2))
    ]
    found = [vc_dimension(chain) for chain in chains]
    assert found == sorted(found)
    assert found[0] >= 5  # half-spaces in four dimensions
    for chain, dimension in zip(chains, found, strict=True):
        assert log_growth(chain, dimension) == pytest.approx(dimension * math.log(2))
        assert log_growth(chain, dimension + 1) < (dimension + 1) * math.log(2)


def test_growth_of_a_small_network_by_hand() -> None:
    """One hidden layer of 3 units on 4 inputs: 3 signs of degree 1 in 15 weights, 1 of degree 2 in 23."""
    chain = read_chain(MLP((4, 3, 2)), (4,))
    n = 10_000
    first = math.log(2) + 15 * math.log(2 * math.e * n * 3 / 15)
    second = math.log(2) + 23 * math.log(2 * math.e * n * 2 / 23)
    assert log_growth(chain, n) == pytest.approx(first + second)


def test_max_pooling_counts_its_comparisons() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)
    )
    n = 10_000
    chain = read_chain(model, (1, 4, 4))
    first = math.log(2) + 20 * math.log(2 * math.e * n * 8 * 6 / 20)
    second = math.log(2) + 38 * math.log(2 * math.e * n * 2 / 38)
    assert log_growth(chain, n) == pytest.approx(first + second)


def two_phase(move: float) -> Subject:
    """A network whose weights moved in phase 2, while its gates did not."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = two_phased(MLP((3, 5, 2)).double())
        gates_of(model).freeze()
        for weight in model.parameters():
            weight.data += move * torch.randn_like(weight)
        x = torch.randn(300, 3, dtype=torch.double)
    return Subject(model, "cross_entropy", (x, (x[:, 0] > 0).long()))


def plain(weights: dict[str, Tensor]) -> nn.Module:
    model = MLP((3, 5, 2)).double()
    model.load_state_dict(weights)
    return model


def test_two_phase_networks_are_bounded() -> None:
    subject = two_phase(0.1)
    found = DataIndependent()(subject)
    assert found.valid
    x = subject.train.take(torch.arange(300)).inputs[0]
    gated = gates_of(subject.model)
    states = dict(zip(gated.names, gated.live(), strict=True)), gated.first()
    live, frozen = (Paths(plain(state), x) for state in states)
    norm = float(np.linalg.norm(live.weights - frozen.weights))
    assert found.terms["norm"] / 2 < norm <= found.terms["norm"]
    radius = math.sqrt((frozen.features**2).sum(1).mean())
    assert found.terms["radius"] == pytest.approx(radius, rel=1e-9)
    numbers = {name: found.terms[name] for name in ("empirical", "radius", "norm", "margin")}
    share = share_of(round(math.log2(found.terms["norm"]))) * share_of(
        round(math.log2(found.terms["margin"]))
    )
    again = DataIndependent().evaluate(**numbers, outputs=2, samples=300, share=share)
    assert again.value == pytest.approx(found.value)


def test_published_forms_are_flagged_and_larger() -> None:
    subject = two_phase(0.1)
    values = {}
    for form in ("shifted", "four-classes", "as-published"):
        found = DataIndependent(form=form)(subject)
        assert found.valid == (form == "shifted")
        values[form] = found.terms
    assert values["as-published"]["norm"] > values["shifted"]["norm"]
    assert values["as-published"]["radius"] > values["shifted"]["radius"]


def test_held_out_samples_are_worth_more_than_phase_two() -> None:
    """What the bound prints: the plain bound of the phase-1 network on the same samples is lower."""
    found = DataIndependent()(separable(2000))
    assert found.terms["held_out"] < found.value


def test_exact_inversion_is_next_to_the_printed_form() -> None:
    for hypotheses, samples in itertools.product((1, 1000, 10**9), (100, 10_000)):
        found = ValidationSetGuarantee(hypotheses=hypotheses).evaluate(
            empirical=0.1, samples=samples
        )
        assert found.terms["exact_inversion"] < found.value
