"""Variants of PerturbedOPT: every arm trains, validation chooses, and both controls decide."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mindgap.core.study import Record, Trial
from mindgap.studies.perturbed.noisy_networks import Arm, Plan, errors, train
from mindgap.studies.perturbed.variants import ARMS, LOADERS, PerturbedVariants

PLAN = Plan(width=5, epochs=3, batch_size=8, learning_rate=0.01)


SEEDS, SAMPLES, FEATURES = 3, 24, 4


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SEEDS, SAMPLES, FEATURES, generator=source)
    return inputs, (inputs.sum(2) > 0).long() + (inputs[:, :, 0] > 1).long()


@pytest.mark.parametrize("rule", ARMS)
def test_every_arm_trains_and_none_is_another(rule: str) -> None:
    inputs, labels = data()
    plain = train(inputs, labels, Arm("plain"), PLAN, seed=1)
    found = train(inputs, labels, Arm(rule, ARMS[rule][-1]), PLAN, seed=1)
    assert all(torch.isfinite(w).all() for w in found)
    same = all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    assert same == (rule in ("plain", "twice"))  # the latter differs by its epochs alone
    assert len(errors(found, inputs, labels)) == SEEDS


def test_the_setting_is_chosen_on_validation_error() -> None:
    study = PerturbedVariants().tiny()
    record = study.run(Trial(parameters={"data": "digits", "rule": "dropout"}))
    least = min(record["validation"], key=record["validation"].get)
    assert float(least) == record["chosen"]
    assert len(record["test"]) == len(record["train"]) == 2


def test_a_variant_wins_only_against_both_controls_on_both_data_sets() -> None:
    def record(level: float) -> Record:
        return {"chosen": 0.1, "train": [0.0] * 8, "test": [level + 0.001 * k for k in range(8)]}

    def note(filter_on_mnist: float) -> str:
        levels = {"plain": 0.10, "dropout": 0.08}
        records = [
            (
                Trial(parameters={"data": data, "rule": rule}),
                record(
                    levels.get(
                        rule,
                        0.09
                        if rule != "filter"
                        else (0.05 if data == "digits" else filter_on_mnist),
                    )
                ),
            )
            for data in LOADERS
            for rule in ARMS
        ]
        for place, (_, found) in enumerate(records):
            found["test"][0] += 1e-5 * place  # so that no difference is the same for all seeds
        ends, *_, winners = PerturbedVariants().summarize(records).notes[1:]
        assert "dropout on digits; " in ends  # 0.1 is its least
        assert "drawn for each sample" not in ends
        return winners

    assert note(0.05).endswith("noise by the filter's size.")
    assert note(0.085).endswith("none.")  # better than Adam there, not better than dropout
