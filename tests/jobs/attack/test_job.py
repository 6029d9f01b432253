"""The job `attack`: a healthy net, masked nets whose true robust accuracy is known, and its files."""

from __future__ import annotations

import csv
import functools
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mindgap import Subject, attack, fit
from mindgap.core import InputError, NotFiniteError, UnknownNameError
from mindgap.core.chart.numbers import percent
from mindgap.measures import RobustAccuracy
from mindgap.ops.attacks.descent import pgd
from mindgap.ops.attacks.masking import MaskingNotice
from mindgap.ops.attacks.robustness import Settings, levels
from mindgap.ops.attacks.scene import scene_of
from mindgap.ops.attacks.threat import Threat
from mindgap.ops.attacks.victim import Victim
from mindgap.studies.diagnoses.healthy import healthy_recipe


@functools.cache
def digits() -> Subject:
    return fit(healthy_recipe("image", seed=1), seed=1).subject()


class Hidden(nn.Module):
    def __init__(self, model: nn.Module, how: str) -> None:
        super().__init__()
        self.model, self.how = model, how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "rounded":
            return self.model((x * 32).round() / 32)
        if self.how == "ramps":  # the digits are multiples of 1/16, and only there is a slope
            rest = 16 * x - (16 * x).round()
            return self.model((16 * x - rest + rest * (rest.abs() < 0.05)) / 16)
        return torch.softmax(100 * self.model(x), 1)


def hidden(how: str) -> Subject:
    plain = digits()
    return Subject(Hidden(plain.model, how), "cross_entropy", plain.train, plain.test)


SMALL = {"samples": 150, "steps": 10, "epsilons": [8 / 255, 0.1]}


@functools.cache
def healthy_answer() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error", MaskingNotice)
        return attack(digits(), **SMALL)


def test_a_healthy_net_falls_and_hides_nothing() -> None:
    found = healthy_answer()
    assert not found.masked
    assert len(found.signs) == 4
    assert found.clean > found.rows[0].accuracy > found.rows[1].accuracy
    assert found.rows[1].noise > found.rows[1].black_box > found.rows[1].accuracy
    assert all(row.interval.low <= row.accuracy <= row.interval.high for row in found.rows)


def test_a_saturated_softmax_is_named_and_its_true_accuracy_found() -> None:
    truth = healthy_answer()
    with pytest.warns(MaskingNotice, match="zero gradients"):
        found = attack(hidden("softmax"), **SMALL)
    named = {sign.name for sign in found.signs if sign.found}
    assert named >= {"zero gradients", "large changes do not suffice"}
    for row, true in zip(found.rows, truth.rows, strict=True):
        assert row.accuracy <= true.accuracy + 0.02
    # Without the attack on the logits the model looks robust.
    scene = scene_of(hidden("softmax"), samples=150)
    blind = pgd(scene.victim, scene.inputs, scene.targets, scene.threat.at(0.1), steps=10)
    assert blind.robust_accuracy > truth.rows[1].accuracy + 0.2


def test_rounded_inputs_are_named() -> None:
    with pytest.warns(MaskingNotice, match="black box beats white box"):
        found = attack(hidden("rounded"), **{**SMALL, "epsilons": [0.1, 0.25]})
    assert found.rows[1].accuracy <= found.rows[1].black_box


def test_steps_that_leave_the_slope_are_named() -> None:
    with pytest.warns(MaskingNotice, match="more steps hurt"):
        attack(hidden("ramps"), **{**SMALL, "epsilons": [0.15]}, black_box=False)


def test_files_say_the_same(tmp_path: Path) -> None:
    found = healthy_answer()
    for ending in ("html", "json", "csv"):
        found.save(tmp_path / f"a.{ending}")
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["rows"][0]["accuracy"] == found.rows[0].accuracy
    lines = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    held = [line for line in lines if not line["smallest radius"]]
    assert len(held) / len(lines) == pytest.approx(found.rows[-1].accuracy)
    page = (tmp_path / "a.html").read_text()
    assert found.verdict.headline in page
    assert page.count("data:image/png") >= 3
    for row in found.rows:  # terminal and page write the same numbers
        assert percent(row.accuracy) in str(found)
        assert f"<td>{percent(row.accuracy)}</td>" in page
    with pytest.raises(InputError, match=r"\.html"):
        found.save(tmp_path / "a.pdf")


