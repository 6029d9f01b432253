"""The linear failure theorem, built under its conditions and refused without them."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from mindgap.core import InputError
from mindgap.runs import SerialExecutor, sweep
from mindgap.studies.darc.linear_failure import LinearFailure, rank, useless_weights


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from([0.0, 1e-6, 1.0]),
    st.sampled_from([0.0, 1.0, 1e6]),
    st.integers(0, 1000),
)
def test_holds_whatever_the_problem(
    train: int,
    test: int,
    extra: int,
    outputs: int,
    epsilon: float,
    delta: float,
    seed: int,
) -> None:
    random = torch.Generator().manual_seed(seed)
    width = train + test + extra
    rows = torch.randn(train + test, width, generator=random, dtype=torch.float64)
    truth = torch.randn(width, outputs, generator=random, dtype=torch.float64)
    found = useless_weights(rows[:train], rows[train:], truth, epsilon=epsilon, delta=delta)
    slack = 1e-13 * float(torch.linalg.matrix_norm(rows, 2) * found.norm())
    for part in (rows[:train], rows[train:]):
        assert float((part @ found - part @ truth).norm()) <= epsilon + slack
    assert float(found.norm()) >= delta * (1 - 1e-12)
    assert float((found - truth).norm()) >= delta * (1 - 1e-12)


def test_refuses_rows_that_span_everything() -> None:
    with pytest.raises(InputError, match="rank M < n, got rank 3"):
        useless_weights(torch.eye(3), torch.eye(3), torch.ones(3, 1), epsilon=0.0, delta=1.0)


def test_rank_is_that_of_numpy() -> None:
    import numpy as np

    random = torch.Generator().manual_seed(0)
    left, right = (torch.randn(*shape, generator=random).double() for shape in ((9, 4), (4, 6)))
    exact = left @ right
    assert rank(exact) == np.linalg.matrix_rank(exact.numpy()) == 4


def test_table_says_which_part_holds_where(tmp_path: object) -> None:
    found = sweep(
        LinearFailure(seeds=2),
        store=tmp_path / "store.sqlite",
        executor=SerialExecutor(),
        progress=False,
    )
    rows = {row[0]: row for row in found.table.rows}
    assert [row[7] for row in rows.values()] == ["yes", "yes", "no", "no"]
    assert [row[8] for row in rows.values()] == ["18", "refused", "18", "refused"]
    assert rows["more weights than rows"][9] == 18
    assert rows["fewer weights than rows, low rank"][9] == 18
