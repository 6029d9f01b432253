"""Unscaled inputs: a note for a model that learned, the cause for one that did not."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from torch import Tensor, nn

from mindgap.core import Finding, Recipe, Subject
from mindgap.diagnoses import UnscaledInputs
from mindgap.diagnoses.diagnose import diagnose
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def quick(kind: str, task: str = "classification", seed: int = 0) -> Recipe:
    """A recipe that is trained just enough."""
    return healthy_recipe(kind, task, seed).replace(epochs=3 if kind == "sequence" else 8)


def look(x: Tensor) -> Finding | None:
    width = x[0].numel()
    net = nn.Sequential(nn.Flatten(), nn.Linear(width, 1))
    return UnscaledInputs()(Subject(net, "mse", (x, torch.rand(len(x), 1))))


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plants_are_found_and_healthy_subjects_are_not(kind: str) -> None:
    recipe = quick(kind)
    finding = UnscaledInputs()(UnscaledInputs.plant(recipe))
    assert finding.severity == "wrong"
    assert "reference" in finding.sentences[0]
    assert UnscaledInputs()(fit(recipe.replace(epochs=1), evaluate_every=0).subject()) is None


def test_bytes_of_a_model_that_learned_are_a_note() -> None:
    recipe = quick("image")
    (x, y), (t, u) = recipe.train, recipe.test
    scaled = recipe.replace(train=(255 * x, y), test=(255 * t, u), learning_rate=1e-3)
    finding = UnscaledInputs()(fit(scaled, evaluate_every=0).subject())
    assert finding.severity == "note"
    assert finding.sentence.startswith("The inputs are not scaled")


@pytest.mark.parametrize(
    ("factors", "offset", "words"),
    [
        ((1.0, 1.0, 1e4), 0.0, "input 2 is"),
        ((1.0, 1.0, 1.0), 2000.0, "far from zero"),
        ((100.0, 100.0, 100.0), 0.0, "not about 1"),
        ((1e-3, 1e-3, 1e-3), 0.0, "not about 1"),
    ],
)
def test_words_and_code(factors: tuple[float, ...], offset: float, words: str) -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(500, 3, generator=random) * torch.tensor(factors) + offset
    finding = look(x)
    assert words in finding.sentence
    scope = {"torch": torch, "train_inputs": x, "test_inputs": x}
    exec(finding.advice[0].code, scope)
    assert float(scope["train_inputs"].std(0).max()) == pytest.approx(1, rel=1e-3)
    assert float(scope["train_inputs"].mean(0).abs().max()) < 1e-2
    assert look(scope["train_inputs"]) is None


def test_code_of_images_has_one_number_per_channel() -> None:
    x = 255 * torch.rand(50, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    scope = {"torch": torch, "train_inputs": x, "test_inputs": x}
    exec(look(x).advice[0].code, scope)
    assert scope["mean"].shape == (3, 1, 1)
    assert float(scope["test_inputs"].std()) == pytest.approx(1, rel=1e-2)


def test_constant_inputs_and_many_columns() -> None:
    assert look(torch.ones(50, 3)) is None
    finding = look(1000 * torch.rand(50, 100))
    assert "train_inputs.mean(0)" in finding.advice[0].code


class _Answers:
    """What a fitted regressor of scikit-learn looks like from outside."""

    def predict(self, rows: object) -> Tensor:
        return torch.zeros(len(rows))


class RandomForestRegressor(_Answers): ...


class SVR(_Answers): ...


class Scaled(_Answers):
    steps = (("scale", object()), ("svr", SVR()))


class Alone(_Answers):
    steps = (("svr", SVR()),)


class Search(_Answers):
    best_estimator_ = RandomForestRegressor()


class Voting(_Answers):
    estimators_ = (RandomForestRegressor(), Search())


class Mixed(_Answers):
    estimators_ = (RandomForestRegressor(), SVR())


@pytest.mark.parametrize(
    ("kind", "free"),
    [
        (RandomForestRegressor, True),
        (Scaled, True),
        (Search, True),
        (Voting, True),
        (SVR, False),
        (Alone, False),
        (Mixed, False),
    ],
)
def test_estimators_that_do_not_depend_on_the_scale_are_left_out(kind: type, free: bool) -> None:
    x = 1000 * torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
    subject = Subject(kind(), "mse", (x, x[:, :1]))
    assert ("does not depend" in UnscaledInputs().missing(subject)) == free
    assert (UnscaledInputs()(subject) is None) == free


@pytest.mark.parametrize("case", CASES)
def test_small_subjects_survive(case: str) -> None:
    assert UnscaledInputs()(CASES[case](torch.float32)) is None


def test_they_explain_signals_that_vanish_in_the_initial_network() -> None:
    """Inputs far from zero saturate a recurrent layer, whose initial weights are not to blame."""
    subject = UnscaledInputs.plant(healthy_recipe("sequence", seed=900), 900)
    found = diagnose(subject, diagnoses=["unscaled-inputs", "bad-initialization"])
    assert found.findings[0].name == "unscaled-inputs"
    assert found["bad-initialization"].explained_by == "unscaled-inputs"
