"""Geometry of features: against other implementations, and what is known of extreme cases."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.metrics import davies_bouldin_score
from torch import nn

from mindgap.core import Measure, Recipe, Subject, grouped_jackknife, jackknife_error
from mindgap.data import digits
from mindgap.measures import (
    AugmentationConsistency,
    DaviesBouldin,
    MixupConsistency,
    NeuralCollapse,
    PredictionDepth,
)
from mindgap.measures.features import davies_bouldin, neural_collapse
from mindgap.nets import MLP, LeNet5
from mindgap.training.fit import fit


@given(st.integers(0, 10_000), st.integers(2, 5))
@settings(max_examples=25, deadline=None)
def test_davies_bouldin_equals_scikit_learn(seed: int, classes: int) -> None:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(40, 3, generator=random, dtype=torch.float64) + 100
    y = torch.arange(40) % classes
    subject = Subject(nn.Linear(3, classes).double(), "cross_entropy", (x, y))
    wanted = davies_bouldin_score(x.numpy() - 100, y.numpy())  # which loses digits far from zero
    assert float(DaviesBouldin()(subject)) == pytest.approx(wanted, rel=1e-9)


def test_classes_of_one_mean_are_undefined() -> None:
    x = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    subject = Subject(nn.Linear(1, 2), "cross_entropy", (x, torch.tensor([0, 0, 1, 1])))
    for measure in (DaviesBouldin(), NeuralCollapse()):
        assert "mean features differ" in measure(subject).reason


def test_jackknife_agrees_with_repeated_draws() -> None:
    def draw(seed: int) -> Subject:
        random = torch.Generator().manual_seed(seed)
        y = torch.arange(400) % 2
        x = torch.randn(400, 2, generator=random) + 2.0 * y[:, None]
        return Subject(nn.Linear(2, 2), "cross_entropy", (x, y))

    results = [DaviesBouldin()(draw(seed)) for seed in range(60)]
    spread = torch.tensor([float(r) for r in results]).std()
    errors = torch.tensor([r.standard_error for r in results]).mean()
    assert 0.75 < float(errors / spread) < 1.35


@pytest.mark.parametrize("measure", [DaviesBouldin(), NeuralCollapse()])
def test_a_part_of_many_samples_says_so_and_is_near_the_whole(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = torch.Generator().manual_seed(0)
    y = torch.arange(6000) % 3
    x = torch.randn(6000, 2, generator=random) + torch.eye(3)[y, :2] * 3
    subject = Subject(nn.Linear(2, 3), "cross_entropy", (x, y))
    whole = measure(subject)
    monkeypatch.setattr(davies_bouldin, "NUMBERS", 2 * 2000)
    part = measure(subject)
    assert (whole.terms["samples"], part.terms["samples"], part.terms["of"]) == (6000, 2000, 6000)
    assert 1.1 < part.standard_error / whole.standard_error < 2.7  # the root of three, roughly
    assert 0 < abs(float(part) - float(whole)) < 3 * part.standard_error


def test_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = torch.randn(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    error = grouped_jackknife(lambda kept: float(values[kept].mean()), 20)
    assert error == pytest.approx(float(values.std()) / math.sqrt(20), rel=1e-9)
    assert grouped_jackknife(lambda _: 0.0, 1) == math.inf


def simplex(noise: float) -> Subject:
    """Features at the corners of a simplex, and a head that is its transpose."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    corners = torch.eye(3, dtype=torch.float64) - 1 / 3
    x = corners[y] + noise * torch.randn(60, 3, generator=random, dtype=torch.float64)
    head = nn.Linear(3, 3, bias=False).double()
    with torch.no_grad():
        head.weight.copy_(5 * corners)
    return Subject(head, "cross_entropy", (x, y))


def test_a_simplex_is_fully_collapsed() -> None:
    result = NeuralCollapse()(simplex(0.0))
    names = ("nc2_norms", "nc2_angles", "nc2_weight_norms", "nc2_weight_angles", "nc3", "nc4")
    assert set(result.terms) == {*names, "samples", "of"}
    assert result.value == pytest.approx(0, abs=1e-12)
    assert all(result.terms[name] == pytest.approx(0, abs=1e-12) for name in names)


def test_collapse_grows_with_the_noise_and_a_wrong_head_shows() -> None:
    near, far = simplex(0.05), simplex(0.3)
    assert float(NeuralCollapse()(near)) < 0.1 * float(NeuralCollapse()(far))
    with torch.no_grad():
        near.model.weight.copy_(near.model.weight.roll(1, 0))
    wrong = NeuralCollapse()(near)
    assert wrong.terms["nc3"] == pytest.approx(math.sqrt(3), rel=0.05)  # cosine of −1/2
    assert wrong.terms["nc4"] == 1.0


