"""Models next to the reference predictor: who learned the training data?"""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from scipy import stats
from torch import nn

from mindgap.core import Subject
from mindgap.ops.evidence.fit import broadcast_advice, fit_quality, under_fits
from mindgap.ops.evidence.reference import reference
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit

KINDS = (
    ("image", "classification"),
    ("table", "classification"),
    ("table", "regression"),
    ("sequence", "regression"),
)


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_a_trained_model_is_no_worse(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task)
    few = recipe.replace(epochs=6) if kind == "sequence" else recipe
    subject = fit(few, evaluate_every=0).subject()
    found = fit_quality(subject)
    assert not found.under
    assert found.model < found.reference + 0.02


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_an_untrained_model_is_worse(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task).replace(epochs=0)
    assert under_fits(fit(recipe, evaluate_every=0).subject())


def test_mcnemar_counts_the_samples_that_one_of_both_gets_wrong() -> None:
    recipe = healthy_recipe("table").replace(epochs=1)
    subject = fit(recipe, evaluate_every=0).subject()
    model, other = subject.errors("train"), reference(subject).errors("train")
    worse, better = int((model > other).sum()), int((model < other).sum())
    exact = stats.binomtest(worse, worse + better, 0.5, alternative="greater").pvalue
    assert fit_quality(subject).p_value == pytest.approx(exact, rel=1e-6)


def test_the_share_of_the_variance_that_is_left() -> None:
    recipe = healthy_recipe("table", "regression").replace(epochs=0)
    subject = fit(recipe, evaluate_every=0).subject()
    squares = (subject.outputs("train") - subject.targets("train")).double().square().mean()
    spread = subject.targets("train").double().var(correction=0)
    assert fit_quality(subject).model == pytest.approx(float(squares / spread), rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_small_subjects_get_an_answer(case: str) -> None:
    assert under_fits(CASES[case](torch.float32)) in (True, False)


def test_without_test_data_nobody_is_accused() -> None:
    x = torch.linspace(-1, 1, 40)[:, None]
    assert not under_fits(Subject(nn.Linear(1, 1), "mse", (x, 100 + x)))


def test_shapes_that_broadcast_are_told_where_nothing_is_learned() -> None:
    x = torch.linspace(-1, 1, 60)[:, None]
    flat, line = nn.Linear(1, 1), nn.Linear(1, 1)
    for net, slope in ((flat, 0.0), (line, 1.0)):
        nn.init.constant_(net.weight, slope)
        nn.init.zeros_(net.bias)
    (advice,) = broadcast_advice(Subject(flat, "mse", (x, x[:, 0])))
    assert "outputs are (n, 1), targets (n,)" in advice.text
    scope = {"loss_function": nn.functional.mse_loss, "outputs": flat(x), "targets": x[:, 0]}
    exec(advice.code, scope)
    assert float(scope["loss"].detach()) == pytest.approx(float(x.square().mean()))
    for subject in (
        Subject(flat, "mse", (x, x)),  # the same shape
        Subject(line, "mse", (x, x[:, 0])),  # learned
        Subject(nn.Linear(1, 2), "cross_entropy", (x, (x[:, 0] > 0).long())),
    ):
        assert broadcast_advice(subject) == ()
