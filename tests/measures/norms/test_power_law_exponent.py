"""Power laws: samples of a known law give it back, and untrained layers give their null."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.measures import PowerLawExponent
from mindgap.measures.norms.power_law_exponent import fit_tail


def pareto(exponent: float, count: int, seed: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    uniform = torch.rand(count, generator=random, dtype=torch.float64)
    return (1 - uniform) ** (-1 / (exponent - 1))


@pytest.mark.parametrize("exponent", [1.8, 2.5, 4.0])
def test_recovers_the_exponent_of_a_power_law(exponent: float) -> None:
    rows = torch.stack([pareto(exponent, 300, seed) for seed in range(100)])
    law = fit_tail(rows.sort(1, descending=True).values)
    assert float(law.exponent.mean()) == pytest.approx(exponent, rel=0.05)
    # The start is chosen to fit, which the standard error does not know of: it is too small.
    assert 0.8 < float(law.exponent.std() / law.error.mean()) < 3


def test_finds_the_start_of_the_tail() -> None:
    body = torch.rand(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = torch.cat([pareto(2.5, 300, 1), body]).sort(descending=True).values
    law = fit_tail(values[None])
    assert 0.8 < float(law.start) < 1.6
    assert 150 < int(law.tail) < 330


def with_spectrum(values: torch.Tensor) -> Subject:
    count = len(values)
    net = nn.Linear(count, count, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.diag(values.sqrt()))
    return Subject(net, "mse", (torch.eye(count).double(), torch.eye(count).double()))


def test_goodness_of_fit_tells_a_power_law_from_another_spectrum() -> None:
    """The other one gets denser towards its largest values, so that no tail of it falls."""
    laws = [PowerLawExponent()(with_spectrum(pareto(2.5, 200, seed))) for seed in range(8)]
    random = torch.Generator().manual_seed(0)
    others = [1 + 9 * (1 - torch.rand(200, generator=random) ** 4) for _ in range(8)]
    other = [PowerLawExponent()(with_spectrum(row.double())) for row in others]
    assert sum(row.terms["goodness_of_fit"] > 0.1 for row in laws) >= 6
    assert sum(row.terms["goodness_of_fit"] > 0.1 for row in other) <= 1


def test_an_untrained_layer_has_the_value_of_its_null() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(256, 100), nn.ReLU(), nn.Linear(100, 60))
    x = torch.zeros(2, 256)
    initial = {name: value.clone() for name, value in net.state_dict().items()}
    result = PowerLawExponent()(Subject(net, "mse", (x, torch.zeros(2, 60)), initial=initial))
    for row in result.details["by_layer"].values():
        assert abs(row["exponent"] - row["untrained"]) < 4 * row["untrained_spread"]
        assert row["initial"] == pytest.approx(row["exponent"])
        assert row["untrained"] > 2  # what counts as well trained elsewhere


def test_small_layers_are_skipped_by_name() -> None:
    net = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 2))
    result = PowerLawExponent()(Subject(net, "mse", (torch.zeros(2, 8), torch.zeros(2, 2))))
    assert list(result.details["by_layer"]) == ["0.weight"]
    assert "2 eigenvalues" in result.details["skipped"]["1.weight"]
    alone = PowerLawExponent()(Subject(net[1], "mse", (torch.zeros(2, 6), torch.zeros(2, 2))))
    assert "singular values" in alone.reason