def learned(random_labels: bool) -> Subject:
    data = digits().subset(300, seed=0)
    x, y = data.train
    if random_labels:
        y = torch.randint(10, (len(y),), generator=torch.Generator().manual_seed(0))
    recipe = Recipe(
        model=lambda: MLP((64, 64, 64, 10)), train=(x, y), epochs=150, learning_rate=5e-3
    )
    return fit(recipe, evaluate_every=0).subject()


@pytest.fixture(scope="module")
def pair() -> tuple[Subject, Subject]:
    return learned(False), learned(True)


def test_memorized_samples_are_deeper_and_mix_worse(pair: tuple[Subject, Subject]) -> None:
    true, random = pair
    assert true.mean_error("train") == random.mean_error("train") == 0
    assert float(PredictionDepth()(true)) < 1 < 2 < float(PredictionDepth()(random))
    assert float(MixupConsistency()(true)) > 0.9 > 0.7 > float(MixupConsistency()(random))
    assert float(DaviesBouldin()(true)) < float(DaviesBouldin()(random))


def test_random_pairs_estimate_the_share_of_all_pairs(pair: tuple[Subject, Subject]) -> None:
    every = MixupConsistency(pairs=10**6)(pair[1])
    some = MixupConsistency(pairs=3000, seed=1)(pair[1])
    assert every.status == "exact"
    assert some.status == "estimate"
    assert some.terms["pairs"] == 3000
    assert abs(some.value - every.value) < 4 * some.standard_error
    assert some.interval.low < every.value < some.interval.high


def test_random_pairs_are_two_samples_of_one_class() -> None:
    from mindgap.measures.features.mixup_consistency import _pairs

    targets = torch.randint(5, (200,), generator=torch.Generator().manual_seed(0))
    targets[7] = 5  # alone in its class
    first, second, every = _pairs(targets, 2000, 0)
    assert not every
    assert bool((targets[first] == targets[second]).all())
    assert bool((first != second).all())
    assert len(set(second.tolist())) > 150


def test_shifts_move_images_by_whole_pixels() -> None:
    image = torch.arange(9.0).view(1, 1, 3, 3)
    measure = AugmentationConsistency()
    assert measure._shifted(image, 1, 0)[0, 0].tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]
    assert measure._shifted(image, 0, -1)[0, 0].tolist() == [[1, 2, 2], [4, 5, 5], [7, 8, 8]]


def test_a_network_that_averages_its_pixels_does_not_mind_mirrors() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean((1, 2, 3))[:, None] * self.scale * torch.tensor([1.0, -1.0])

    images = torch.randn(20, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    subject = Subject(Mean(), "cross_entropy", (images, torch.arange(20) % 2))
    result = AugmentationConsistency()(subject)
    assert result.terms["mirrored"] == 1.0
    assert result.value < 1.0


def test_tables_have_no_shifts() -> None:
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    subject = Subject(nn.Linear(3, 2), "cross_entropy", (x, torch.arange(8) % 2))
    assert "images" in AugmentationConsistency()(subject).reason


def test_depth_of_a_convolutional_net_counts_all_its_layers() -> None:
    images = torch.rand(20, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    subject = Subject(LeNet5(), "cross_entropy", (images, torch.arange(20) % 10))
    result = PredictionDepth()(subject)
    layers = [m for m in subject.model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    assert result.terms["largest"] == len(layers) + 1
    assert 0 <= result.value <= len(layers) + 1


@pytest.mark.parametrize(("samples", "width", "classes"), [(50, 3, 4), (300, 5, 2)])
def test_leaving_groups_out_at_once_equals_leaving_them_out_one_by_one(
    samples: int, width: int, classes: int
) -> None:
    source = torch.Generator().manual_seed(0)
    centers = 100 + 3 * torch.randn(classes, width, generator=source).double()
    labels = torch.arange(samples) % classes
    features = centers[labels] + torch.randn(samples, width, generator=source).double()
    index = grouped_jackknife(
        lambda kept: float(davies_bouldin._index(features[kept], labels[kept]).mean()), samples
    )
    collapse = grouped_jackknife(
        lambda kept: neural_collapse._nc1(features[kept], labels[kept]), samples
    )
    found = davies_bouldin._without_groups(features, labels).mean(1).tolist()
    assert jackknife_error(found) == pytest.approx(index, rel=1e-9)
    assert jackknife_error(neural_collapse._without_groups(features, labels)) == pytest.approx(
        collapse, rel=1e-9
    )
