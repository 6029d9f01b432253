"""Verdicts on made-up values, and changes of networks that leave their function alone."""

from __future__ import annotations

import pytest
import torch

from mindgap.core import Trial
from mindgap.data import digits
from mindgap.nets import MLP
from mindgap.studies.measures.at_initialization import (
    STATES,
    MeasuresAtInitialization,
    States,
    states_of,
    with_random_labels,
)
from mindgap.studies.measures.under_rescaling import MeasuresUnderRescaling, folded
from mindgap.studies.measures.walk import quick_measures


def records(**values: list[float | None]) -> list[tuple[Trial, dict[str, object]]]:
    """Records of a single measure; the norm of the weights is claimed to be better if lower."""
    return [
        (
            Trial(parameters={"state": state}, seed=seed),
            {
                "train_error": 0.0,
                "test_error": 0.5,
                "measures": {"some": {"value": value, "reason": "" if value else "none"}},
            },
        )
        for state, row in zip(STATES, values.values(), strict=True)
        for seed, value in enumerate(row)
    ]


LOW, MIDDLE, HIGH = [1.0, 1.1, 1.05, 0.95], [5.0, 5.1, 5.05, 4.95], [9.0, 9.1, 9.02, 8.95]


@pytest.mark.parametrize(
    ("untrained", "true", "random", "wanted"),
    [
        (LOW, MIDDLE, HIGH, "tells all three apart"),
        (LOW, MIDDLE, LOW, "tells true labels from the others"),
        (LOW, MIDDLE, MIDDLE, "sees training, not what was learned"),
        (LOW, LOW, HIGH, "sees random labels, not training"),
        (LOW, LOW, LOW, "sees nothing"),
        ([None] * 4, LOW, HIGH, "sees random labels"),
        ([None] * 4, LOW, LOW, "does not see random labels"),
        (LOW, [1.0, None, 1.0, 1.0], HIGH, "undefined"),
    ],
)
def test_verdicts(
    untrained: list[float], true: list[float], random: list[float], wanted: str
) -> None:
    study = MeasuresAtInitialization()
    table = study.summarize(records(untrained=untrained, true=true, random=random))
    assert table.rows[0][-1] == wanted
    assert any("undefined" in note for note in table.notes) == (None in [*untrained, *true])


def test_shared_samples_make_a_difference_less_certain() -> None:
    values = {"untrained": LOW, "true labels": LOW, "random labels": MIDDLE[::-1]}
    apart, shared = (States("some", values, overlap=o).p_values()[1] for o in (0.0, 0.5))
    assert apart < shared


def test_a_claim_is_judged_by_its_direction() -> None:
    made = records(untrained=LOW, true=LOW, random=HIGH)
    for _, record in made:
        record["measures"] = {
            "parameter-norm": record["measures"]["some"],
            "margin": record["measures"]["some"],
            "power-law-exponent": record["measures"]["some"],
        }
    rows = {row[0]: row[-2] for row in MeasuresAtInitialization().summarize(made).rows}
    direction = {name: cls.direction for name, cls in quick_measures().items()}
    assert rows["margin"] == "no"  # larger is claimed to be better
    assert direction["power-law-exponent"] == "none"
    assert rows["power-law-exponent"] is None
    assert states_of("margin", made).defined


def test_random_labels_are_drawn_for_both_parts() -> None:
    data = digits().subset(200, seed=0)
    other = with_random_labels(data, 1)
    for one, two in ((data.targets, other.targets), (data.test_targets, other.test_targets)):
        assert 0.8 < float((one != two).double().mean()) < 0.97
    assert torch.equal(data.inputs, other.inputs)


def test_folding_leaves_the_function_alone() -> None:
    random = torch.Generator().manual_seed(0)
    net, x = MLP((5, 8, 6, 3), norm="batch").double(), torch.randn(40, 5, generator=random).double()
    for _ in range(5):
        net(3 * x + 1)
    other = folded(net)
    assert len(list(other)) == len(list(net)) - 2
    assert torch.allclose(other(x), net.eval()(x), rtol=1e-12, atol=1e-12)


def test_a_tiny_run_keeps_every_promise_of_invariance() -> None:
    study = MeasuresUnderRescaling().tiny()
    rows = [(trial, study.run(trial)) for trial in study.trials()]
    assert all(record["outputs"] < 1e-12 for _, record in rows)
    table = study.summarize(rows)
    assert {row[0] for row in table.rows} == set(quick_measures())
    assert "Every promise of invariance holds." in table.notes[1]
    moved = {row[0]: row for row in table.rows}
    assert moved["parameter-norm"][1] > 0.1
    assert moved["training-loss"][-1] == "stays"
    rows[0][1]["after"]["margin"]["value"] *= 2
    assert "Broken: margin." in study.summarize(rows).notes[1]
