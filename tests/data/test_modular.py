"""Modular arithmetic: every equation once, and right."""

import pytest
import torch

from mindgap.data import modular_arithmetic


@pytest.mark.parametrize("operation", ["+", "-", "*", "/"])
def test_every_equation_once_and_right(operation):
    p = 7
    data = modular_arithmetic(p, operation, train_fraction=0.3)
    tokens, answers = (
        torch.cat([data.inputs, data.test_inputs]),
        torch.cat([data.targets, data.test_targets]),
    )
    a, sign, b, equals = tokens.T
    assert (sign == p).all()
    assert (equals == p + 1).all()
    assert (
        len({(int(x), int(y)) for x, y in zip(a, b, strict=True)})
        == len(tokens)
        == (42 if operation == "/" else 49)
    )
    right = {
        "+": (a + b - answers),
        "-": (a - b - answers),
        "*": (a * b - answers),
        "/": (answers * b - a),
    }
    assert (right[operation] % p == 0).all()
    assert len(data) == round(0.3 * len(tokens))
    assert data.facts["vocabulary"] == p + 2
