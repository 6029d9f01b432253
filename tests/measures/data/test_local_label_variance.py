"""Where labels vary: the weights, their neighbors, and the samples to look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mindgap.core import Gallery, Heatmap, Histogram, Measure, Result, Subject
from mindgap.data import two_moons
from mindgap.measures import LocalLabelVariance
from mindgap.measures.data import local_label_variance
from mindgap.nets import MLP
from mindgap.ops.models.head import head_features
from mindgap.ops.variance.estimator import VarianceWeights


@pytest.fixture(scope="module")
def classes() -> Subject:
    """Ten overlapping classes and an untrained network."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 10
    inputs = torch.randn(200, 8, generator=random)
    inputs[:, 0] += labels
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Subject(MLP((8, 16, 10)), "cross_entropy", (inputs, labels))


def clouds(count: int = 60, wrong: tuple[int, ...] = ()) -> Subject:
    """Two clouds that lie apart, and an untrained model of one linear layer."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    inputs = torch.randn(count, 2, generator=random) + 20 * labels[:, None]
    labels = labels.clone()
    for place in wrong:
        labels[place] = 1 - labels[place]
    return Subject(nn.Linear(2, 2), "cross_entropy", (inputs, labels), classes=("left", "right"))


def every(result: Result) -> list[dict[str, Any]]:
    return [*result.details["heaviest"], *result.details["doubtful"]]


def chart(result: Result, kind: type) -> Any:
    return next((found for found in result.charts if isinstance(found, kind)), None)


def test_weights_and_neighbors_are_those_of_brute_force(classes: Subject) -> None:
    found = LocalLabelVariance(shown=12)(classes)
    features, labels = head_features(classes).double().numpy(), classes.targets("train").numpy()
    near = np.argsort(((features[:, None] - features) ** 2).sum(2), axis=1)[:, :20]
    variance = np.eye(10)[labels][near].var(1, ddof=1).sum(1)
    weights = 1 + 39 * variance / variance.max()
    assert found.terms["k"] == 20
    assert found.value == pytest.approx(variance.mean())
    assert found.terms["mean_weight"] == pytest.approx(weights.mean())
    assert [heavy["weight"] for heavy in found.details["heaviest"]] == pytest.approx(
        sorted(weights)[::-1][: len(found.details["heaviest"])]
    )
    for heavy in every(found):
        others = labels[near[heavy["index"]][1:]]
        told = dict(part.replace(")", "").split("\u00a0(") for part in heavy["around"].split(", "))
        assert heavy["weight"] == pytest.approx(weights[heavy["index"]])
        assert heavy["target"] == str(labels[heavy["index"]])
        assert heavy["agreement"] == pytest.approx((others == labels[heavy["index"]]).mean())
        assert heavy["suspect"] == (heavy["agreement"] <= 0.1)
        assert sum(map(int, told.values())) == 19


def test_the_histogram_counts_every_sample_and_every_suspect(classes: Subject) -> None:
    found = LocalLabelVariance(shown=12)(classes)
    histogram = chart(found, Histogram)
    assert sum(histogram.counts["samples"]) == found.terms["samples"] == found.terms["of"] == 200
    assert sum(histogram.counts["suspects"]) == found.terms["suspects"] > 0
    assert histogram.edges[-1] == pytest.approx(40)


def test_a_wrong_label_amid_a_class_is_a_suspect_though_it_weighs_little() -> None:
    found = LocalLabelVariance(shown=9)(clouds(wrong=(7,)))
    assert found.terms["suspects"] == 1
    marked = [heavy for heavy in every(found) if heavy["suspect"]]
    assert [heavy["index"] for heavy in marked] == [7]
    assert marked[0]["around"] == "right\u00a0(14)"
    assert marked[0]["target"] == "left"
    assert marked[0]["agreement"] == 0
    flags = {s.flag for g in found.charts if isinstance(g, Gallery) for s in g.samples}
    assert "suspect" in flags


def test_calm_samples_are_not_shown_as_heavy() -> None:
    found = LocalLabelVariance()(clouds(wrong=(7,)))
    assert 0 < len(found.details["heaviest"]) <= 24
    assert all(heavy["weight"] > 1 for heavy in found.details["heaviest"])
    few = LocalLabelVariance()(clouds(count=200, wrong=(7,))).details["heaviest"]
    # All of them lie around the wrong label, in its cloud.
    assert [heavy["index"] % 2 for heavy in few] == [1] * 24


def test_suspects_that_are_not_heavy_have_a_place_of_their_own() -> None:
    random = torch.Generator().manual_seed(0)
    middle = torch.randn(40, 2, generator=random) + 60  # labels at random: the heaviest
    sides = torch.randn(60, 2, generator=random) + 20 * (torch.arange(60) % 2)[:, None]
    labels = torch.cat([torch.randint(0, 2, (40,), generator=random), torch.arange(60) % 2])
    labels[50] = 1 - labels[50]
    found = LocalLabelVariance(shown=12)(
        Subject(nn.Linear(2, 2), "cross_entropy", (torch.cat([middle, sides]), labels))
    )
    assert 50 in [heavy["index"] for heavy in found.details["doubtful"]]
    assert all(heavy["index"] < 40 for heavy in found.details["heaviest"])
    assert len(every(found)) <= 12


def test_labels_that_do_not_vary_are_zero_without_charts() -> None:
    found = LocalLabelVariance()(clouds())
    assert (found.value, found.charts) == (0.0, ())


def test_many_samples_are_thinned_and_keep_their_places(
    classes: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_label_variance, "MOST_SAMPLES", 80)
    found = LocalLabelVariance(shown=12)(classes)
    assert (found.terms["samples"], found.terms["of"]) == (80, 200)
    assert max(heavy["index"] for heavy in every(found)) >= 80
    for heavy in every(found):
        assert heavy["target"] == str(int(classes.targets("train")[heavy["index"]]))
    assert "of 80 samples, drawn at random" in chart(found, Histogram).caption
    other = LocalLabelVariance(shown=12, seed=1)(classes)
    assert other.details["heaviest"] != found.details["heaviest"]


@pytest.mark.parametrize("loss", ["mse", "bce"])
def test_values_and_several_labels_are_thinned_too(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_label_variance, "MOST_SAMPLES", 40)
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(90, 5, generator=random)
    targets = torch.randint(0, 2, (90, 3), generator=random).float()
    found = LocalLabelVariance(shown=6)(Subject(nn.Linear(5, 3), loss, (inputs, targets)))
    assert (found.terms["samples"], found.terms["of"]) == (40, 90)
    assert len(found.details["heaviest"]) == 6


def test_many_suspects_mean_that_neighbors_say_little() -> None:
    random = torch.Generator().manual_seed(0)
    data = torch.randn(200, 3, generator=random), torch.arange(200) % 20
    found = LocalLabelVariance()(Subject(nn.Linear(3, 20), "cross_entropy", data))
    assert found.terms["suspects"] > 30
    suspects = [g for g in found.charts if isinstance(g, Gallery) and g.title == "Suspects"]
    assert "neighbors say little" in suspects[0].caption


def test_wide_features_allow_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_label_variance, "MOST_NUMBERS", 100)
    monkeypatch.setattr(local_label_variance, "FEWEST", 30)
    assert LocalLabelVariance()(clouds(wrong=(3, 4))).terms["samples"] == 50


def test_no_head_means_the_inputs_and_tokens_have_none() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 4), nn.Flatten())
    random = torch.Generator().manual_seed(0)
    images = torch.randn(40, 1, 4, 4, generator=random)
    labels = torch.randint(0, 2, (40,), generator=random)
    found = LocalLabelVariance(shown=4)(Subject(model, "cross_entropy", (images, labels)))
    expected = VarianceWeights(10).fit(images.flatten(1), labels).weights_
    assert found.details["features"] == "the inputs"
    assert found.terms["mean_weight"] == pytest.approx(expected.mean())
    assert all(s.image.startswith("data:image/png") for s in chart(found, Gallery).samples)
    tokens = (torch.randint(0, 10, (40, 4), generator=random), labels)
    none = LocalLabelVariance()(Subject(nn.EmbeddingBag(10, 2), "cross_entropy", tokens))
    assert "tokens" in none.reason


def test_a_regression_tells_of_the_values_around() -> None:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 20, generator=random)
    targets = inputs[:, :1] + 0.1 * torch.randn(40, 1, generator=random)
    found = LocalLabelVariance(shown=3)(Subject(nn.Linear(20, 1), "mse", (inputs, targets)))
    heavy = found.details["heaviest"][0]
    near = (inputs - inputs[heavy["index"]]).double().square().sum(1).argsort()[1:10]
    words = heavy["around"].replace("−", "-").replace(",", "").split()
    values = targets.flatten().double()[near]
    assert [float(words[k]) for k in (1, 3, 5)] == pytest.approx(
        [float(values.mean()), float(values.min()), float(values.max())], rel=1e-3
    )
    assert heavy["agreement"] is None
    assert found.terms["k"] == 10
    assert "… 8 more" in chart(found, Gallery).samples[0].facts["inputs"]


def test_one_yes_or_no_label_is_a_class_of_two() -> None:
    data = two_moons(120, noise=0.3)
    subject = Subject(
        MLP((2, 4, 1)), "bce", (data.inputs, data.targets[:, None].float()), classes=data.classes
    )
    found = LocalLabelVariance(shown=6)(subject)
    assert {heavy["target"] for heavy in every(found)} <= {"upper", "lower"}
    assert found.details["features"] == "the inputs of the last linear layer, 3"
    assert len(chart(found, Heatmap).contours) == 1


def test_several_labels() -> None:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 5, generator=random)
    targets = torch.randint(0, 2, (60, 3), generator=random).float()
    subject = Subject(nn.Linear(5, 3), "bce", (inputs, targets), classes=("a", "b", "c"))
    heavy = LocalLabelVariance(shown=4)(subject).details["heaviest"][0]
    assert heavy["agreement"] is None
    assert heavy["around"].count("(") >= 2


def test_a_wrong_value_is_a_suspect() -> None:
    inputs = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    targets = inputs.sum(1, keepdim=True)
    targets[17] += 40
    found = LocalLabelVariance(shown=6)(Subject(nn.Linear(2, 1), "mse", (inputs, targets)))
    assert found.terms["suspects"] == 1
    assert [heavy["index"] for heavy in every(found) if heavy["suspect"]] == [17]
    assert "standard deviations" in chart(found, Histogram).caption


@pytest.mark.parametrize("count", [2, 3, 5])
def test_tiny_data(count: int) -> None:
    random = torch.Generator().manual_seed(0)
    data = torch.randn(count, 3, generator=random), torch.arange(count) % 2
    found = LocalLabelVariance()(Subject(nn.Linear(3, 2), "cross_entropy", data))
    assert found.terms["k"] == 2
    assert len(every(found)) <= count


def test_no_samples_are_shown_if_none_are_wanted(classes: Subject) -> None:
    found: Measure = LocalLabelVariance(shown=0)
    assert every(found(classes)) == []
    assert chart(found(classes), Histogram)
    assert len(every(LocalLabelVariance(shown=1000)(classes))) <= 24


def test_the_plane_of_two_features() -> None:
    data = two_moons(150, noise=0.3)
    subject = Subject(MLP((2, 8, 2)), "cross_entropy", data.train, classes=data.classes)
    plane = chart(LocalLabelVariance(shown=4)(subject), Heatmap)
    (boundary,) = plane.contours
    assert np.shape(plane.z) == np.shape(boundary.z) == (len(plane.y), len(plane.x)) == (41, 41)
    assert [group.name for group in plane.points] == ["upper", "lower"]
    assert sum(len(group.x) for group in plane.points) == 150
    places = torch.tensor([[x, y] for y in plane.y for x in plane.x])
    answers = subject.forward((places,)).argmax(1).reshape(41, 41).bool()
    sure = torch.tensor(boundary.z).abs() > 1e-2
    assert torch.equal((torch.tensor(boundary.z) > 0)[sure], answers[sure])


def test_the_plane_of_three_classes_has_three_boundaries_and_of_values_none() -> None:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(90, 2, generator=random)
    subject = Subject(nn.Linear(2, 3), "cross_entropy", (inputs, torch.arange(90) % 3))
    plane = chart(LocalLabelVariance()(subject), Heatmap)
    margins = torch.tensor([contour.z for contour in plane.contours])
    assert margins.shape == (3, 41, 41)
    assert torch.equal((margins > 0).sum(0).clamp_max(1), (margins.amax(0) > 0).long())
    values = chart(
        LocalLabelVariance()(Subject(nn.Linear(2, 1), "mse", (inputs, inputs[:, :1]))), Heatmap
    )
    assert values.contours == ()
    assert values.points[0].values[:5] == pytest.approx(inputs[:5, 0].tolist(), rel=1e-3)
