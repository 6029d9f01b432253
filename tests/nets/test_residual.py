import pytest
import torch

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.nets import ResNet, ResNet20, WideResNet


def count(make):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in make().parameters())


# He et al. (2016), table 6, in millions.
@pytest.mark.parametrize(
    ("depth", "millions"),
    [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7), (1202, 19.4)],
)
def test_resnet_sizes_of_the_paper(depth, millions):
    digits = 2 if millions < 1 else 1
    assert round(count(lambda: ResNet(depth)) / 1e6, digits) == millions


def test_resnet20_exactly():
    assert count(ResNet20) == 269_722
    assert count(lambda: ResNet20(shortcut="B")) == 272_474


# Zagoruyko and Komodakis (2016), table 4, in millions.
@pytest.mark.parametrize(
    ("depth", "factor", "millions"),
    [
        (40, 1, 0.6),
        (40, 2, 2.2),
        (40, 4, 8.9),
        (40, 8, 35.7),
        (28, 10, 36.5),
        (28, 12, 52.5),
        (22, 8, 17.2),
        (22, 10, 26.8),
        (16, 8, 11.0),
        (16, 10, 17.1),
        (16, 4, 2.7),
    ],
)
def test_wide_resnet_sizes_of_the_paper(depth, factor, millions):
    assert round(count(lambda: WideResNet(depth, factor)) / 1e6, 1) == millions


def test_wide_resnet_28_10_exactly():
    assert count(lambda: WideResNet(28, 10)) == 36_479_194


SMALL = [
    lambda norm: ResNet(8, classes=5, channels=1, width=4, shortcut="A", norm=norm),
    lambda norm: ResNet(8, classes=5, channels=1, width=4, shortcut="B", norm=norm),
    lambda norm: WideResNet(10, 1, classes=5, channels=1, dropout=0.1, norm=norm),
]


@pytest.mark.parametrize("make", SMALL)
@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_shapes_and_gradients(make, norm):
    torch.manual_seed(0)
    model = make(norm)
    logits = model(torch.rand(6, 1, 8, 8))
    assert logits.shape == (6, 5)
    logits.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("make", SMALL)
def test_group_norm_keeps_samples_independent(make):
    model = make("group").eval()
    x = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(model(x)[:1], model(x[:1]))


@pytest.mark.parametrize("make", SMALL)
def test_seed_decides_the_weights(make):
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        models.append(make("batch"))
    assert all(
        torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True)
    )


def test_padded_shortcut_keeps_pixels_and_adds_zeros():
    block = ResNet(8, width=4).stages[1][0]
    maps = torch.rand(2, 4, 6, 6)
    shortcut = block.shortcut(maps)
    assert shortcut.shape == (2, 8, 3, 3)
    assert torch.equal(shortcut[:, 2:6], maps[:, :, ::2, ::2])
    assert not shortcut[:, :2].any()
    assert not shortcut[:, 6:].any()


def test_stages_halve_the_image_twice():
    model = ResNet20()
    assert model.stages(model.stem(torch.zeros(1, 3, 32, 32))).shape == (1, 64, 8, 8)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ResNet(21), "depth must be 6n + 2, got 21. Pass 20, 32, 44, 56 or 110."),
        (lambda: ResNet(2), "depth must be an integer of at least 8, got 2. Raise depth."),
        (
            lambda: ResNet(20, classes=0),
            "classes must be an integer of at least 1, got 0. Raise classes.",
        ),
        (lambda: WideResNet(20), "depth must be 6n + 4, got 20. Pass 10, 16, 22, 28 or 40."),
        (
            lambda: WideResNet(16, 0),
            "factor must be an integer of at least 1, got 0. Raise factor.",
        ),
        (
            lambda: WideResNet(16, 1, dropout=-0.1),
            "dropout must be a number from 0 to below 1, got -0.1.",
        ),
    ],
)
def test_bad_arguments(make, text):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value).startswith(text)


def test_misspelled_names():
    with pytest.raises(UnknownNameError, match="shortcut"):
        ResNet(shortcut="C")
    with pytest.raises(UnknownNameError, match="Did you mean 'batch'"):
        WideResNet(10, 1, norm="btch")