def test_tables_regressions_and_a_threat_of_ones_own() -> None:
    subject = fit(healthy_recipe("table", "regression", seed=1).replace(epochs=3), seed=1).subject()
    found = attack(subject, norm="l2", samples=40, steps=5, black_box=False)
    assert found.rows[0].black_box is None
    assert found.rows[-1].accuracy < found.clean
    mask = torch.zeros(10)
    mask[0] = 1
    narrow = attack(subject, threat=Threat(epsilon=0.5, mask=mask), samples=40, black_box=False)
    assert len(narrow.signs) == 3
    assert found.to_dict()["norm"] == "l2"


def test_tokens_are_refused_in_one_sentence() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 2))
    data = torch.randint(0, 5, (8, 3)), torch.arange(8) % 2
    with pytest.raises(InputError, match="real numbers"):
        attack(Subject(model, "cross_entropy", data))


def test_weights_that_are_no_numbers_are_refused_by_name() -> None:
    model = nn.Linear(3, 2)
    model.weight.data.fill_(torch.nan)
    data = torch.rand(8, 3), torch.arange(8) % 2
    with pytest.raises(NotFiniteError, match="'weight'"):
        attack(Subject(model, "cross_entropy", data))


def test_the_measure_equals_a_loop_over_samples() -> None:
    subject = digits()
    scene, held = scene_of(subject, samples=30), 0
    for x, y in zip(scene.inputs.split(1), scene.targets.split(1), strict=True):
        found = pgd(Victim.of(subject.model), x, y, scene.threat, steps=10, random_start=False)
        held += not bool(found.broken)
    result = RobustAccuracy(samples=30)(subject)
    assert float(result) == held / 30
    assert result.terms["noise"] >= float(result)
    assert (
        float(RobustAccuracy(samples=60)(hidden("softmax")))
        <= float(RobustAccuracy(samples=60)(subject)) + 0.02
    )


def test_a_model_that_ignores_its_inputs_hides_nothing() -> None:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.mul_(1e-3)
        model.bias.copy_(torch.tensor([5.0, 0.0]))
    x = torch.rand(60, 2, generator=torch.Generator().manual_seed(0))
    data = x, (x.sum(1) > 1).long()
    found = attack(Subject(model, "cross_entropy", data), samples=60, steps=5)
    assert not found.masked
    assert found.rows[-1].accuracy == found.clean


def linear(seed: int = 0) -> Subject:
    random = torch.Generator().manual_seed(seed)
    model = nn.Linear(6, 2)
    with torch.no_grad():
        model.weight.copy_(torch.randn(2, 6, generator=random))
        model.bias.zero_()
    x = torch.randn(80, 6, generator=random)
    targets = model(x).argmax(1)
    targets[:8] = 1 - targets[:8]  # predictions that are wrong already
    return Subject(model, "cross_entropy", (x, targets), classes=("no", "yes"))


def distances(subject: Subject, order: float, mask: torch.Tensor) -> torch.Tensor:
    """How far every sample is from the boundary of a linear model, along features of the mask."""
    slope = (subject.model.weight[1] - subject.model.weight[0]).detach().double() * mask
    gaps = subject.outputs("train").double()
    return (gaps[:, 1] - gaps[:, 0]).abs() / torch.linalg.vector_norm(slope, order)


