"""Grokking: runs that are recorded, resumed, and judged by when they generalize."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from mindgap.core import Trial
from mindgap.data.modular import modular_arithmetic
from mindgap.studies.grokking import run as runs
from mindgap.studies.grokking.grokking import ARMS, Grokking
from mindgap.studies.grokking.run import Pairs, Training, passed, readings


def training(**changes: object) -> Training:
    data = modular_arithmetic(7, "+", 0.5, 0)
    fields = {"model": lambda: Pairs(7, 16), "data": data, "steps": 60, "seed": 1}
    rates = {"learning_rate": 1e-2, "weight_decay": 1.0}
    return Training(**{**fields, **rates, **changes})  # type: ignore[arg-type]


def test_readings_are_dense_at_first_and_end_at_the_last_step() -> None:
    places = list(readings(5000))
    assert places[:20] == list(range(1, 21))
    assert places[-1] == 5000
    assert all(
        after / before <= 1.1 or after - before == 1 for before, after in itertools.pairwise(places)
    )


def test_training_is_full_batch_adamw() -> None:
    data = modular_arithmetic(7, "+", 0.5, 0)
    torch.manual_seed(1)
    model = Pairs(7, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1.0)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data.inputs), data.targets).backward()
        optimizer.step()
    curves = training().curves()
    square = sum(float(p.detach().double().square().sum()) for p in model.parameters())
    assert curves["norm"][-1] == pytest.approx(square**0.5, rel=1e-6)
    assert len(curves["sharp"]) == len(curves["sharp_step"]) >= 3


class KilledError(Exception):
    """Stands for kill -9."""


def test_a_killed_run_resumes_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "SAVED", 20)
    whole = training().curves()
    file = tmp_path / "deep" / "run.pt"
    read = Training._read

    def dying(self: Training, model: object, step: int, *args: object, sharp: bool) -> None:
        if step >= 45:
            raise KilledError
        read(self, model, step, *args, sharp=sharp)  # type: ignore[arg-type]

    monkeypatch.setattr(Training, "_read", dying)
    with pytest.raises(KilledError):
        training(file=file).curves()
    assert file.exists()
    monkeypatch.setattr(Training, "_read", read)
    assert training(file=file).curves() == whole
    assert not file.exists()


def test_passed_is_the_first_time() -> None:
    curves = {"step": [1.0, 2.0, 3.0], "test": [0.96, 0.2, 0.99]}
    assert passed(curves, "test", 0.95) == 1.0
    assert passed(curves, "test", 0.999) is None


def record(train: float | None, test: float | None) -> dict[str, object]:
    curve = {name: [0.5, 1.0] for name in ("train", "test", "norm", "sharp")}
    return {
        "train passes": train,
        "test passes": test,
        "step": [1, 2],
        "sharp_step": [1, 2],
        **curve,
    }


def test_runs_that_never_generalize_count_as_the_longest() -> None:
    study = Grokking(modulus=5)
    found = {"default": [(10, 200), (10, 300), (10, None)], "no weight decay": [(10, None)] * 3}
    records = [
        (Trial(parameters={"arm": arm}, seed=seed), record(*pair))
        for arm, pairs in found.items()
        for seed, pair in enumerate(pairs)
    ]
    table = study.summarize(records)
    rows = {row[0]: row for row in table.rows}
    assert rows["default"][1:6] == (3, 2, 10, 300, 30.0)
    assert rows["no weight decay"][1:6] == (3, 0, 10, None, None)
    assert "2 of 3 runs generalize, 20 to 30 times later" in " ".join(table.notes)
    assert "No run generalizes within its steps: no weight decay." in table.notes


def test_held_out_cells_are_empty() -> None:
    chart = (
        Grokking(modulus=5)
        .summarize([(Trial(parameters={"arm": "default"}, seed=0), record(1, 2))])
        .charts[-1]
    )
    empty = sum(cell is None for row in chart.z for cell in row)
    assert empty == len(modular_arithmetic(5, "+", 0.5, 0).test[1])


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_runs(arm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    study = Grokking(modulus=7, width=8, steps=12)
    found = study.run(Trial(parameters={"arm": arm}, seed=0))
    assert found["step"][-1] == 12
    assert not list((tmp_path / "mindgap").rglob("*.pt"))
