"""Samples as rows, whatever the model takes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.ops.evidence import rows as module
from mindgap.ops.evidence.rows import components, principal_axes, rows, standardized


def made(x: torch.Tensor, test: torch.Tensor | None = None) -> Subject:
    y = torch.arange(len(x)) % 2
    held = x if test is None else test
    return Subject(nn.Identity(), "cross_entropy", (x, y), (held, torch.arange(len(held)) % 2))


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((7,), "table"), ((3, 4, 4), "image"), ((6, 2), "sequence"), ((1, 8, 8), "image")],
)
def test_kind_follows_from_the_shape(shape: tuple[int, ...], kind: str) -> None:
    found = rows(made(torch.randn(10, *shape)), "train")
    assert found.kind == kind
    assert found.inputs.shape == (10, *shape)


def test_tokens_become_codes_whose_products_count_equal_tokens() -> None:
    tokens = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4], [4, 3, 2, 1], [9, 8, 7, 6]])
    found = rows(made(tokens), "train")
    assert found.kind == "tokens"
    products = found.values @ found.values.T
    assert products[0, 1] == pytest.approx(products[0, 0])
    assert products[0, 2] > products[0, 3] + 0.5  # the same words in another order
    assert products[0, 2] < products[0, 0] - 0.5


def test_several_tensors_are_joined() -> None:
    data = {"a": torch.randn(8, 3), "b": torch.randn(8, 2), "labels": torch.arange(8) % 2}
    found = rows(Subject(nn.Identity(), "cross_entropy", data, data), "train")
    assert found.values.shape == (8, 5)
    assert found.kind == "table"


def test_no_more_samples_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 20)
    x = torch.arange(100.0)[:, None]
    found = rows(made(x), "test")
    assert len(found.places) == 20
    assert torch.equal(found.values[:, 0], found.places.float())
    assert torch.equal(found.places, found.places.sort().values)


def test_the_pool_scales_both_sides_alike() -> None:
    train, test = standardized(made(torch.zeros(10, 2), torch.ones(10, 2)))
    assert torch.equal(train, -test)


def test_principal_axes_equal_the_singular_vectors() -> None:
    random = torch.Generator().manual_seed(0)
    scales = 5 * 0.9 ** torch.arange(400)  # as fast as those of images
    values = torch.randn(500, 400, generator=random) * scales
    found = principal_axes(values, 5, random)
    exact = torch.linalg.svd(values, full_matrices=False)[2][:5].T
    kept = (values @ found).square().sum()
    assert float(kept) > 0.999 * float((values @ exact).square().sum())
    assert torch.allclose(found.T @ found, torch.eye(5), atol=1e-4)


def test_components_are_those_of_the_pool() -> None:
    random = torch.Generator().manual_seed(0)
    x, t = torch.randn(300, 70, generator=random), torch.randn(200, 70, generator=random)
    train, test = components(made(x, t))
    assert train.shape == (300, 50)
    assert test.shape == (200, 50)
    # Fitted on the pool, both sides lose the same share of their variance.
    assert float(train.square().mean() / test.square().mean()) == pytest.approx(1.0, abs=0.1)
