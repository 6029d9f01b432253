"""Measures of norms: options, conventions, folding, and what they say of layers they skip."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from cases import convolution, fitted_classes, mlp_classes, mlp_regression
from torch import nn

from mindgap.core import Measure, Subject, catalog
from mindgap.measures import (
    FrobeniusOverSpectral,
    PathNorm,
    ProductOfFrobeniusNorms,
    ProductOfSpectralNorms,
    SpectralComplexity,
    SpectralDistance,
    SumOfSpectralNorms,
)
from mindgap.nets import ResNet20
from mindgap.ops.norms import singular
from mindgap.ops.norms.folding import folded

NORMS: list[Measure] = [
    ProductOfSpectralNorms(),
    SumOfSpectralNorms(),
    ProductOfFrobeniusNorms(),
    FrobeniusOverSpectral(),
    PathNorm(),
    SpectralComplexity(),
    SpectralComplexity(form="full"),
]


@pytest.mark.parametrize("measure", NORMS, ids=str)
def test_folding_batch_normalization_changes_nothing(measure: Measure) -> None:
    torch.manual_seed(0)
    model = ResNet20(width=4)
    model(torch.randn(8, 3, 8, 8))
    x, y = torch.randn(6, 3, 8, 8), torch.arange(6) % 3
    plain = folded(model, x).model.float()
    before, after = (Subject(net, "cross_entropy", (x, y)) for net in (model, plain))
    assert float(measure(before)) == pytest.approx(float(measure(after)), rel=1e-5)
    assert measure(before).value is not None


@pytest.mark.parametrize("name", ["product-of-spectral-norms", "frobenius-over-spectral"])
def test_a_search_that_was_cut_off_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26**2, 2))
    data = torch.randn(4, 3, 28, 28), torch.arange(4) % 2
    measure = catalog("measure")[name]()
    found = measure(Subject(model, "cross_entropy", data))
    assert (found.status, found.caveats) == ("exact", ())
    monkeypatch.setattr(singular, "WHOLE", 0)
    monkeypatch.setattr(singular.of_map, "__kwdefaults__", {"tolerance": 0.0, "steps": 2})
    found = measure(Subject(model, "cross_entropy", data))
    assert (found.status, found.caveats) == ("heuristic", ("has not converged",))


@pytest.mark.parametrize(
    "name",
    ["product-of-spectral-norms", "sum-of-frobenius-norms", "path-norm", "spectral-complexity"],
)
def test_a_margin_divides_or_makes_it_undefined(name: str) -> None:
    measure = catalog("measure")[name]
    good, bad, numbers = (
        case(torch.double) for case in (fitted_classes, mlp_classes, mlp_regression)
    )
    plain, divided = measure()(good), measure(margin=True)(good)
    tenth = sorted(good.margins("train").tolist())[4]  # the fifth of 48
    assert float(divided) == pytest.approx(float(plain) - math.log(tenth))
    assert plain.terms["over_margin"] == float(divided)
    assert measure()(bad).value is not None
    assert "over_margin" not in measure()(bad).terms
    assert "positive margin" in measure(margin=True)(bad).reason
    assert "classification" in measure(margin=True)(numbers).reason


def test_the_kernel_convention_is_another_number() -> None:
    subject = convolution(torch.double)
    operator, kernel = (
        ProductOfSpectralNorms(convention=name)(subject).details["by_layer"]
        for name in ("operator", "kernel")
    )
    assert operator["body.0"] > 1.3 * kernel["body.0"]
    assert operator["head.2"] == pytest.approx(kernel["head.2"])
    norm, layer = subject.model.body[1], subject.model.body[0]
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    matrix = (scale[:, None] * layer.weight.flatten(1)).detach()
    assert kernel["body.0"] == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)))


def test_spectral_complexity_from_the_initial_weights() -> None:
    subject = mlp_classes(torch.double)
    now = [m.weight.detach() for m in subject.model.modules() if isinstance(m, nn.Linear)]
    then = [subject.initial["1.weight"], subject.initial["3.weight"]]
    norms = [float(torch.linalg.matrix_norm(w, 2)) for w in now]
    pairs = list(zip(now, then, norms, strict=True))
    rows = [float((w - m).norm(dim=1).sum()) / s for w, m, s in pairs]
    expected = math.log(math.prod(norms) * sum(row ** (2 / 3) for row in rows) ** 1.5)
    assert float(SpectralComplexity(origin="initial")(subject)) == pytest.approx(expected)
    squares = sum((float((w - m).norm()) / s) ** 2 for w, m, s in pairs)
    main = 0.5 * math.log(math.prod(norms) ** 2 * squares / 48)
    assert float(SpectralComplexity(origin="initial", form="main")(subject)) == pytest.approx(main)
    x = subject.train.take(torch.arange(48)).inputs[0]
    full = main + 0.5 * math.log(float(x.norm(dim=1).max()) ** 2 * 4 * 6 * math.log(12))
    assert float(SpectralComplexity(origin="initial", form="full")(subject)) == pytest.approx(full)
    subject.initial = None
    assert "before training" in SpectralComplexity(origin="initial")(subject).reason


def test_path_norm_of_order_one_by_hand() -> None:
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    model[0].weight.data.copy_(torch.tensor([[1.0], [-2.0]]))
    model[2].weight.data.copy_(torch.tensor([[3.0, 4.0]]))
    subject = Subject(model, "mse", (torch.ones(4, 1), torch.ones(4, 1)))
    assert float(PathNorm(power=1)(subject)) == pytest.approx(math.log(3 + 8) - math.log(4) / 2)
    assert float(PathNorm()(subject)) == pytest.approx(math.log(9 + 64) / 2 - math.log(4) / 2)


def test_layers_that_do_not_count_are_named() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.norm, self.head = nn.Embedding(9, 4), nn.LayerNorm(4), nn.Linear(4, 2)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.words(tokens)).mean(1))

    subject = Subject(
        Reader(), "cross_entropy", (torch.arange(8).view(4, 2), torch.tensor([0, 1, 0, 1]))
    )
    details = ProductOfSpectralNorms()(subject).details
    assert details["counted"] == {"head": "dense"}
    assert set(details["skipped"]) == {"words", "norm"}
    assert "Embedding" in details["skipped"]["words"]
    assert "real inputs" in PathNorm()(subject).reason


def test_a_layer_that_is_called_twice_counts_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.relu(self.layer(x)))

    subject = Subject(Twice(), "mse", (torch.ones(1, 2), torch.ones(1, 2)))
    result = ProductOfSpectralNorms()(subject)
    norm = float(torch.linalg.matrix_norm(subject.model.layer.weight.detach().double(), 2))
    assert float(result) == pytest.approx(2 * math.log(norm))
    assert list(result.details["by_layer"]) == ["layer", "layer (2)"]


def test_a_steep_prelu_counts_in_the_lipschitz_constant() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.PReLU(init=3.0), nn.Linear(2, 2))
    subject = Subject(model, "mse", (torch.ones(1, 2), torch.ones(1, 2)))
    norms = [torch.linalg.matrix_norm(model[k].weight.detach().double(), 2) for k in (0, 2)]
    found = SpectralComplexity()(subject).terms["log_lipschitz"]
    assert found == pytest.approx(math.log(3 * float(norms[0] * norms[1])))


def test_what_has_no_norm_is_undefined() -> None:
    subject = mlp_classes(torch.double)
    unmoved = copy.copy(subject)
    unmoved.initial = {n: v.clone() for n, v in subject.model.state_dict().items()}
    assert "the change of every layer is zero" in SpectralDistance()(unmoved).reason
    with torch.no_grad():
        subject.model[1].weight.zero_()
    for measure in (ProductOfSpectralNorms(), FrobeniusOverSpectral(), SpectralComplexity()):
        assert "the norm of a layer is zero" in measure(subject).reason
    empty = Subject(nn.Flatten(), "mse", (torch.ones(1, 2), torch.ones(1, 2)))
    assert "needs a dense layer" in ProductOfSpectralNorms()(empty).reason
