"""The hardest samples: the largest loss first, shown as images, numbers or tokens."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Gallery, Result, Subject
from mindgap.measures import HardestSamples


def gallery(result: Result) -> Gallery:
    (chart,) = result.charts
    assert isinstance(chart, Gallery)
    return chart


@pytest.fixture(scope="module")
def images() -> Subject:
    random = torch.Generator().manual_seed(0)
    inputs = torch.rand(60, 1, 8, 8, generator=random)
    labels = torch.randint(0, 3, (60,), generator=random)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    return Subject(model, "cross_entropy", (inputs[:40], labels[:40]), (inputs[40:], labels[40:]))


def test_the_hardest_test_samples_come_first(images: Subject) -> None:
    result = HardestSamples(shown=5)(images)
    expected = images.losses("test").sort(descending=True).values[:5].tolist()
    assert [sample["loss"] for sample in result.details["samples"]] == expected
    assert result.value == expected[0]
    assert result.details["which"] == "test"
    first, place = gallery(result).samples[0], result.details["samples"][0]["index"]
    target, answer = images.targets("test")[place], images.predictions("test")[place]
    assert first.caption == f"{int(target)} → {int(answer)}"
    assert first.facts["no."] == str(place)
    assert first.facts["sure"].endswith("%")
    assert first.image.startswith("data:image/png;base64,")


def test_vectors_are_rows_and_regressions_are_not_sure() -> None:
    random = torch.Generator().manual_seed(0)
    data = torch.randn(30, 20, generator=random), torch.randn(30, 1, generator=random)
    sample = gallery(HardestSamples()(Subject(nn.Linear(20, 1), "mse", data))).samples[0]
    assert "sure" not in sample.facts
    assert sample.image == ""
    assert sample.facts["inputs"].count("·") == 11
    assert sample.facts["inputs"].endswith("… 8 more")


def test_tokens_are_whole_numbers_and_training_data_serve_without_test_data() -> None:
    model = nn.Sequential(nn.EmbeddingBag(10, 2))
    data = (torch.randint(0, 10, (6, 4)), torch.tensor([0, 1, 0, 1, 0, 1]))
    result = HardestSamples()(Subject(model, "cross_entropy", data, classes=("no", "yes")))
    sample = gallery(result).samples[0]
    assert result.details["which"] == "train"
    assert all(value.isdigit() for value in sample.facts["inputs"].split(" · "))
    assert sample.facts["target"] in ("no", "yes")
    assert HardestSamples(shown=0)(Subject(model, "cross_entropy", data)).charts == ()


def test_labels_of_several_classes_are_listed() -> None:
    model = nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, -1.0, 1.0]))
    subject = Subject(model, "bce", (torch.zeros(1, 2), torch.zeros(1, 3)), classes=("a", "b", "c"))
    facts = gallery(HardestSamples()(subject)).samples[0].facts
    assert (facts["target"], facts["prediction"]) == ("none", "a, c")
