"""Table 4 of Taylor Based Sampling: arms of equal budget, and rows that say what was measured."""

import importlib.util
from typing import Any

import pytest
import torch
from torch import nn

from mindgap.core.stats import paired
from mindgap.core.study import Trial
from mindgap.ops.taylor.metric import taylor_metric
from mindgap.studies import TbsTable4
from mindgap.studies.tbs.shared import against, keras_mlp
from mindgap.studies.tbs.table4 import ADAPTIVE, ARMS, BOX, FUNCTIONS, RESAMPLED, arm_points


def test_functions_and_their_taylor_metric_are_those_stated() -> None:
    x = torch.tensor([[-0.3], [0.1]], dtype=torch.float64)
    runge, steep = FUNCTIONS["Runge"](x), FUNCTIONS["tanh"](x)
    torch.testing.assert_close(runge, 1 / (1 + 25 * x**2))
    torch.testing.assert_close(steep, torch.tanh(10 * x))
    slope, curve = -50 * x * runge**2, -50 * runge**2 + 5000 * x**2 * runge**3
    expected = 1e-3 * slope**2 + 1e-6 / 2 * curve**2
    torch.testing.assert_close(taylor_metric(FUNCTIONS["Runge"], x, epsilon=1e-3), expected[:, 0])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_has_sixteen_points_and_most_share_the_grid(name: str, arm: str) -> None:
    if arm == ADAPTIVE and not importlib.util.find_spec("adaptive"):
        pytest.skip("the package adaptive is not installed")
    points = arm_points(arm, FUNCTIONS[name], seed=5)
    assert points.shape == (16, 1)
    assert bool(BOX.contains(points).all())
    assert torch.equal(points, arm_points(arm, FUNCTIONS[name], seed=5))
    size = 16 if arm == "grid of 16" else 8
    torch.testing.assert_close(points[:size, 0], torch.linspace(-1, 1, size, dtype=torch.float64))
    fixed = arm in ("grid of 16", ADAPTIVE)
    assert torch.equal(points, arm_points(arm, FUNCTIONS[name], seed=6)) == fixed


def test_resampled_points_lie_on_known_ones() -> None:
    points = arm_points(RESAMPLED, FUNCTIONS["tanh"], seed=0)
    assert float((points[8:] - points[:8].T).abs().amin(1).max()) < 0.02


def test_the_taylor_metric_draws_points_to_the_large_gradient() -> None:
    for arm in ("TBS, weighted mixture", "TBS, pool", "TBS, exact density", "neighbors, pool"):
        new = torch.cat([arm_points(arm, FUNCTIONS["tanh"], seed)[8:] for seed in range(15)])
        assert float((new.abs() < 0.3).double().mean()) > 0.5, arm  # uniform points: 0.3


def test_network_is_initialized_as_in_keras() -> None:
    torch.manual_seed(0)
    layers = [layer for layer in keras_mlp(50, 150, 1) if isinstance(layer, nn.Linear)]
    assert not any(bool(layer.bias.any()) for layer in layers)
    limit = (6 / 200) ** 0.5
    assert 0.98 * limit < float(layers[0].weight.detach().abs().max()) <= limit


def record(shift: float, seeds: int) -> dict[str, Any]:
    arms = {"uniform": 1.0, "Sobol": 1.0 - shift, RESAMPLED: 1.0, "grid of 16": 1.0}
    arms |= {"TBS, weighted mixture": 1.0, "TBS, exact density": 1.0 - shift}
    noise = torch.rand(seeds, generator=torch.Generator().manual_seed(0)).tolist()
    other = torch.rand(seeds, generator=torch.Generator().manual_seed(1)).tolist()
    values = {arm: [mean + a + (arm != "uniform") * (b - 0.5) / 9 for a, b in zip(noise, other, strict=True)]
              for arm, mean in arms.items()}  # fmt: skip
    return {"scores": {"rmse": values, "largest": values}, "train": [0.2, 0.1]}


def test_rows_hold_the_paired_difference_and_the_papers_number() -> None:
    trial, found = Trial(parameters={"function": "Runge"}), record(0.5, 30)
    table = TbsTable4().summarize([(trial, found)])
    by_arm = {row[2]: row for row in table.rows if row[1] == "L2 error"}
    values = found["scores"]["rmse"]
    test = paired(values["Sobol"], values["uniform"])
    assert by_arm["Sobol"][6:9] == (test.difference, test.interval.low, test.interval.high)
    assert by_arm["uniform"][3] == 0.0145
    assert by_arm["uniform"][6] is None
    assert by_arm["Sobol"][9] < 1e-6
    assert by_arm[RESAMPLED][9] > 0.05
    assert any("adaptive is not installed" in note for note in table.notes)
    assert any(
        "L2 error: TBS, exact density minus grid of 16: -0.5" in note for note in table.notes
    )
    assert len(table.charts) == 2


def test_holm_counts_the_arms() -> None:
    scores = {"uniform": [1.0, 2.0, 3.0, 4.0], "a": [0.9, 2.1, 2.7, 3.6], "b": [0.5, 1.0, 2.9, 2.0]}
    found = against(scores)
    raw = {arm: paired(scores[arm], scores["uniform"]).p_value for arm in "ab"}
    first = min(raw, key=lambda arm: raw[arm])
    assert found[first][5] == pytest.approx(2 * raw[first])


def test_taylor_sampling_lowers_the_largest_error_on_tanh() -> None:
    """The paper's result on few seeds: uniform points rarely fall where the gradient is large."""
    found = TbsTable4(seeds=10, epochs=3000, tests=400).run(Trial(parameters={"function": "tanh"}))
    largest = {arm: sum(values) / len(values) for arm, values in found["scores"]["largest"].items()}
    assert largest["TBS, exact density"] < 0.8 * largest["uniform"]
    assert largest["TBS, weighted mixture"] < 0.8 * largest["uniform"]
