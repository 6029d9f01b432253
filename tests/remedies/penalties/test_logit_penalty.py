"""The penalty on logits equals its formula, and weights, short batches and members are kept apart."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.recipe import Recipe
from mindgap.core.remedy import TrainingState
from mindgap.nets import MLP
from mindgap.remedies import LogitPenalty
from mindgap.training.batches import batches_of
from mindgap.training.ensemble import ensemble
from mindgap.training.fit import fit

FORMS = ("darc1", "darc", "mean", "squared")


def state(step: int = 5, seed: int = 0) -> TrainingState:
    return TrainingState(model=nn.Identity(), optimizer=None, step=step, seed=seed)


def signs(remedy: LogitPenalty, at: TrainingState, count: int) -> list[list[int]]:
    random = torch.Generator().manual_seed(at.random(remedy.name))
    return (2 * torch.randint(0, 2, (remedy.draws, count), generator=random) - 1).tolist()


def by_hand(
    remedy: LogitPenalty, at: TrainingState, logits: Tensor, weights: Tensor | None
) -> float:
    """The formula in loops over samples, classes and draws."""
    rows = logits.tolist()
    factors = [1.0] * len(rows) if weights is None else weights.tolist()
    total = 1.0 if remedy.as_published else sum(factors)
    classes = range(len(rows[0]))

    def column(k: int, size) -> float:
        return (
            sum(f * size(i, row[k]) for i, (f, row) in enumerate(zip(factors, rows, strict=True)))
            / total
        )

    if remedy.form == "darc":
        drawn = signs(remedy, at, len(rows))
        tops = [max(column(k, lambda i, h, xi=xi: xi[i] * h) for k in classes) for xi in drawn]
        return remedy.factor * sum(tops) / len(tops)
    power = 2 if remedy.form == "squared" else 1
    sizes = [column(k, lambda _, h: abs(h) ** power) for k in classes]
    return remedy.factor * (max(sizes) if remedy.form == "darc1" else sum(sizes) / len(sizes))


@given(
    st.integers(0, 10**6),
    st.sampled_from(FORMS),
    st.integers(1, 9),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_equals_the_formula(seed, form, samples, classes, weighted, as_published) -> None:
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(samples, classes, generator=random, dtype=torch.float64)
    weights = torch.rand(samples, generator=random, dtype=torch.float64) if weighted else None
    remedy = LogitPenalty(factor=0.7, form=form, draws=3, as_published=as_published)
    found = remedy.penalty(state(), logits, torch.zeros(samples), weights)
    assert float(found) == pytest.approx(by_hand(remedy, state(), logits, weights), rel=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_of_weight_zero_is_absent(form: str) -> None:
    remedy, weights = LogitPenalty(form=form), torch.tensor([1.0, 0.0, 1.0, 1.0])
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
    found = remedy.penalty(state(), logits, None, weights)
    (slope,) = torch.autograd.grad(found, logits)
    assert not slope[1].any()
    assert slope[0].any()
    if form != "darc":  # whose signs depend on the place in the batch
        rest = remedy.penalty(state(), logits[weights > 0], None, None)
        assert torch.allclose(found, rest)
    nothing = remedy.penalty(state(), logits, None, torch.zeros(4))
    assert nothing.item() == 0


def test_darc1_is_the_largest_value_over_the_signs() -> None:
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    every = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0]).double()] * 6)
    top = (every @ logits / 6).amax()
    found = LogitPenalty(factor=1.0).penalty(state(), logits, None, None)
    assert float(found) == pytest.approx(float(top), rel=1e-12)


def test_random_signs_converge_to_their_expectation() -> None:
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    every = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0]).double()] * 6)
    values = (every @ logits / 6).amax(1)
    remedy = LogitPenalty(factor=1.0, form="darc", draws=20_000)
    found = remedy.penalty(state(), logits, None, None)
    assert abs(float(found - values.mean())) < 4 * float(values.std()) / 20_000**0.5
    one = LogitPenalty(factor=1.0, form="darc")
    drawn = {float(one.penalty(state(step), logits, None, None)) for step in range(5, 15)}
    assert len(drawn) > 5  # other signs in every step
    assert one.penalty(state(), logits, None, None) == one.penalty(state(), logits, None, None)


def test_one_output_and_outputs_at_positions() -> None:
    remedy = LogitPenalty(factor=1.0)
    single = torch.tensor([3.0, -1.0])
    for output in (single, single[:, None]):
        assert float(remedy.penalty(state(), output, None, None)) == 2
    maps = torch.randn(4, 3, 2, 2)
    expected = maps.abs().mean((0, 2, 3)).amax()
    assert torch.allclose(remedy.penalty(state(), maps, None, None), expected)


@pytest.mark.parametrize("form", FORMS)
def test_the_mean_is_over_the_batch_that_is_seen(form: str) -> None:
    """A loop written out, whose last batch is short; weights of samples count in the penalty."""
    random = torch.Generator().manual_seed(3)
    x, y = torch.randn(10, 4, generator=random), torch.arange(10) % 3
    given = torch.rand(10, generator=random) + 0.5
    recipe = Recipe(
        model=lambda: MLP((4, 6, 3)), train=(x, y), epochs=2, batch_size=4, sample_weights=given
    )
    remedy = LogitPenalty(factor=0.5, form=form)
    fitted = fit(recipe, [remedy], seed=1)
    model = recipe.build(1)
    optimizer = recipe.optimize(list(model.parameters()))
    step = 0
    for epoch in (1, 2):
        for index in batches_of(10, 4, 1, epoch):
            step += 1
            output = model(x[index])
            losses = F.cross_entropy(output, y[index], reduction="none") * given[index]
            extra = remedy.penalty(state(step, seed=1), output, y[index], given[index])
            optimizer.zero_grad()
            (losses.mean() + extra).backward()
            optimizer.step()
    for one, other in zip(model.parameters(), fitted.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weighted", [False, True])
def test_members_of_an_ensemble_have_a_maximum_and_a_factor_each(form: str, weighted: bool) -> None:
    random = torch.Generator().manual_seed(3)
    x, y = torch.randn(22, 4, generator=random), torch.arange(22) % 3
    recipe = Recipe(model=lambda: MLP((4, 6, 3)), train=(x, y), epochs=3, batch_size=8)
    recipe = recipe.replace(learning_rate=0.02)
    rows = torch.rand(3, 22, generator=random).round(decimals=1) if weighted else None
    remedies = [[LogitPenalty(factor=f, form=form)] for f in (0.1, 1.0, 5.0)]
    members = ensemble(recipe, [0, 1, 1], remedies=remedies, sample_weights=rows)
    for k, (member, own) in enumerate(zip(members, remedies, strict=True)):
        weights = None if rows is None else rows[k]
        alone = fit(recipe.replace(sample_weights=weights), own, seed=member.seed)
        pairs = zip(member.model.parameters(), alone.model.parameters(), strict=True)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)
        for row, other in zip(member.history, alone.history, strict=True):
            assert row["running_loss"] == pytest.approx(other["running_loss"], rel=1e-4)


@pytest.mark.parametrize(
    ("end", "loss", "word"),
    [
        (nn.Softmax(1), "cross_entropy", "got probabilities"),
        (nn.LogSoftmax(1), nn.NLLLoss(), "got log-probabilities"),
    ],
)
def test_probabilities_are_refused_before_a_step_is_taken(end, loss, word: str) -> None:
    data = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    recipe = Recipe(
        model=lambda: nn.Sequential(nn.Linear(4, 3), end), train=data, loss=loss, epochs=1
    )
    for train in (lambda: fit(recipe, [LogitPenalty()]), lambda: many(recipe)):
        with pytest.raises(InputError, match=word):
            train()


def many(recipe: Recipe) -> object:
    return ensemble(recipe, [0, 1], remedies=[LogitPenalty()])


def test_regressions_are_penalized_too() -> None:
    x = torch.linspace(-1, 1, 16)[:, None]
    recipe = Recipe(model=lambda: MLP((1, 8, 1)), train=(x, 3 * x), loss="mse")
    recipe = recipe.replace(learning_rate=0.02)
    plain, small = fit(recipe).model, fit(recipe, [LogitPenalty(factor=3.0)]).model
    assert small(x).abs().mean() < plain(x).abs().mean() / 2