@pytest.mark.parametrize(("norm", "dual"), [("linf", 1), ("l2", 2)])
def test_masks_goals_and_smallest_changes_are_exact_on_a_linear_model(
    norm: str, dual: float
) -> None:
    subject, mask = linear(), torch.tensor([1.0, 0.0, 0.5, 1.0, 0.0, 0.0])
    threat = Threat(norm=norm, mask=mask)  # no box, so that the distances are known
    radii = [0.2, 0.6, 2.0]
    found = attack(
        subject, threat=threat, epsilons=radii, goal="yes", smallest=True, black_box=False,
        restarts=2, momentum=0.5,
    )  # fmt: skip
    ways = distances(subject, dual, (mask != 0).double())
    targets, wrong = subject.targets("train"), subject.errors("train").bool()
    for row in found.rows:
        assert row.accuracy == pytest.approx(float((~wrong & (ways > row.epsilon)).double().mean()))
        predicted = subject.outputs("train").argmax(1)
        there = (predicted == 1) | (ways <= row.epsilon)
        assert row.reached == pytest.approx(float(there[targets == 0].double().mean()))
    for line, way, missed in zip(found.samples, ways.tolist(), wrong.tolist(), strict=True):
        if missed:
            assert line["smallest change"] == 0
        elif way > radii[-1]:
            assert line["smallest change"] == line["smallest radius"] == ""
        else:
            assert line["smallest change"] == pytest.approx(way, rel=1e-3)
    halves = ways[~wrong].sort().values
    assert found.typical == pytest.approx(float(halves[(len(halves) - 1) // 2]), rel=1e-3)
    assert "class yes" in found.verdict.sentences[-1]
    assert [chart.title for chart in found.charts[:2]] == [
        "Accuracy under attack",
        "Predictions driven to class yes",
    ]


def test_a_hidden_gradient_does_not_stop_the_attack_towards_a_class() -> None:
    few = {"samples": 60, "steps": 10, "epsilons": [0.2], "goal": 3, "black_box": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MaskingNotice)
        plain, masked = attack(digits(), **few), attack(hidden("softmax"), **few)
    assert masked.masked
    assert plain.rows[0].reached > 0.5
    assert masked.rows[0].reached > plain.rows[0].reached - 0.1


def test_the_least_likely_class_is_the_goal_of_every_sample() -> None:
    found = attack(digits(), goal="least-likely", **SMALL, black_box=False)
    scene = scene_of(digits(), samples=150)
    least = scene.victim.answers(scene.inputs, 512).argmin(1).tolist()
    assert [int(line["goal"]) for line in found.samples] == least


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"mask": torch.zeros(6)}, "got zeros"),
        ({"mask": torch.ones(5)}, r"mask must fit .* \(5,\)"),
        ({"mask": torch.ones(80, 6)}, "dimensions of one sample"),
        ({"mask": torch.ones(6), "threat": Threat()}, "got both"),
        ({"mask": torch.full((6,), torch.nan)}, "mask must be a number, got NaN"),
        ({"goal": 2}, "from 0 to 1"),
        ({"goal": "nope"}, "Did you mean 'no'"),
    ],
)
def test_masks_and_goals_that_make_no_sense_are_refused(more: dict, said: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=said):
        attack(linear(), black_box=False, **more)


def test_a_goal_needs_classes_and_a_sample_of_another_class() -> None:
    x = torch.rand(8, 2)
    with pytest.raises(InputError, match="regression"):
        attack(Subject(nn.Linear(2, 1), "mse", (x, x[:, :1])), goal=0)
    subject = linear()
    alone = Subject(
        subject.model,
        "cross_entropy",
        subject.train,
        (torch.rand(4, 6), torch.ones(4, dtype=torch.long)),
        classes=("a", "b"),
    )
    with pytest.raises(InputError, match="some sample is not of"):
        attack(alone, goal="b")


class Step:
    """An estimator without a gradient: class 1 from a first feature of 0.5 on."""

    classes_ = np.array([0, 1])

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        above = rows[:, 0] > 0.5
        return np.stack([~above, above], 1) * 0.8 + 0.1


def test_a_model_without_a_gradient_hides_none_and_is_attacked_blindly() -> None:
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    subject = Subject(Step(), "cross_entropy", (x, (x[:, 0] > 0.5).long()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", MaskingNotice)
        found = attack(subject, epsilons=[0.1])
    assert found.signs == ()
    near = float(
        ((x[:, 0] - 0.5).abs() > 0.1 * float(x[:, 0].max() - x[:, 0].min())).double().mean()
    )
    assert near - 1e-9 <= found.rows[0].accuracy <= found.rows[0].noise < 1
    assert "has no gradient" in str(found)
    assert "Is the gradient hidden?" not in found.page()
    result = RobustAccuracy()(Subject(Step(), "cross_entropy", subject.train, (x, x[:, 0].long())))
    assert result.value is None
    assert "an estimator has none" in result.reason


def test_a_prediction_that_is_driven_to_another_class_counts_as_broken() -> None:
    scene, how = scene_of(digits(), samples=150), Settings(steps=1, random_start=False)
    only = 0
    for goal in range(10):
        goals = torch.full_like(scene.targets, goal)
        (plain,), (level,) = (levels(scene, [0.15], how, goal=each) for each in (None, goals))
        arrived = level.towards.broken & (goals != scene.targets)
        assert bool(level.found.broken[arrived].all())
        only += int((arrived & ~plain.found.broken).sum())
    assert only  # what the attack away from the true class alone does not break
