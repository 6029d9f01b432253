"""The theory check: rates that are known, and a variance that is known in closed form."""

import math

import pytest
import torch

from mindgap.core.study import Trial
from mindgap.studies import VarianceAndDerivatives
from mindgap.studies.vbsw.variance_and_derivatives import _moments


def test_quadrature_equals_the_closed_form_of_a_sine() -> None:
    """Var sin(x + ξ) = ½ (1 − e^{−2ε} cos 2x) − e^{−ε} sin² x."""
    points = torch.linspace(-1, 1, 7, dtype=torch.float64)[:, None]
    found = _moments(lambda x: torch.sin(x[:, 0]), points, 0.3)
    x = points[:, 0]
    expected = 0.5 * (1 - math.exp(-0.6) * torch.cos(2 * x)) - math.exp(-0.3) * torch.sin(x) ** 2
    torch.testing.assert_close(found["variance"], expected, rtol=1e-12, atol=1e-12)
    shift = (math.exp(-0.15) - 1) * torch.sin(x)
    torch.testing.assert_close(found["mean_square"], expected + shift**2, rtol=1e-12, atol=1e-12)


def test_rates_are_two_and_three() -> None:
    study = VarianceAndDerivatives(points=4, steps=5, draws=100)
    record = study.run(Trial(parameters={"function": "Gauss of two"}, seed=0))
    for name, rate in {"first": 2, "second": 2, "complete": 3, "published": 2}.items():
        assert record["rates"][name] == pytest.approx([rate] * 4, abs=0.1)


def test_a_quadratic_leaves_nothing() -> None:
    study = VarianceAndDerivatives(points=4, steps=3, draws=100)
    record = study.run(Trial(parameters={"function": "quadratic of two"}, seed=0))
    assert record["rates"]["second"] == []
    assert max(record["curves"]["second"]) < 1e-14
    table = study.summarize([(Trial(parameters={"function": "quadratic of two"}, seed=0), record)])
    assert [row[-1] for row in table.rows if row[1] == "variance − Df²"] == ["vanishes"]
