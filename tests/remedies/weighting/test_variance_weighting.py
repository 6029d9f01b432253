"""Variance weighting: the remedy, its controls and the one-liner give the head they promise."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from cases import CASES, inputs, labels, mlp_classes, mlp_regression, multilabel, recipe
from torch import nn

from mindgap.core.errors import InputError, UnknownNameError
from mindgap.core.remedy import TrainingState
from mindgap.core.subject import Subject
from mindgap.jobs.head.choose import retrain_head
from mindgap.ops.convex.heads import solve_heads
from mindgap.ops.variance.local import local_variance
from mindgap.remedies.perturbation.dropout import Dropout
from mindgap.remedies.schedules.early_stopping import EarlyStopping
from mindgap.remedies.weighting.variance_weighting import VarianceWeighting
from mindgap.training.fit import fit


def equal(left: nn.Module, right: nn.Module) -> bool:
    return all(map(torch.equal, left.state_dict().values(), right.state_dict().values()))


def test_only_the_head_changes_and_it_is_the_weighted_optimum() -> None:
    plain, treated = (
        fit(recipe()),
        fit(recipe(), [VarianceWeighting(k=6, max_weight=30.0, l2=1e-3)]),
    )
    *body, weight, bias = plain.model.state_dict()
    assert all(
        torch.equal(plain.model.state_dict()[name], treated.model.state_dict()[name])
        for name in body
    )
    features = plain.subject().features()
    target = plain.subject().targets()
    v = local_variance(features, target, k=6).variance
    best = solve_heads("softmax", features, target, 1 + 29 * v / v.max(), l2=1e-3)
    torch.testing.assert_close(
        treated.model.state_dict()[weight], best.weight[0].float(), rtol=1e-4, atol=1e-5
    )
    logits = treated.model(features.new_tensor(plain.subject().train.inputs[0].numpy()))
    torch.testing.assert_close(logits, best.outputs(features)[0].float(), rtol=1e-4, atol=1e-4)
    assert bias in treated.model.state_dict()


def test_curves_are_those_of_plain_training() -> None:
    assert fit(recipe()).history == fit(recipe(), [VarianceWeighting()]).history


def test_never_sees_the_test_data() -> None:
    x = inputs(torch.float32, seed=9)
    here, there = (fit(recipe(test=test), [VarianceWeighting()]) for test in (None, (x, labels(x))))
    assert equal(here.model, there.model)


def test_controls_have_the_same_path_and_other_weights() -> None:
    subject = mlp_classes(torch.float32)
    found = {
        name: retrain_head(subject, k=5, control=name, seed=1)
        for name in ("none", "uniform", "permuted")
    }
    assert torch.equal(found["uniform"].weights, torch.ones(48, dtype=torch.float64))
    assert torch.equal(found["none"].weights.sort().values, found["permuted"].weights.sort().values)
    assert not torch.equal(found["none"].weights, found["permuted"].weights)
    assert not equal(found["none"].model, found["permuted"].model)
    assert equal(
        found["permuted"].model, retrain_head(subject, k=5, control="permuted", seed=1).model
    )
    assert not equal(
        found["permuted"].model, retrain_head(subject, k=5, control="permuted", seed=2).model
    )


def test_largest_weight_of_one_is_the_uniform_control() -> None:
    subject = mlp_classes(torch.float32)
    assert equal(
        retrain_head(subject, max_weight=1.0).model, retrain_head(subject, control="uniform").model
    )


def test_scale_of_the_weights_does_not_move_the_optimum() -> None:
    subject = mlp_classes(torch.float64)
    plain, mean = (retrain_head(subject, normalize=name, l2=1e-3) for name in ("none", "mean"))
    assert float(mean.weights.mean()) == pytest.approx(1)
    for left, right in zip(plain.model.parameters(), mean.model.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("solver", ["exact", "minibatch"])
@pytest.mark.parametrize("case", [mlp_classes, mlp_regression, multilabel])
def test_lowers_the_weighted_loss(case: object, solver: str) -> None:
    subject = case(torch.float32)
    found = retrain_head(subject, solver=solver, k=8, max_weight=10.0, learning_rate=1e-2)
    new = Subject(found.model, subject.loss, subject.train, task=subject.task)
    before, after = ((found.weights * one.losses().double()).sum() for one in (subject, new))
    assert after < before
    assert (found.converged is None) == (solver == "minibatch")


def test_small_batches_tend_to_the_exact_optimum() -> None:
    subject = mlp_classes(torch.float64)
    exact = retrain_head(subject, l2=1e-1, k=5)
    steps = retrain_head(
        subject,
        l2=1e-1,
        k=5,
        solver="minibatch",
        batch_size=48,
        epochs=1500,
        learning_rate=3e-3,
        normalize="mean",
        start="fresh",
    )
    for left, right in zip(exact.model.parameters(), steps.model.parameters(), strict=True):
        if left.ndim == 2:
            torch.testing.assert_close(left, right, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("start", ["trained", "fresh"])
def test_small_batches_depend_on_the_seed_alone(start: str) -> None:
    subject, settings = (
        mlp_classes(torch.float32),
        {"solver": "minibatch", "epochs": 2, "start": start},
    )
    state = torch.get_rng_state()
    first, again, other = (retrain_head(subject, seed=seed, **settings).model for seed in (1, 1, 2))
    assert equal(first, again)
    assert not equal(first, other)
    assert torch.equal(state, torch.get_rng_state())


def test_log_softmax_and_likelihood_are_a_softmax() -> None:
    subject = mlp_classes(torch.float32)
    tail = Subject(
        nn.Sequential(copy.deepcopy(subject.model), nn.LogSoftmax(1)), nn.NLLLoss(), subject.train
    )
    left, right = retrain_head(subject), retrain_head(tail)
    assert right.head.startswith("0.")
    for one, two in zip(left.model.parameters(), right.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
    assert retrain_head(tail, solver="minibatch", epochs=1).converged is None


def test_other_losses_go_in_small_batches_only() -> None:
    subject = CASES["many_outputs"](torch.float32)
    with pytest.raises(InputError, match="solver='minibatch'"):
        retrain_head(subject)
    assert retrain_head(subject, solver="minibatch", epochs=1).weights.shape == (48,)
    plain = mlp_classes(torch.float32)
    smooth = Subject(plain.model, nn.CrossEntropyLoss(label_smoothing=0.1), plain.train)
    with pytest.raises(InputError, match="another loss"):
        retrain_head(smooth)


def test_leaves_the_given_model_alone_and_loads_back_into_its_class() -> None:
    subject = CASES["convolution"](torch.float32)
    before = copy.deepcopy(subject.model.state_dict())
    found = retrain_head(subject, k=5)
    assert all(
        torch.equal(before[name], value) for name, value in subject.model.state_dict().items()
    )
    assert found.head == "head.2"
    assert found.features.shape == (48, 36)
    twin = type(subject.model)()
    twin.load_state_dict(found.model.state_dict())
    x = subject.train.take(torch.arange(4)).inputs[0]
    assert torch.equal(twin.eval()(x), found.model.eval()(x))


def test_takes_a_module_a_subject_or_what_fit_returns() -> None:
    fitted = fit(recipe())
    data = recipe().train
    models = [
        retrain_head(fitted, k=5),
        retrain_head(fitted.subject(), k=5),
        retrain_head(fitted.model, data, k=5),
    ]
    assert equal(models[0].model, models[1].model)
    assert equal(models[1].model, models[2].model)
    np.testing.assert_array_equal(models[0].weights, models[2].weights)
    assert equal(models[0].model, fit(recipe(), [VarianceWeighting(k=5)]).model)


def test_goes_with_other_remedies() -> None:
    both = fit(recipe(epochs=6), [Dropout(), EarlyStopping(patience=2), VarianceWeighting(k=5)])
    assert not any(module._forward_pre_hooks for module in both.model.modules())
    assert len(both.recipe.splits()[0]) == 43


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"max_weight": 0.5}, InputError, "0 .off. or at least 1"),
        ({"max_weight": 0.0}, InputError, "at least 1 to retrain the head"),
        ({"k": 49}, InputError, "k must be an integer from 2 to 48"),
        ({"kernel": 3}, UnknownNameError, "setting must be one of the known names, got 'kernel'"),
        ({"solver": "magic"}, InputError, "solver must be one of 'exact', 'minibatch'"),
        ({"head": "nowhere"}, InputError, "head must name a linear layer"),
    ],
)
def test_says_what_is_wrong(
    settings: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        retrain_head(mlp_classes(torch.float32), **settings)


def test_needs_the_data() -> None:
    with pytest.raises(InputError, match="without data"):
        retrain_head(nn.Linear(2, 2))
    model = nn.Linear(2, 2)
    with pytest.raises(InputError, match="must see the training data"):
        VarianceWeighting().finish(
            TrainingState(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
        )
