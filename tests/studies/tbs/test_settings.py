"""Taylor Based Sampling over its settings: equal budgets, paired orders, a judged claim."""

import pytest
import torch

from mindgap.core.stats import paired
from mindgap.core.study import Trial
from mindgap.core.table import Table
from mindgap.studies import TbsSettings
from mindgap.studies.tbs.table4 import FUNCTIONS, fitted_errors

STUDY = TbsSettings(epsilons=(1e-3,), components=(2, 3), seeds=30)


def summarized(gain: float) -> tuple[Table, dict[str, list[float]]]:
    """Make the table of made-up errors that are lower by ``gain`` for orders 2 and 3."""
    random = torch.Generator().manual_seed(0)
    names = ["uniform", *(f"order {o}, ε {e:g}, {c} Gaussians" for o, e, c in STUDY.settings())]
    scores = {
        name: (1 - gain * name.startswith(("order 2", "order 3")) + 0.1 * noise).tolist()
        for name, noise in zip(names, torch.rand(len(names), 30, generator=random), strict=True)
    }
    records = [(trial, {"rmse": scores, "largest": scores}) for trial in STUDY.trials()[:1]]
    return STUDY.summarize(records), scores


def test_rows_hold_the_paired_difference_from_uniform_points() -> None:
    table, scores = summarized(0.5)
    row = next(row for row in table.rows if row[:5] == ("Runge", "L2 error", 2, 1e-3, 3))
    test = paired(scores["order 2, ε 0.001, 3 Gaussians"], scores["uniform"])
    assert row[7:10] == (test.difference, test.interval.low, test.interval.high)
    assert len(table.rows) == 2 * 7


@pytest.mark.parametrize(
    ("gain", "held", "count"), [(0.5, "yes", 8), (0, "no", 0), (-0.5, "no", 0)]
)
def test_the_claim_follows_the_comparison_with_order_one(
    gain: float, held: str, count: int
) -> None:
    table, _ = summarized(gain)
    (claim,) = table.claims
    assert claim.held == held
    assert f"{count} of 8" in claim.text
    worse = 4 if gain < 0 else 0
    assert f"{count // 2} are better and {worse} worse" in table.notes[0]


def test_settings_change_the_points_that_are_drawn() -> None:
    study = TbsSettings(seeds=2, epochs=5, tests=20, epsilons=(0.01,), components=(3,))
    record = study.run(Trial(parameters={"function": "Runge"}))
    first, second, third = (record["rmse"][f"order {k}, ε 0.01, 3 Gaussians"] for k in (1, 2, 3))
    assert first != second != third


def test_errors_equal_those_of_networks_trained_one_by_one() -> None:
    random = torch.Generator().manual_seed(1)
    points = torch.rand(4, 16, 1, generator=random, dtype=torch.float64) * 2 - 1
    both, losses = fitted_errors(FUNCTIONS["tanh"], points, (5, 6), 2, epochs=30, tests=40)
    assert both["rmse"].shape == (2, 2)
    assert losses.shape == (4, 2, 2)
    for place, seed in enumerate((5, 6, 5, 6)):
        one, _ = fitted_errors(
            FUNCTIONS["tanh"], points[place : place + 1], (seed,), 1, epochs=30, tests=40
        )
        for metric in ("rmse", "largest"):
            torch.testing.assert_close(
                one[metric][0, 0], both[metric].flatten()[place], rtol=1e-5, atol=1e-6
            )
