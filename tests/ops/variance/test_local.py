"""Local variance against brute force, under ties, shuffling and every kind of label and source."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from ops import helpers
from ops.helpers import TRIALS, features, labels
from torch.utils.data import DataLoader, TensorDataset

from mindgap.core.errors import InputError
from mindgap.data import digits
from mindgap.ops.variance.local import local_variance, sampled_variance

K = 20


@pytest.mark.parametrize("trial", TRIALS)
def test_variance_is_that_of_brute_force(trial: str) -> None:
    rows = TRIALS[trial](features()[:400])
    square = helpers.squares(rows.numpy())
    values = torch.randn(400, 3, generator=torch.Generator().manual_seed(1)) + 100
    for target, outputs in (
        (labels(400), helpers.one_hot(labels(400))),
        (values, values.numpy()),
    ):
        found = local_variance(rows, target, k=K, method="exact").variance
        np.testing.assert_allclose(
            found, helpers.variances(square, outputs, K), rtol=1e-10, atol=1e-13
        )


@pytest.mark.parametrize("trial", TRIALS)
@pytest.mark.parametrize("method", ["exact", "tree"])
def test_shuffling_changes_no_bit(trial: str, method: str) -> None:
    rows, order = (
        TRIALS[trial](features()[:600]),
        torch.randperm(600, generator=torch.Generator().manual_seed(2)),
    )
    for target in (labels(600), torch.randn(600, 2, generator=torch.Generator().manual_seed(1))):
        plain = local_variance(rows, target, k=K, method=method)  # type: ignore[arg-type]
        mixed = local_variance(rows[order], target[order], k=K, method=method)  # type: ignore[arg-type]
        assert torch.equal(plain.variance[order], mixed.variance)


@given(st.integers(0, 10**6), st.integers(3, 9), st.booleans())
@settings(max_examples=30, deadline=None)
def test_ties_are_the_mean_over_all_choices(seed: int, n: int, classes: bool) -> None:
    random = np.random.default_rng(seed)
    rows = random.integers(0, 3, (n, 2)).astype(float)
    k = int(random.integers(2, n + 1))
    target = random.integers(0, 3, n) if classes else random.normal(size=(n, 2))
    outputs = helpers.one_hot(target) if classes else target
    found = local_variance(rows, target, k=k).variance
    np.testing.assert_allclose(
        found, helpers.enumerated(helpers.squares(rows), outputs, k), atol=1e-12
    )


def test_copies_have_no_precedence() -> None:
    rows, target = torch.zeros(5, 2), torch.tensor([0, 0, 0, 1, 1])
    found = local_variance(rows, target, k=2)
    assert torch.allclose(
        found.variance, torch.full((5,), 12 / 20).double()
    )  # 6 of 10 pairs differ, ‖·‖²/2 = 1
    assert found.square_distance.max() == 0


def test_multilabel_names_and_standardizing() -> None:
    rows, yes = features()[:300], (features()[:300, :4] > 0.5).long()
    square = helpers.squares(rows.numpy(), 1 / rows.double().numpy().std(0))
    found = local_variance(rows, yes, k=5, standardize=True, task="multilabel").variance
    np.testing.assert_allclose(
        found, helpers.variances(square, yes.numpy(), 5), rtol=1e-10, atol=1e-13
    )
    number = labels(300)
    named = np.array(
        [
            ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"][i]
            for i in number
        ]
    )
    assert torch.equal(
        local_variance(rows, named, k=5).variance, local_variance(rows, number, k=5).variance
    )


def test_agreement() -> None:
    target = labels(400)
    found = local_variance(features()[:400], target, k=10, agreement=True)
    inner = helpers.groups(helpers.squares(features()[:400].numpy()), 10)
    shares = [
        (target[[*i, *t]] == target[row]).sum().sub(1) / 9 for row, (i, t) in enumerate(inner)
    ]
    assert found.agreement is not None
    np.testing.assert_allclose(found.agreement, shares, atol=1e-6)


def chunks(rows: torch.Tensor, target: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    yield from zip(rows.split(70), target.split(70), strict=True)


def test_every_source_gives_the_same(tmp_path: pytest.TempPathFactory) -> None:
    rows, target = features()[:300], labels(300)
    wanted = local_variance(rows, target, k=7).variance
    mapped = np.memmap(f"{tmp_path}/rows", dtype="float32", mode="w+", shape=tuple(rows.shape))
    mapped[:] = rows.numpy()
    sources = [
        (rows.numpy(), target.numpy()),
        (mapped, target),
        (rows.tolist(), target.tolist()),
        (DataLoader(TensorDataset(rows, target), batch_size=64), None),
        (chunks(rows, target), None),
        (lambda: chunks(rows, target), None),
        (({"x": x, "y": y} for x, y in chunks(rows, target)), None),
    ]
    for data, given_labels in sources:
        found = local_variance(data, given_labels, k=7).variance
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-12)


def test_memory_maps_that_may_not_be_written_or_hold_bytes(
    tmp_path: pytest.TempPathFactory,
) -> None:
    images = digits().train[0].reshape(-1, 64)[:300]
    images = (images / images.max() * 16).round()
    for kind in ("uint8", "float32"):
        np.save(f"{tmp_path}/{kind}.npy", images.numpy().astype(kind))
        mapped = np.load(f"{tmp_path}/{kind}.npy", mmap_mode="r")
        for metric in ("euclidean", "cosine"):
            wanted = local_variance(images, labels(300), k=7, metric=metric).variance  # type: ignore[arg-type]
            found = local_variance(mapped, labels(300), k=7, metric=metric).variance  # type: ignore[arg-type]
            torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_equal_labels_vary_by_nothing() -> None:
    for target in (torch.full((100,), 3), torch.full((100, 2), 0.1)):
        assert local_variance(features()[:100], target, k=5).variance.abs().max() == 0


def test_what_cannot_be_read() -> None:
    with pytest.raises(InputError, match="y must be given"):
        local_variance(features(), None, k=3)
    with pytest.raises(InputError, match="as many samples"):
        local_variance(features(), labels(10), k=3)
    with pytest.raises(InputError, match="at least one chunk"):
        local_variance(iter(()), k=3)
    with pytest.raises(InputError, match="features as the first"):
        local_variance(iter([(features()[:9], labels(9)), (features()[:9, :3], labels(9))]), k=3)
    with pytest.raises(InputError, match="one class for each sample"):
        local_variance(features(), torch.zeros(1000, 2), k=3, task="classification")


def test_sampled_variance_tends_to_the_gradient() -> None:
    inputs = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = sampled_variance(
        lambda z: torch.stack([z.sin().sum(1), 2 * z[:, 0]], dim=1),
        inputs, epsilon=1e-4, samples=40_000, generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    torch.testing.assert_close(found, 1e-4 * (inputs.cos().square().sum(1) + 4), rtol=0.05, atol=0)
    with pytest.raises(InputError, match="samples must be"):
        sampled_variance(torch.sin, inputs, epsilon=0.1, samples=1, generator=torch.Generator())
