"""Near copies: every way to make one is undone, and neighbors are exact."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import Subject
from mindgap.ops.evidence.copies.near_copies import CopySearch
from mindgap.ops.samples import has_twin, input_hashes


def images(count: int, seed: int, size: int = 20) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    rough = torch.rand(count, 1, size // 2, size // 2, generator=random)
    return F.interpolate(rough, size=(size, size), mode="bilinear", align_corners=False)


def subject_of(train: Tensor, test: Tensor) -> Subject:
    labels = [torch.arange(len(part)) % 2 for part in (train, test)]
    return Subject(nn.Flatten(), "cross_entropy", (train, labels[0]), (test, labels[1]))


def brighter(x: Tensor) -> Tensor:
    return 0.6 * x + 0.3


def moved(x: Tensor) -> Tensor:
    return x.roll((1, -1), (2, 3))


def mirrored(x: Tensor) -> Tensor:
    return x.flip(3)


def cropped(x: Tensor) -> Tensor:
    inside = x[..., 1:-1, 1:-1]
    return F.interpolate(inside, size=x.shape[2:], mode="bilinear", align_corners=False)


def noisy(x: Tensor) -> Tensor:
    return x + 0.05 * torch.randn(x.shape, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("change", [brighter, moved, mirrored, cropped, noisy])
def test_copies_of_images_are_traced_to_the_original(change: object) -> None:
    train, test = images(300, 0), images(100, 1)
    test[:20] = change(train[40:60])
    found = CopySearch(subject_of(train, test)).nearest("test", torch.arange(100))
    hits = found.nearest[:20] == torch.arange(40, 60)
    assert float(hits.double().mean()) >= 0.9
    assert float(found.ratio[:20].median()) < 0.5 < float(found.ratio[20:].median())


def test_shifted_sequences_are_traced() -> None:
    random = torch.Generator().manual_seed(0)
    train, test = (torch.randn(n, 12, 2, generator=random) for n in (200, 50))
    test[:10] = train[30:40].roll(2, 1)
    found = CopySearch(subject_of(train, test)).nearest("test", torch.arange(50))
    assert torch.equal(found.nearest[:10], torch.arange(30, 40))
    assert float(found.ratio[:10].max()) < 0.01


def test_nearest_rows_of_a_table_are_exact_and_others() -> None:
    random = torch.Generator().manual_seed(0)
    train, test = (torch.randn(n, 3, generator=random) for n in (150, 40))
    search = CopySearch(subject_of(train, test))
    scale = torch.cat([train, test]).std(0)
    for which, part in (("test", test), ("train", train)):
        found = search.nearest(which, torch.arange(40))
        apart = torch.cdist(part[:40] / scale, train / scale)
        if which == "train":
            apart[torch.arange(40), torch.arange(40)] = torch.inf
        near = apart.sort(1)
        assert torch.equal(found.nearest, near.indices[:, 0])
        ratio = near.values[:, 0] / near.values[:, :6].median(1).values
        assert torch.allclose(found.ratio, ratio, atol=1e-4)


def test_twins_do_not_depend_on_the_target() -> None:
    x = torch.tensor([[1.0], [2.0], [1.0], [3.0]])
    subject = subject_of(x, torch.tensor([[-0.0], [3.0]]))
    assert has_twin(subject, "train").tolist() == [True, False, True, False]
    assert has_twin(subject, "test").tolist() == [False, True]
    hashes = input_hashes(subject, "train")
    assert hashes[0] == hashes[2] != hashes[1]
