"""Estimators of skorch and scikit-learn give the same answers inside a subject."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from mindgap import diagnose, examine
from mindgap.core.errors import InputError
from mindgap.core.subject import Subject

x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
y = (x[:, 0] * 2).round().long().clamp(0, 2)
CLASSIFIERS = {
    "LogisticRegression": ("sklearn.linear_model", {}),
    "RandomForestClassifier": ("sklearn.ensemble", {"n_estimators": 5, "random_state": 0}),
    "LinearSVC": ("sklearn.svm", {}),
    "RidgeClassifier": ("sklearn.linear_model", {}),
}


@pytest.mark.parametrize("labels", [y, (y > 0).long()], ids=["three classes", "two classes"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_predicts_as_by_itself(name: str, labels: torch.Tensor) -> None:
    module, settings = CLASSIFIERS[name]
    estimator = getattr(pytest.importorskip(module), name)(**settings).fit(
        x.numpy(), labels.numpy()
    )
    subject = Subject(estimator, "cross_entropy", (x, labels))
    assert np.array_equal(subject.predictions().numpy(), estimator.predict(x.numpy()))
    assert subject.mean_error() == pytest.approx(1 - estimator.score(x.numpy(), labels.numpy()))
    assert subject.name == name


def test_probabilities_become_logits() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    estimator = linear.LogisticRegression().fit(x.numpy(), y.numpy())
    subject = Subject(estimator, "cross_entropy", (x, y))
    expected = -np.log(estimator.predict_proba(x.numpy())[np.arange(60), y.numpy()])
    assert np.allclose(subject.losses().numpy(), expected, rtol=1e-12)


def test_scores_are_not_taken_for_probabilities() -> None:
    estimator = pytest.importorskip("sklearn.svm").LinearSVC().fit(x.numpy(), y.numpy())
    data = (x, y)
    found = diagnose(Subject(estimator, "cross_entropy", data, data))
    outcomes = {row.name: (row.outcome, row.reason) for row in found.checked}
    for name in ("over-confidence", "under-confidence"):
        outcome, reason = outcomes[name]
        assert outcome == "not applicable"
        assert "predict_proba" in reason


def test_columns_get_the_names_of_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was fitted to a data frame warns of every array, and may choose columns by name."""

    class Named:
        feature_names_in_ = np.array(["a", "b", "c", "d"])

        def predict(self, frame: dict[str, np.ndarray]) -> np.ndarray:
            return frame["b"]

    frame = lambda rows, columns: dict(zip(columns, rows.T, strict=True))  # noqa: E731
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=frame))
    subject = Subject(Named(), "mse", (x, x[:, 1]))
    assert torch.equal(subject.outputs(), x[:, 1])


def test_a_regressor_predicts_as_by_itself() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    target = x.sum(1) + x[:, 0] ** 2
    estimator = linear.LinearRegression().fit(x.numpy(), target.numpy())
    subject = Subject(estimator, "mse", (x, target))
    expected = (estimator.predict(x.numpy()) - target.numpy()) ** 2
    assert np.allclose(subject.losses().numpy(), expected, rtol=1e-12)


def test_an_estimator_is_examined() -> None:
    forest = pytest.importorskip("sklearn.ensemble").RandomForestClassifier(5, random_state=0)
    subject = Subject(forest.fit(x[:40].numpy(), y[:40].numpy()), "cross_entropy", (x[:40], y[:40]))
    report = examine(
        Subject(forest, "cross_entropy", (x[:40], y[:40]), (x[40:], y[40:])), hardest=2
    )
    assert report["gap"].value is not None
    failed = [card.result.reason for card in report.cards if "failed with" in card.result.reason]
    assert not failed
    assert subject.mean_error() < 0.2


def test_estimators_that_cannot_answer_are_told() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    with pytest.raises(InputError, match="must be fitted"):
        Subject(linear.LinearRegression(), "mse", (x, x[:, :1])).outputs()
    named = linear.LogisticRegression().fit(x.numpy(), np.where(y.numpy() > 0, "yes", "no"))
    with pytest.raises(InputError, match="numbers 0, 1, …, got no, yes"):
        Subject(named, "cross_entropy", (x, (y > 0).long()))


def net(criterion: type[nn.Module], *tail: nn.Module):
    skorch = pytest.importorskip("skorch")
    return skorch.NeuralNetClassifier(
        nn.Sequential(nn.Linear(4, 3), *tail), criterion=criterion, max_epochs=2, verbose=0
    )


@pytest.mark.parametrize(
    ("criterion", "tail"), [(nn.NLLLoss, [nn.Softmax(1)]), (nn.CrossEntropyLoss, [])]
)
def test_a_net_of_skorch_has_its_own_loss(criterion: type[nn.Module], tail: list) -> None:
    rows = x.float()
    fitted = net(criterion, *tail).fit(rows, y)
    subject = Subject(fitted, "cross_entropy", (rows, y))
    with torch.no_grad():
        own = fitted.get_loss(fitted.infer(rows), y, X=rows, training=False)
    assert subject.mean_loss() == pytest.approx(float(own), rel=1e-5)
    assert np.array_equal(subject.predictions().numpy(), fitted.predict(rows))


def test_a_net_that_is_not_initialized_is_told() -> None:
    with pytest.raises(InputError, match="initialize"):
        Subject(net(nn.NLLLoss), "cross_entropy", (x, y))
