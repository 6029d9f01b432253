"""Not robust: linear models in closed form, plants, healthy nets, and never more than a note."""

from __future__ import annotations

import pytest
import torch
from healthy import healthy
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses.model.not_robust import NotRobust, compared, scene_near
from mindgap.ops.attacks.nearby import nearby
from mindgap.studies.diagnoses.healthy import healthy_recipe

KINDS = [
    ("image", "classification"),
    ("table", "classification"),
    ("table", "regression"),
    ("sequence", "classification"),
]


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_plants_are_noted_and_healthy_nets_are_not(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task, seed=1)  # type: ignore[arg-type]
    assert NotRobust()(healthy(kind, task)) is None
    if kind not in NotRobust.kinds:
        return
    finding = NotRobust()(NotRobust.plant(recipe, seed=1))
    assert finding is not None
    assert finding.severity == "note"
    assert "adversarial-training" in {advice.remedy for advice in finding.advice}
    noise, attack = finding.charts[0].series
    assert min(noise.y) > max(attack.y) - 0.2
    assert list(attack.y) == sorted(attack.y, reverse=True)


def linear(slope: float) -> Subject:
    """A linear rule that is right on all data; ``slope`` is its weight on what never differs."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(600, 40, generator=random, dtype=torch.float64)
    x[:, 0] += 2 * x[:, 0].sign()
    x[:, 2] = x[:, 1]
    model = nn.Linear(40, 2).double()
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
        model.weight[1, :3] = torch.tensor([1.0, slope, -slope])
    data = x, (x[:, 0] > 0).long()
    return Subject(model, "cross_entropy", data, data)


def test_a_linear_model_breaks_where_the_way_to_its_boundary_is_shorter() -> None:
    subject = linear(5.0)
    near = nearby(subject, 200)
    lengths = 0.05 * near.distances
    held, broken = compared(scene_near(subject, near), lengths)
    steep = (subject.model.weight[1] * near.scale).norm()
    way = near.inputs[:, 0].abs() / steep
    assert held.all()
    clear = (way / lengths - 1).abs() > 0.03  # ten steps get that close
    assert torch.equal(broken[clear], (way < lengths)[clear])
    assert 20 < int(broken.sum()) < 180


def test_suspects_are_the_broken_samples() -> None:
    assert NotRobust()(linear(0.0)) is None
    found = NotRobust()(linear(30.0))
    assert found is not None
    subject = linear(30.0)
    near = nearby(subject, 200)
    held, broken = compared(scene_near(subject, near), 0.05 * near.distances)
    assert set(found.suspects.index) == set(near.places[broken].tolist())
    assert found.evidence[0].value == pytest.approx(int(broken.sum()) / int(held.sum()))


def test_what_random_changes_break_is_left_to_another_diagnosis() -> None:
    subject = linear(1e6)
    near = nearby(subject, 200)
    held, broken = compared(scene_near(subject, near), near.distances)
    assert int(held.sum()) < 100
    assert not (broken & ~held).any()


def test_too_few_samples_say_nothing() -> None:
    subject = linear(30.0)
    few = Subject(subject.model, "cross_entropy", subject.train, _first(subject, 40))
    assert NotRobust()(few) is None


def _first(subject: Subject, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    batch = subject.split("test").take(torch.arange(count))
    return batch.inputs[0], subject.targets("test")[:count]
