"""Adversarial examples: claims judged by the records, and a small run that is attacked for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from mindgap.core import Study, Trial
from mindgap.studies import AdversarialExamples

STUDY = AdversarialExamples(seeds=3, radii=(0.1,))


def record(clean: float, noise: float, transfer: float, gradient: float) -> dict[str, object]:
    rows = {"noise": [noise], "transfer": [transfer], "gradient": [gradient]}
    return {"clean": clean, "radii": [0.1], **rows}


def held(study: Study, plain: dict[str, object], hard: dict[str, object]) -> list[str]:
    """Three seeds that differ by little, so that means decide."""
    records = []
    for trial in study.trials():
        row = plain if trial["arm"] == "plain" else hard
        moved = {
            name: [value[0] + 0.001 * trial.seed**2] if name in ("noise", "transfer") else value
            for name, value in row.items()
        }
        records.append((trial, moved))
    return [claim.held for claim in study.summarize(records).claims]


def test_claims_follow_the_records() -> None:
    hard = record(0.95, 0.94, 0.9, 0.8)
    assert held(STUDY, record(0.97, 0.96, 0.7, 0.2), hard) == ["yes", "yes", "yes", "yes"]
    assert held(STUDY, record(0.97, 0.6, 0.8, 0.9), hard) == ["no", "no", "no", "no"]


def test_nothing_is_judged_without_both_arms() -> None:
    some = [(Trial(parameters={"arm": "plain"}), record(1.0, 1.0, 1.0, 0.0))]
    table = STUDY.summarize(some)
    assert not table.claims
    assert len(table.rows) == 4


@pytest.mark.shared
def test_attacks_break_more_than_noise(shared_module: Path) -> None:
    study = AdversarialExamples(samples=300, attacked=60, epochs=6, radii=(0.05, 0.2), judged=0.2)
    found = study.run(study.trials()[0])
    assert found["radii"] == [0.05, 0.2]
    assert found["clean"] >= found["noise"][1] > found["gradient"][1] + 0.2
    assert found["gradient"][0] >= found["gradient"][1]
    assert all(row["image"].startswith("data:image/png") for row in found["figure"])
    assert len(found["figure"]) % 3 == 0
