import dataclasses
import json

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from torch import nn

from mindgap import examine
from mindgap.core.subject import Subject
from mindgap.data import two_moons
from mindgap.nets import MLP
from mindgap.ops.models.head import head_features
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.report import Report
from mindgap.report.sections.label_variance import subject as subject_variance
from mindgap.report.sections.label_variance.figures import plane_figure, variance_charts
from mindgap.report.sections.label_variance.subject import variance_of
from mindgap.report.sections.label_variance.summary import MOST, Cloud, Heavy, Variance, look, weigh


def clouds(count=60, wrong=()):
    """Two clouds that lie apart, and an untrained model of one linear layer."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    inputs = torch.randn(count, 2, generator=random) + 20 * labels[:, None]
    labels = labels.clone()
    for place in wrong:
        labels[place] = 1 - labels[place]
    return Subject(nn.Linear(2, 2), "cross_entropy", (inputs, labels), classes=("left", "right"))


def every(variance):
    return (*variance.heaviest, *variance.doubtful)


def test_weights_and_neighbors_are_those_of_brute_force(subject):
    found = variance_of(subject, 12)
    features, labels = head_features(subject).double().numpy(), subject.targets("train").numpy()
    near = np.argsort(((features[:, None] - features) ** 2).sum(2), axis=1)[:, : found.k]
    variance = np.eye(10)[labels][near].var(1, ddof=1).sum(1)
    weights = 1 + 39 * variance / variance.max()
    assert found.k == 20
    assert found.mean == pytest.approx(weights.mean())
    assert [heavy.weight for heavy in found.heaviest] == pytest.approx(
        sorted(weights)[::-1][: len(found.heaviest)]
    )
    for heavy in every(found):
        others = labels[near[heavy.index][1:]]
        told = dict(part.replace(")", "").split("\u00a0(") for part in heavy.around.split(", "))
        assert heavy.weight == pytest.approx(weights[heavy.index])
        assert heavy.target == str(labels[heavy.index])
        assert heavy.agreement == pytest.approx((others == labels[heavy.index]).mean())
        assert heavy.suspect == (heavy.agreement <= 0.1)
        assert sum(map(int, told.values())) == 19
        assert all(
            int(number) == (others == int(name)).sum()
            for name, number in told.items()
            if name != "others"
        )


def test_the_histogram_counts_every_sample_and_every_suspect(subject):
    found = variance_of(subject, 12)
    assert sum(found.counts) == found.samples == found.of == 200
    assert sum(found.marked) == found.suspects
    assert (found.edges[0], found.edges[-1]) == pytest.approx((1, 40))


def test_a_wrong_label_amid_a_class_is_a_suspect_though_it_weighs_little():
    found = variance_of(clouds(wrong=[7]), 9)
    assert found.suspects == 1
    marked = [heavy for heavy in every(found) if heavy.suspect]
    assert [heavy.index for heavy in marked] == [7]
    assert marked[0].around == "right\u00a0(14)"
    assert marked[0].target == "left"
    assert marked[0].agreement == 0


def test_calm_samples_are_not_shown_as_heavy():
    found = variance_of(clouds(wrong=[7]), 24)
    assert 0 < len(found.heaviest) <= 24
    assert all(heavy.weight > 1 for heavy in found.heaviest)
    few = variance_of(clouds(count=200, wrong=[7]), 24)
    assert len(few.heaviest) == 24
    assert (
        sum(heavy.index % 2 == 1 for heavy in few.heaviest) == 24
    )  # around the wrong label, in its cloud


def test_the_surest_suspects_come_first():
    """Neighbors that are at one against a label say more than neighbors that differ among themselves."""
    features = torch.arange(60.0)[:, None]
    labels = torch.arange(60) // 30
    labels[[10, 28, 50]] = torch.tensor([2, 2, 2])
    weighed = weigh(VarianceWeights(7), features, labels)
    cloud = Cloud(
        features, labels, lambda value: str(int(value)), lambda places: [{}] * len(places)
    )
    found = look(cloud, VarianceWeights(7, task="classification"), weighed, 3)
    assert found.suspects == 3
    assert [heavy.index for heavy in found.doubtful] == [10]
    assert found.doubtful[0].around == "0\u00a0(6)"


def test_suspects_that_are_not_heavy_have_a_place_of_their_own():
    random = torch.Generator().manual_seed(0)
    middle = torch.randn(40, 2, generator=random) + 60  # labels at random: the heaviest
    sides = torch.randn(60, 2, generator=random) + 20 * (torch.arange(60) % 2)[:, None]
    labels = torch.cat([torch.randint(0, 2, (40,), generator=random), torch.arange(60) % 2])
    labels[50] = 1 - labels[50]
    found = variance_of(
        Subject(nn.Linear(2, 2), "cross_entropy", (torch.cat([middle, sides]), labels)), 12
    )
    assert 50 in [heavy.index for heavy in found.doubtful]
    assert all(heavy.index < 40 for heavy in found.heaviest)
    assert len(found.heaviest) + len(found.doubtful) <= 12


def test_labels_that_do_not_vary_are_a_reason_and_not_a_section(tmp_path):
    report = examine(clouds())
    assert report.variance.reason.startswith(
        "The 15 nearest training samples of every sample carry one label"
    )
    assert "where labels vary: The 15 nearest" in " ".join(str(report).split())
    text = report.save(tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="variance"' not in text
    assert "carry one label" in text


@pytest.mark.parametrize("error", [RuntimeError("broken\nthing"), KeyboardInterrupt()])
def test_a_section_that_fails_does_not_cost_the_report(subject, monkeypatch, tmp_path, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(subject_variance, "weigh", fail)
    report = examine(subject, measures=["gap"], bounds=())
    assert report.variance.reason in ("failed with RuntimeError: broken thing", "interrupted")
    for suffix in ("html", "json", "md", "txt"):
        assert report.save(tmp_path / f"report.{suffix}").stat().st_size


def test_a_report_of_old_has_no_such_part(report, tmp_path):
    data = json.loads(report.to_json())
    del data["variance"]
    old = Report.from_dict(data)
    assert old.variance is None
    assert 'id="variance"' not in old.save(tmp_path / "old.html").read_text(encoding="utf-8")
    assert "Where labels vary" not in str(old)


def test_text_and_markdown_tell_of_the_heaviest(report, tmp_path):
    for text in (str(report), report.save(tmp_path / "report.md").read_text(encoding="utf-8")):
        assert "also the mark of a wrong label" in " ".join(text.split())
        assert f"no. {report.variance.heaviest[0].index}" in text


def test_many_samples_are_thinned_and_keep_their_places(subject, monkeypatch):
    monkeypatch.setattr(subject_variance, "MOST_SAMPLES", 80)
    found = variance_of(subject, 12)
    assert (found.samples, found.of) == (80, 200)
    assert max(heavy.index for heavy in every(found)) >= 80
    for heavy in every(found):
        assert heavy.target == str(int(subject.targets("train")[heavy.index]))
        assert heavy.prediction == str(int(subject.predictions("train")[heavy.index]))


@pytest.mark.parametrize("loss", ["mse", "bce"])
def test_values_and_several_labels_are_thinned_too(loss, monkeypatch):
    monkeypatch.setattr(subject_variance, "MOST_SAMPLES", 40)
    random = torch.Generator().manual_seed(0)
    inputs, targets = (
        torch.randn(90, 5, generator=random),
        torch.randint(0, 2, (90, 3), generator=random).float(),
    )
    found = variance_of(Subject(nn.Linear(5, 3), loss, (inputs, targets)), 6)
    assert (found.samples, found.of) == (40, 90)
    assert len(found.heaviest) == 6


def test_many_suspects_are_no_suspects(tmp_path):
    random = torch.Generator().manual_seed(0)
    data = torch.randn(200, 3, generator=random), torch.arange(200) % 20
    report = examine(Subject(nn.Linear(3, 20), "cross_entropy", data))
    assert report.variance.suspects > 30
    assert "neighbors say little" in " ".join(str(report).split())
    assert "neighbors say little" in report.save(tmp_path / "page.html").read_text(encoding="utf-8")


def test_wide_features_allow_fewer_samples(monkeypatch):
    monkeypatch.setattr(subject_variance, "MOST_NUMBERS", 100)
    monkeypatch.setattr(subject_variance, "FEWEST", 30)
    assert variance_of(clouds(wrong=[3, 4]), 5).samples == 50


def test_the_model_stays_as_it_is():
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data = two_moons(80, noise=0.3)
    assert variance_of(Subject(model, "cross_entropy", data.train), 5).plane is not None
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_no_head_means_the_inputs_and_tokens_have_none():
    model = nn.Sequential(nn.Conv2d(1, 2, 4), nn.Flatten())
    random = torch.Generator().manual_seed(0)
    images, labels = (
        torch.randn(40, 1, 4, 4, generator=random),
        torch.randint(0, 2, (40,), generator=random),
    )
    found = variance_of(Subject(model, "cross_entropy", (images, labels)), 4)
    expected = VarianceWeights(10).fit(images.flatten(1), labels).weights_
    assert found.features == "the inputs"
    assert found.mean == pytest.approx(expected.mean())
    assert all(heavy.image.startswith("data:image/png") for heavy in every(found))
    tokens = (torch.randint(0, 10, (40, 4), generator=random), labels)
    assert (
        "tokens" in variance_of(Subject(nn.EmbeddingBag(10, 2), "cross_entropy", tokens), 4).reason
    )


def test_a_regression_tells_of_the_values_around(regression):
    found = variance_of(regression, 3)
    features, targets = (
        regression.train.inputs[0].double(),
        regression.targets("train").flatten().double(),
    )
    assert (found.classes, found.k) == (False, 10)
    heavy = found.heaviest[0]
    near = (features - features[heavy.index]).square().sum(1).argsort()[1:10]
    words = heavy.around.replace("−", "-").replace(",", "").split()
    expected = [targets[near].mean(), targets[near].min(), targets[near].max()]
    assert [float(words[k]) for k in (1, 3, 5)] == pytest.approx(
        [float(value) for value in expected], rel=1e-3
    )
    assert heavy.agreement is None
    assert len(heavy.values) == 12


def test_one_yes_or_no_label_is_a_class_of_two():
    data = two_moons(120, noise=0.3)
    subject = Subject(
        MLP((2, 4, 1)), "bce", (data.inputs, data.targets[:, None].float()), classes=data.classes
    )
    found = variance_of(subject, 6)
    expected = VarianceWeights(20).fit(data.inputs, data.targets)
    assert found.classes
    assert {heavy.target for heavy in every(found)} <= {"upper", "lower"}
    assert found.features == "what enters the last linear layer, 3"
    assert expected.weights_.max() == pytest.approx(found.largest)
    assert len(found.plane.margins) == 1


def test_several_labels():
    random = torch.Generator().manual_seed(0)
    inputs, targets = (
        torch.randn(60, 5, generator=random),
        torch.randint(0, 2, (60, 3), generator=random).float(),
    )
    found = variance_of(
        Subject(nn.Linear(5, 3), "bce", (inputs, targets), classes=("a", "b", "c")), 4
    )
    assert not found.classes
    assert found.heaviest[0].around.count("(") >= 2


def test_a_wrong_value_is_a_suspect():
    inputs = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    targets = inputs.sum(1, keepdim=True)
    targets[17] += 40
    found = variance_of(Subject(nn.Linear(2, 1), "mse", (inputs, targets)), 6)
    assert found.suspects == 1
    assert [heavy.index for heavy in every(found) if heavy.suspect] == [17]
    assert "standard deviations" in found.suspected


@pytest.mark.parametrize("count", [2, 3, 5])
def test_tiny_data(count):
    random = torch.Generator().manual_seed(0)
    data = torch.randn(count, 3, generator=random), torch.arange(count) % 2
    found = variance_of(Subject(nn.Linear(3, 2), "cross_entropy", data), 24)
    assert found.k == 2
    assert len(every(found)) <= count


def test_no_samples_are_shown_if_none_are_wanted(subject):
    found = variance_of(subject, 0)
    assert every(found) == ()
    assert found.counts
    assert len(every(variance_of(subject, 1000))) <= MOST


def test_suspects_are_found_but_kept_and_weights_are_those_of_the_weigher():
    data = two_moons(150, noise=0.35)
    for noise in ("keep", "mark", "cap", "drop"):
        weigher = VarianceWeights(10, 8, noise=noise, normalize="mean")
        weighed = weigh(weigher, data.inputs, data.targets)
        assert torch.equal(
            weighed.weights, torch.from_numpy(weigher.fit(data.inputs, data.targets).weights_)
        )
        assert int(weighed.suspects.sum()) > 0


def test_the_plane_of_two_features():
    data = two_moons(150, noise=0.3)
    subject = Subject(MLP((2, 8, 2)), "cross_entropy", data.train, classes=data.classes)
    plane = variance_of(subject, 4).plane
    assert (
        np.shape(plane.variance)
        == np.shape(plane.margins[0])
        == (len(plane.y), len(plane.x))
        == (41, 41)
    )
    assert plane.labels == ("upper", "lower")
    assert len(plane.points) == len(plane.weights) == len(plane.targets) == 150
    places = torch.tensor([[x, y] for y in plane.y for x in plane.x])
    answers = subject.forward((places,)).argmax(1).reshape(41, 41).bool()
    sure = torch.tensor(plane.margins[0]).abs() > 1e-2
    assert torch.equal((torch.tensor(plane.margins[0]) > 0)[sure], answers[sure])


def test_the_plane_of_three_classes_has_three_margins_and_of_values_none():
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(90, 2, generator=random)
    subject = Subject(nn.Linear(2, 3), "cross_entropy", (inputs, torch.arange(90) % 3))
    plane = variance_of(subject, 4).plane
    margins = torch.tensor(plane.margins)
    assert margins.shape == (3, 41, 41)
    assert torch.equal((margins > 0).sum(0).clamp_max(1), (margins.amax(0) > 0).long())
    values = variance_of(Subject(nn.Linear(2, 1), "mse", (inputs, inputs[:, :1])), 4).plane
    assert (values.margins, values.labels) == ((), ())
    assert values.targets[:5] == pytest.approx(inputs[:5, 0].tolist(), rel=1e-3)


@pytest.mark.parametrize("noise", [0.1, 0.4])
def test_charts_are_valid_figures(noise):
    data = two_moons(100, noise=noise)
    charts = variance_charts(variance_of(Subject(MLP((2, 8, 2)), "cross_entropy", data.train), 4))
    assert [chart.key for chart in charts] == ["weights", "plane"]
    for chart in charts:
        go.Figure(chart.figure)
        assert "<" not in chart.data
    assert variance_charts(Variance(reason="none")) == []


def test_lines_and_points_of_a_plane_have_names_and_colors_of_their_own():
    table = [[-1.0, 1.0], [-1.0, 1.0]]
    lines = [{"name": "<a>", "z": table}, {"name": "b", "z": table}, {"name": "b", "z": table}]
    points = [{"name": "p", "x": [0.5], "y": [0.5]}]
    chart = {"x": [0, 1], "y": [0, 1], "contours": lines, "points": points}
    first, second, third, dots = go.Figure(plane_figure(chart)).data
    assert first.name == "&lt;a&gt;"
    assert (second.showlegend, third.showlegend) == (True, False)
    assert len({first.line.color, second.line.color, dots.marker.color}) == 3


def test_names_of_users_cannot_break_out(report, tmp_path):
    nasty = "<img src=x onerror=alert(1)>"
    heavy = Heavy(
        index=1,
        weight=2.0,
        target=nasty,
        around=nasty,
        prediction=nasty,
        values=(nasty,),
        text=nasty,
    )
    variance = dataclasses.replace(
        report.variance, heaviest=(heavy,), doubtful=(heavy,), features=nasty
    )
    page = (
        dataclasses.replace(report, variance=variance)
        .save(tmp_path / "page.html")
        .read_text(encoding="utf-8")
    )
    assert nasty not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 8
