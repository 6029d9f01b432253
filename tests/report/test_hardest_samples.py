import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from mindgap.core.subject import Subject
from mindgap.ops.images import LARGEST_SIDE, as_images, png
from mindgap.report.sections.samples import hardest


def opened(address):
    return Image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,"))))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_holds_the_pixels(channels):
    pixels = torch.randint(
        0, 256, (channels, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    image = Image.open(io.BytesIO(png(pixels)))
    read = torch.from_numpy(np.array(image)).reshape(5, 7, channels).permute(2, 0, 1)
    assert image.size == (7, 5)
    assert torch.equal(read, pixels)


def test_pixels_from_zero_to_one_keep_their_brightness():
    (address,) = as_images(torch.full((1, 1, 4, 4), 0.5))
    assert opened(address).getpixel((0, 0)) == 128


def test_standardized_pixels_are_stretched():
    image = opened(as_images(torch.tensor([-2.0, 2.0, 0.0, 0.0]).reshape(1, 1, 2, 2))[0])
    assert [image.getpixel((x, 0)) for x in (0, 1)] == [0, 255]


def test_whole_numbers_up_to_255_are_bytes():
    assert opened(as_images(torch.full((1, 1, 2, 2), 200.0))[0]).getpixel((0, 0)) == 200


def test_large_images_are_thinned():
    assert max(opened(as_images(torch.rand(1, 3, 400, 300))[0]).size) <= LARGEST_SIDE


@pytest.mark.parametrize("shape", [(2, 8), (2, 4, 8, 8), (2, 8, 8), (2, 3, 1, 8)])
def test_other_shapes_are_no_images(shape):
    assert as_images(torch.zeros(shape)) == []


def test_the_hardest_test_samples_come_first(subject):
    found = hardest(subject, 5)
    losses = subject.losses("test")
    assert [sample.loss for sample in found] == losses.sort(descending=True).values[:5].tolist()
    first = found[0]
    assert first.which == "test"
    assert first.target == str(int(subject.targets("test")[first.index]))
    assert first.prediction == str(int(subject.predictions("test")[first.index]))
    assert first.confidence == pytest.approx(
        float(subject.outputs("test")[first.index].softmax(0).max()), rel=1e-5
    )
    assert opened(first.image).size == (8, 8)


def test_vectors_are_rows_and_regressions_have_no_confidence(regression):
    sample = hardest(regression, 1)[0]
    assert sample.confidence is None
    assert sample.image == ""
    assert (len(sample.values), sample.more) == (12, 8)


def test_tokens_are_whole_numbers_and_train_data_serve_without_test_data():
    model = torch.nn.Sequential(torch.nn.EmbeddingBag(10, 2))
    data = (torch.randint(0, 10, (6, 4)), torch.tensor([0, 1, 0, 1, 0, 1]))
    sample = hardest(Subject(model, "cross_entropy", data, classes=("no", "yes")), 9)[0]
    assert sample.which == "train"
    assert all(value.isdigit() for value in sample.values)
    assert sample.target in ("no", "yes")
    assert hardest(Subject(model, "cross_entropy", data), 0) == ()


def test_labels_of_several_classes_are_listed():
    model = torch.nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, -1.0, 1.0]))
    subject = Subject(model, "bce", (torch.zeros(1, 2), torch.zeros(1, 3)), classes=("a", "b", "c"))
    sample = hardest(subject, 1)[0]
    assert (sample.target, sample.prediction) == ("none", "a, c")
