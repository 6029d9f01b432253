"""Over-regularized: dropout, noise and weight decay that hold a model back, and usual amounts of them."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mindgap.core import Finding, Recipe, Subject
from mindgap.diagnoses import OverRegularized
from mindgap.training.fit import fit
from mindgap.training.rival import attainable


class Noise(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.scale * torch.randn_like(inputs) if self.training else inputs


@functools.cache
def data() -> tuple[Any, Any]:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(600, 6, generator=random)
    y = (x @ torch.randn(6, 4, generator=random)).argmax(1)
    return (x[:400], y[:400]), (x[400:], y[400:])


def recipe(brake: nn.Module | None = None, **settings: Any) -> Recipe:
    """A perceptron, with something in training mode behind its hidden layer."""
    train, test = data()
    make = lambda: nn.Sequential(  # noqa: E731
        nn.Linear(6, 32), nn.ReLU(), brake or nn.Identity(), nn.Linear(32, 4)
    )
    return Recipe(
        model=make, train=train, test=test, **{"epochs": 10, "learning_rate": 5e-3, **settings}
    )


def found(recipe: Recipe) -> tuple[Subject, Finding | None]:
    subject = fit(recipe).subject()
    return subject, OverRegularized()(subject)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (recipe(nn.Dropout(0.99)), "Dropout holds the model back: "),
        (recipe(Noise(30.0)), "The noise of training mode holds the model back: "),
        (recipe(nn.Dropout(0.1), weight_decay=0.3), "Weight decay of 0.3 holds the model back: "),
        (recipe(optimizer="adamw", weight_decay=30), "Weight decay of 30 holds the model back: "),
        (recipe(nn.Dropout(0.99), weight_decay=0.3), "Dropout and weight decay of 0.3 hold the "),
    ],
    ids=["dropout", "noise", "decay", "decoupled", "both"],
)
def test_what_holds_a_model_back_is_named(held: Recipe, words: str) -> None:
    finding = found(held)[1]
    assert finding.severity == "wrong"
    assert finding.sentence.startswith(words), finding.sentence
    free = finding.evidence[2].value
    assert all(row.value < free / 3 for row in finding.evidence[4:])
    assert len(finding.advice) == words.count(" and ") + 1


def test_usual_amounts_leave_other_causes_their_name() -> None:
    for settings in ({"learning_rate": 5e-5}, {"epochs": 1}):
        usual = recipe(nn.Dropout(0.5), weight_decay=1e-2, optimizer="adamw", **settings)
        subject, finding = found(usual)
        assert attainable(subject).under
        assert finding is None
    subject, finding = found(recipe(nn.Dropout(0.2), weight_decay=1e-3))
    assert not attainable(subject).under
    assert finding is None


@pytest.mark.parametrize("decay", [0.3, 0.0])
def test_without_a_recipe_shrunk_weights_tell(decay: float) -> None:
    held = recipe(weight_decay=decay, epochs=30 if decay else 1)
    known = fit(held).subject()
    raw = Subject(known.model, "cross_entropy", *data(), initial=known.initial)
    finding = OverRegularized()(raw)
    assert attainable(raw).under
    assert (finding is None) == (decay == 0)
    if finding is not None:
        size = [
            torch.cat([part[f"{k}.weight"].flatten() for k in (0, 3)]).norm()
            for part in (known.model.state_dict(), known.initial)
        ]
        assert finding.evidence[-1].value == pytest.approx(float(size[0] / size[1]))
        assert "a penalty on the weights holds the model back" in finding.sentence


def test_advice_lets_the_model_learn() -> None:
    held = recipe(nn.Dropout(0.99), weight_decay=0.3)
    subject, finding = found(held)
    scope = {"model": held.build(0), "recipe": held}
    for advice in finding.advice:
        exec(advice.code, scope)
    assert scope["recipe"].weight_decay == 0.003
    freed = fit(scope["recipe"].replace(model=lambda: scope["model"])).subject()
    assert freed.mean_error("train") < 0.5 * subject.mean_error("train")
    assert OverRegularized()(freed) is None
