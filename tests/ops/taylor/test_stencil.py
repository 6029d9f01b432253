"""Central differences and multi-indices against what is known of them."""

import math

import pytest

from mindgap.ops.taylor.stencil import Stencil, central_rule, factorial, multi_indices


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_rules_are_exact_for_polynomials(order: int) -> None:
    for power in range(order + 2):
        value = sum(weight * offset**power for offset, weight in central_rule(order).items())
        assert value == pytest.approx(math.factorial(order) if power == order else 0)


def test_a_stencil_evaluates_no_point_twice() -> None:
    stencil = Stencil(3, 2, 0.1)
    assert len(stencil) == 1 + 2 * 3 + 4 * 3
    assert len(set(map(tuple, stencil.offsets.tolist()))) == len(stencil)


def test_multi_indices_are_counted_right() -> None:
    found = multi_indices(4, 3)
    assert len(found) == len(set(found)) == math.comb(6, 3)
    assert sum(math.factorial(3) / factorial(index) for index in found) == 4**3
