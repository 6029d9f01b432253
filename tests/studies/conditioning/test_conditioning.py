"""The conditioning studies: networks, steps to a loss, tables."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mindgap.core import Trial, generator
from mindgap.studies.conditioning.networks import (
    NORMS,
    SEQUENCE_NORMS,
    Normalized,
    Standardized,
    convolutional,
    sequences,
    started,
)
from mindgap.studies.conditioning.normalization import ConditioningNormalization, with_statistics
from mindgap.studies.conditioning.optimizers import ConditioningOptimizers
from mindgap.studies.conditioning.rare_words import ConditioningRareWords, scores, sentences
from mindgap.studies.conditioning.steps import RULES, Problem, compared, spoken, tuned

IMAGES = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def problem(**changes: object) -> Problem:
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    fields = {
        "model": lambda: nn.Linear(4, 2),
        "train": (x, (x[:, 0] > 0).long()),
        "batch_size": 20,
        "target": 0.3,
        "limit": 80,
    }
    return Problem(**{**fields, **changes})  # type: ignore[arg-type]


def test_steps_are_counted_until_ten_batches_are_at_the_target() -> None:
    run = problem().learn("Adam", 0.1, seed=0)
    assert len(run.losses) == run.steps < 80
    assert sum(run.losses[-10:]) <= 3.0 < sum(run.losses[-11:-1])
    whole = problem().learn("Adam", 0.1, seed=0, whole=True)
    assert (len(whole.losses), whole.steps) == (80, run.steps)
    assert whole.losses[: run.steps] == run.losses


def test_what_does_not_arrive_or_diverges_counts_with_the_limit() -> None:
    assert problem(target=1e-9).learn("SGD", 0.1, seed=0).steps == 80
    lost = problem().learn("SGD", 1e9, seed=0)
    assert lost.steps == 80
    assert len(lost.losses) < 80


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_learns(rule: str) -> None:
    rate, _ = tuned(problem(), rule, rates=7, search=1)
    assert problem().learn(rule, rate, seed=1).steps < 80


def test_the_rate_with_fewest_steps_is_taken_and_ends_are_told() -> None:
    rate, at_end = tuned(problem(), "SGD", rates=5, search=1)
    steps = {r: problem().learn("SGD", r, 10_000).steps for r in (0.03, 0.3 / 10**0.5, 0.3, 3.0)}
    assert all(problem().learn("SGD", rate, 10_000).steps <= other for other in steps.values())
    assert at_end == (rate > 2.9)


def test_ratios_are_paired_by_seed() -> None:
    words, p = compared({"a": [10, 20, 40], "b": [20, 40, 80]}, "a")["b"]
    assert words == "2.00 (2.00–2.00)"
    assert p < 1e-20
    assert spoken([10, 10], 20) == "10 (10–10)"
    assert spoken([10, 20], 20).endswith("1 over 20)")
    assert spoken([20, 20], 20) == "over 20"


@pytest.mark.parametrize("norm", NORMS)
def test_convolutional_networks(norm: str) -> None:
    torch.manual_seed(0)
    plain, doubled = (started("CNN", norm, IMAGES, factor)(IMAGES) for factor in (1.0, 2.0))
    assert plain.shape == doubled.shape == (64, 10)
    assert plain.isfinite().all()


def test_the_data_based_start_gives_mean_zero_and_variance_one() -> None:
    torch.manual_seed(0)
    model = started("CNN", "weight, data-based", IMAGES, 3.0)
    seen: list[torch.Tensor] = []
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda _, __, out: seen.append(out))
    model(IMAGES)
    assert len(seen) == 6
    for output in seen:
        assert output.mean((0, 2, 3)).abs().max() < 1e-4
        assert (output.std((0, 2, 3)) - 1).abs().max() < 1e-4


def test_parametrizations() -> None:
    weight = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0))
    gain, direction = Normalized().right_inverse(weight)
    torch.testing.assert_close(Normalized()(gain, direction), weight)
    torch.testing.assert_close(Normalized()(gain, 7 * direction), weight)
    plain = Standardized(5, scaled=False)(weight).flatten(1)
    torch.testing.assert_close(plain.mean(1), torch.zeros(5))
    torch.testing.assert_close(plain.std(1, correction=0), torch.ones(5), rtol=1e-4, atol=1e-4)


def test_scaled_standardized_weights_keep_the_variance_after_relu() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(400, 2_000, bias=False)
    weight = Standardized(2_000, scaled=True)(layer.weight)
    outputs = torch.randn(500, 400) @ weight.T
    assert float(outputs.detach().relu().var()) == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("norm", SEQUENCE_NORMS)
def test_transformers(norm: str) -> None:
    inputs, _ = sequences(20, seed=0)
    model = started("transformer", norm, inputs, 1.0)
    assert model(inputs).isfinite().all()
    assert any(isinstance(one, nn.LayerNorm) for one in model.modules()) == (norm == "layer")


def test_the_class_is_the_symbol_after_the_zero() -> None:
    inputs, labels = sequences(100, seed=0)
    for row, label in zip(inputs.tolist(), labels.tolist(), strict=True):
        assert row.count(0) == 1
        assert row[row.index(0) + 1] == label


def test_batch_normalization_gets_the_statistics_of_all_data() -> None:
    torch.manual_seed(0)
    model = with_statistics(convolutional("batch"), (IMAGES, torch.zeros(64)))
    assert not model.training
    torch.testing.assert_close(model[1].running_mean, model[0](IMAGES).mean((0, 2, 3)))


def test_words_follow_zipf() -> None:
    inputs, labels = sentences(scores(0), 20_000, generator(0))
    counts = torch.bincount(inputs.flatten(), minlength=500).double()
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.1)
    assert labels.equal((scores(0)[inputs].sum(1) > 0).long())
    rare, _ = sentences(scores(0), 100, generator(0), (100, 500))
    assert int(rare.min()) >= 100


def test_adaptive_optimizers_learn_rare_words_sooner() -> None:
    study = ConditioningRareWords(seeds=2, search=1, rates=3, steps=150)
    records = {
        rule: study.run(Trial(parameters={"optimizer": rule})) for rule in ("SGD", "AdaGrad")
    }
    errors = {rule: record["errors"]["rare"] for rule, record in records.items()}
    assert sum(errors["AdaGrad"]) < sum(errors["SGD"])


def test_claims_of_the_normalization_study_are_judged() -> None:
    study = ConditioningNormalization()

    def record(steps: int, error: float) -> dict[str, object]:
        wiggle = [0, 1, 2, 1, 0]
        return {
            "rate": 0.1,
            "at_end": False,
            "steps": [steps + k for k in wiggle],
            "test_error": [error + k / 1000 for k in wiggle],
            "largest": [1.0] * 5,
            "spread": [2.0] * 5,
        }

    found = {"none": (200, 0.1), "batch": (50, 0.05), "layer": (100, 0.02), "weight": (90, 0.1)}
    records = [
        (
            Trial(parameters={"network": "CNN", "setting": "standard", "norm": norm}),
            record(*values),
        )
        for norm, values in found.items()
    ]
    notes = " ".join(study.summarize(records).notes)
    assert "Batch normalization speeds up (standard): holds" in notes
    assert "worse than batch normalization for CNNs (standard): the opposite was measured" in notes


def test_optimizers_are_compared_with_sgd() -> None:
    steps = {"SGD": [100, 110, 120], "Adam": [50, 55, 60], "K-FAC": [100, 110, 121]}
    records = [
        (
            Trial(parameters={"network": "CNN", "setting": "standard", "optimizer": rule}),
            {"rate": 0.1, "at_end": rule == "Adam", "steps": values},
        )
        for rule, values in steps.items()
    ]
    table = ConditioningOptimizers().summarize(records)
    assert math.isclose(float(table.rows[1][5].split()[0]), 0.5)
    assert "Adam 1, K-FAC 0" in " ".join(table.notes)
    assert "an end of their grid: CNN, standard, Adam." in " ".join(table.notes)
