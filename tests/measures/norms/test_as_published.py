"""The options as_published give the numbers of the literature's code, its slips included.

Each formula is written out here once more, in NumPy and in the order of the publication.
"""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.measures import (
    FrobeniusOverSpectral,
    InverseMargin,
    PacBayesComplexity,
    PacBayesFlatness,
    ProductOfFrobeniusNorms,
    ProductOfSpectralNorms,
    SpectralComplexity,
    SpectralDistance,
    SumOfFrobeniusNorms,
    SumOfSpectralNorms,
)
from mindgap.measures.sharpness.noise_search import Search

SIZE, SAMPLES = (6, 6), 40


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 5, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(20, 3),
    ).double()


@pytest.fixture(scope="module")
def subject() -> Subject:
    start, final = network(0), network(1)
    torch.manual_seed(2)
    x = torch.randn(SAMPLES, 2, *SIZE).double()
    y = final(x).detach().argmax(1)
    y[:2] = (y[:2] + 1) % 3
    return Subject(final, "cross_entropy", (x, y), initial=copy.deepcopy(start.state_dict()))


def spectral(weight: np.ndarray) -> float:
    """The square of the norm, by the FFT at the image's size whatever the layer gets."""
    if weight.ndim == 2:
        return float(np.linalg.norm(weight, 2)) ** 2
    turned = np.fft.fft2(np.einsum("oihw->hwio", weight), SIZE, axes=[0, 1])
    return float(np.linalg.svd(turned, compute_uv=False).max()) ** 2


def kernels(subject: Subject, moved: bool = False) -> list[np.ndarray]:
    now, then = subject.model.state_dict(), subject.initial
    names = [name for name in now if "bias" not in name]
    return [(now[n] - then[n] if moved else now[n]).numpy() for n in names]


def margin(subject: Subject) -> float:
    outputs, targets = subject.outputs().numpy(), subject.targets().numpy()
    rows = np.arange(len(targets))
    own = outputs[rows, targets]
    others = outputs.copy()
    others[rows, targets] = -np.inf
    return abs(np.sort(own - others.max(1))[len(targets) // 10 - 1])


def test_norms_and_margins(subject: Subject) -> None:
    parts, moved, gamma = kernels(subject), kernels(subject, moved=True), margin(subject)
    spec, fro = (np.array([f(w) for w in parts]) for f in (spectral, lambda w: (w**2).sum()))
    away = np.array([(w**2).sum() for w in moved])
    depth = len(parts)
    adjusted = lambda log: 0.5 * (log - np.log(SAMPLES))  # noqa: E731
    product = np.log(spec).sum() - 2 * np.log(gamma)
    wanted = {
        ProductOfSpectralNorms(as_published=True): adjusted(np.log(spec).sum()),
        ProductOfSpectralNorms(as_published=True, margin=True): adjusted(product),
        SumOfSpectralNorms(as_published=True): adjusted(np.log(depth) + np.log(spec).mean()),
        SumOfSpectralNorms(as_published=True, margin=True): adjusted(
            np.log(depth) + product / depth
        ),
        ProductOfFrobeniusNorms(as_published=True, margin=True): adjusted(
            np.log(fro).sum() - 2 * np.log(gamma)
        ),
        SumOfFrobeniusNorms(as_published=True, margin=True): adjusted(
            np.log(depth) + (np.log(fro).sum() - 2 * np.log(gamma)) / depth
        ),
        FrobeniusOverSpectral(as_published=True): 0.5 * np.log((fro / spec).sum() / SAMPLES),
        SpectralDistance(as_published=True): 0.5
        * np.log(sum(spectral(w) for w in moved) / SAMPLES),
        SpectralComplexity(as_published=True, form="main", margin=True): adjusted(
            product + np.log((fro / spec).sum())
        ),
        SpectralComplexity(as_published=True, form="main", margin=True, origin="initial"): adjusted(
            product + np.log((away / spec).sum())
        ),
        InverseMargin(as_published=True): math.sqrt(1 / gamma**2 / SAMPLES),
    }
    for measure, value in wanted.items():
        found, plain = measure(subject), measure.replace(as_published=False)(subject)
        assert float(found) == pytest.approx(float(value), rel=1e-9), measure
        assert plain.value is None or plain.value != pytest.approx(float(value), rel=1e-3), measure


def test_a_negative_margin_counts_as_positive(subject: Subject) -> None:
    x, y = subject.train.take(torch.arange(SAMPLES)).inputs[0], subject.targets()
    wrong = Subject(subject.model, "cross_entropy", (x, (y + 1) % 3))
    assert "positive margin" in InverseMargin()(wrong).reason
    assert float(InverseMargin(as_published=True)(wrong)) > 0


@pytest.mark.parametrize("magnitude", [False, True])
def test_noise_has_the_variance_as_its_standard_deviation(
    subject: Subject, magnitude: bool
) -> None:
    place = torch.tensor([2.0, -0.5]).double()
    sizes = Search(magnitude, published=True).sizes(place, 0.3)
    wanted = 0.09 * place.square() + 1e-6 if magnitude else torch.full((2,), 0.09).double()
    assert torch.allclose(sizes, wanted)
    found = PacBayesFlatness(as_published=True, magnitude=magnitude)(subject)
    sigma = found.terms["scale"]
    assert float(found) == pytest.approx(math.sqrt(1 / sigma**2 / SAMPLES))
    if not magnitude:  # the same noise, described by the root of its standard deviation
        right = PacBayesFlatness()(subject).terms["scale"]
        assert sigma == pytest.approx(math.sqrt(right), rel=1e-3)


@pytest.mark.parametrize("origin", ["zero", "initial"])
def test_complexities(subject: Subject, origin: str) -> None:
    flat = lambda parts: np.concatenate([part.ravel() for part in parts])  # noqa: E731
    moved = flat(kernels(subject, moved=True))
    vector = moved if origin == "initial" else flat(kernels(subject))
    plain = PacBayesComplexity(as_published=True, origin=origin)(subject)
    sigma = plain.terms["scale"]
    inside = (vector**2).sum() / (4 * sigma**2) + math.log(SAMPLES / sigma) + 10
    assert float(plain) == pytest.approx(math.sqrt(inside / SAMPLES), rel=1e-9)
    scaled = PacBayesComplexity(as_published=True, origin=origin, magnitude=True)(subject)
    sigma = scaled.terms["scale"]
    above = 1e-6 + (sigma**2 + 1) * (vector**2).sum() / len(vector)
    below = 1e-6 + sigma**2 * moved**2
    inside = 0.25 * np.log(above / below).sum() + math.log(SAMPLES / sigma) + 10
    assert float(scaled) == pytest.approx(math.sqrt(inside / SAMPLES), rel=1e-9)


def test_convolutions_without_an_image_are_undefined() -> None:
    net = nn.Sequential(nn.Unflatten(1, (1, 3, 3)), nn.Conv2d(1, 2, 2), nn.Flatten())
    x = torch.randn(6, 9)
    found = ProductOfSpectralNorms(as_published=True)(Subject(net, "mse", (x, x[:, :8])))
    assert "images" in found.reason
