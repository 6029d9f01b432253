"""Figures 2 to 5 of Wang et al. 2018: network, settings, and the table of known records."""

from __future__ import annotations

import pytest

from mindgap.core.study import Record, Trial
from mindgap.studies.pacgen.figure2 import (
    LOADERS,
    RIVALS,
    PacgenFigure2,
    distance,
    gap,
    network,
    reached,
)


def test_network_is_that_of_the_pytorch_example() -> None:
    assert sum(p.numel() for p in network(1, 28).parameters()) == 21_840
    assert sum(p.numel() for p in network(3, 32).parameters()) == 760 + 5020 + 25_050 + 510


def test_settings_are_two_sweeps_that_meet() -> None:
    for data, rate in {"MNIST": 0.1, "CIFAR-10": 0.05}.items():
        found = settings(PacgenFigure2(), data)
        assert len(found) == len(set(found)) == 8
        assert (32, rate) in found


def test_published_settings_are_options_and_every_sweep_has_its_trials() -> None:
    study = PacgenFigure2(cifar10_rate=0.01, middle=256)
    found = settings(study, "CIFAR-10")
    assert found[:5] == [(size, 0.01) for size in (8, 16, 32, 64, 128)]
    assert found[5:] == [(256, 0.0025), (256, 0.005), (256, 0.01), (256, 0.02)]
    assert any("0.01 on CIFAR-10 (paper: 0.01)" in note for note in study.summarize([]).notes)
    assert any("is 32 (paper: 256)" in note for note in PacgenFigure2().summarize([]).notes)


def settings(study: PacgenFigure2, data: str) -> list[tuple[int, float]]:
    """List batch sizes and learning rates of the trials of the first seed."""
    return [
        (trial["batch_size"], trial["learning_rate"])
        for trial in study.trials()
        if trial["data"] == data and trial.seed == 0
    ]


def test_nearness_is_a_ratio_and_overshooting_counts_as_reached() -> None:
    assert distance({"train_loss": 0.2}, 0.1) == pytest.approx(distance({"train_loss": 0.05}, 0.1))
    assert not reached(None, 0.1)
    assert not reached(({"train_loss": 0.2}, {}), 0.1)
    assert reached(({"train_loss": 0.01}, {}), 0.1)


def records(sign: float) -> list[tuple[Trial, Record]]:
    """Make records whose gap grows with batch size and rate; ``sign`` is the trend of Ψ."""
    rows = []
    for seed in (0, 1, 2):
        for data in LOADERS:
            for size, rate in settings(PacgenFigure2(), data):
                wide = size * rate * 10
                found = {
                    "epoch": 5.0,
                    "train_loss": 0.1,
                    "test_loss": 0.1 + wide,
                    **dict.fromkeys(RIVALS, wide),
                }
                found |= {
                    "train_loss": 0.1,
                    "squared-gradient": sign * wide,
                    "rho": 2.0,
                    "capped": 0.5,
                    "clipped": 0.25,
                }
                rows.append(
                    (
                        Trial(
                            parameters={"data": data, "batch_size": size, "learning_rate": rate},
                            seed=seed,
                        ),
                        {
                            "stopped": "",
                            "along": [found],
                            "epochs": found,
                            "loss": found,
                            "reached": seed != 2,
                        },
                    )
                )
    return rows


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_correlations_of_known_records(sign: float) -> None:
    found = PacgenFigure2(epochs=5).summarize(records(sign))
    wanted = {"Ψ, squared gradients": f"{sign:+.2f} [{sign:.2f}, {sign:.2f}]", "training loss": "—"}
    assert len(found.rows) == 4 * (1 + len(RIVALS))
    # The training loss is the same everywhere; all other quantities follow the gap.
    for _, _, quantity, *cells in found.rows:
        assert cells == [wanted.get(quantity, "+1.00 [1.00, 1.00]")] * 2
    assert any("16 of 24 runs were compared" in note for note in found.notes)
    assert any("Capped weights: 50 %" in note for note in found.notes)


def test_a_diverged_run_is_left_out_and_counted() -> None:
    rows = records(1.0)
    rows[0] = (rows[0][0], {"stopped": "diverged: …", "along": []})
    found = PacgenFigure2(epochs=5).summarize(rows)
    assert found.notes[-1] == "Diverged and left out: 1."
    assert gap({"test_loss": 3.0, "train_loss": 1.0}) == 2.0
