"""Metrics of each task against scikit-learn, and what their charts and details say."""

from __future__ import annotations

import html

import pytest
import torch
from torch import Tensor, nn

from mindgap import examine
from mindgap.core import Subject
from mindgap.measures import (
    AreaUnderRoc,
    BalancedError,
    RootMeanSquaredError,
    RSquared,
    WorstLabelError,
)
from mindgap.report.report import _page

metrics = pytest.importorskip("sklearn.metrics")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def classes(count: int, names: tuple[str, ...] = ()) -> Subject:
    outputs = drawn(120, count).round(decimals=1)  # with ties
    targets = (outputs + drawn(120, count, seed=1)).argmax(1)
    targets[targets == 0] = (drawn(120, seed=2) > 1).long()[targets == 0]  # class 0 is rare
    data = (outputs, targets)
    return Subject(nn.Identity(), "cross_entropy", data, data, classes=names)


def regression(count: int) -> Subject:
    outputs = drawn(90, count)
    targets = outputs + drawn(90, count, seed=1) * torch.linspace(0.1, 2, count)
    train, test = (outputs[:40], targets[:40]), (outputs[40:], targets[40:])
    return Subject(nn.Identity(), "mse", train, test)


def labels(count: int) -> Subject:
    outputs = drawn(80, count)
    targets = ((outputs + drawn(80, count, seed=1)) > 0.4).double()
    return Subject(nn.Identity(), "bce", (outputs, targets))


@pytest.mark.parametrize("count", [2, 5])
def test_balanced_error_recall_and_precision(count: int) -> None:
    subject = classes(count)
    true, found = subject.targets("test").numpy(), subject.predictions("test").numpy()
    result = BalancedError()(subject)
    assert float(result) == pytest.approx(1 - metrics.balanced_accuracy_score(true, found))
    recall = metrics.recall_score(true, found, average=None)
    precision = metrics.precision_score(true, found, average=None)
    assert result.details["recall"] == pytest.approx(recall)
    assert result.details["precision"] == pytest.approx(precision)
    (chart,) = result.charts
    assert [row.name for row in chart.series] == ["recall", "precision"]
    assert chart.series[0].y == pytest.approx(recall)


def test_a_class_that_is_never_predicted_has_no_precision() -> None:
    outputs = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    result = BalancedError()(
        Subject(nn.Identity(), "cross_entropy", (outputs, torch.tensor([0, 1])))
    )
    assert float(result) == 0.5
    assert result.details["precision"] == [0.5, None]


def test_area_under_roc_of_two_classes_with_ties() -> None:
    subject = classes(2, ("no", "yes"))
    outputs, true = subject.outputs("test").double().numpy(), subject.targets("test").numpy()
    result = AreaUnderRoc()(subject)
    expected = metrics.roc_auc_score(true, outputs[:, 1] - outputs[:, 0])
    assert float(result) == pytest.approx(expected)
    curve, coin = result.charts[0].series
    assert (curve.name, coin.name) == ("yes", "a coin")
    assert (curve.x[0], curve.y[0], curve.x[-1], curve.y[-1]) == (0, 0, 1, 1)
    steps = zip(curve.x, curve.x[1:], curve.y, curve.y[1:], strict=False)
    assert sum((b - a) * (c + d) / 2 for a, b, c, d in steps) == pytest.approx(expected)


def test_area_under_roc_of_labels_is_their_mean_and_one_logit_is_enough() -> None:
    subject = labels(3)
    outputs, true = subject.outputs().numpy(), subject.targets().numpy()
    assert float(AreaUnderRoc()(subject)) == pytest.approx(metrics.roc_auc_score(true, outputs))
    single = Subject(nn.Identity(), "bce", (drawn(40, 1), (drawn(40, seed=1) > 0).double()))
    assert 0 < float(AreaUnderRoc()(single)) < 1


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (classes(3), "two classes"),
        (Subject(nn.Identity(), "bce", (drawn(9, 1), torch.ones(9, 1))), "both classes"),
        (regression(1), "two classes"),
    ],
)
def test_area_under_roc_says_what_it_needs(subject: Subject, reason: str) -> None:
    assert reason in AreaUnderRoc()(subject).reason


def test_errors_of_labels_say_of_what() -> None:
    subject = labels(4)
    wrong = (subject.predictions() != subject.targets()).numpy()
    result = WorstLabelError()(subject)
    assert float(result) == wrong.mean(0).max()
    assert result.terms["labels"] == pytest.approx(subject.mean_error())
    assert result.terms["samples"] == wrong.any(1).mean()
    assert result.details["wrong"] == wrong.sum(0).tolist()
    wrong_bars, present = result.charts[0].series
    assert wrong_bars.y == pytest.approx(wrong.mean(0))
    assert present.y == pytest.approx(subject.targets().mean(0).numpy())
    assert "needs yes/no labels" in WorstLabelError()(classes(2)).reason


@pytest.mark.parametrize("count", [1, 3])
def test_regression_metrics(count: int) -> None:
    subject = regression(count)
    true, found = subject.targets("test").numpy(), subject.outputs("test").numpy()
    r_squared, root = RSquared()(subject), RootMeanSquaredError()(subject)
    assert float(r_squared) == pytest.approx(metrics.r2_score(true, found))
    assert list(r_squared.details["outputs"].values()) == pytest.approx(
        metrics.r2_score(true, found, multioutput="raw_values")
    )
    assert float(root) == pytest.approx(metrics.mean_squared_error(true, found) ** 0.5)
    assert root.terms["test_mean_absolute_error"] == pytest.approx(
        metrics.mean_absolute_error(true, found)
    )
    assert root.details["outputs"]["test"] == pytest.approx(
        metrics.root_mean_squared_error(true, found, multioutput="raw_values")
    )
    *bars, plot = root.charts
    assert [len(bar.series) for bar in bars] == ([2] if count > 1 else [])
    assert plot.points[0].name == f"output {count - 1}"
    assert plot.points[0].y == pytest.approx((found - true)[:, count - 1])


def test_flat_targets_do_not_broadcast() -> None:
    x = drawn(30, 1)
    subject = Subject(nn.Identity(), "mse", (x, 2 * x[:, 0]))
    assert float(RootMeanSquaredError()(subject)) == pytest.approx(float(x.square().mean().sqrt()))


def test_constant_targets_have_no_r_squared() -> None:
    subject = Subject(nn.Identity(), "mse", (drawn(9, 1), torch.ones(9, 1)))
    assert "targets that vary" in RSquared()(subject).reason
    assert "needs a regression" in RSquared()(classes(2)).reason


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (regression(2), ("r-squared", "Root mean squared error by output", "output 1")),
        (labels(2), ("worst-label-error", "Error by label (training data)", "of all labels wrong")),
        (classes(2), ("area-under-roc", "Recall and precision by class", "recall: 1")),
    ],
)
def test_terminal_and_page_show_them(subject: Subject, words: tuple[str, ...]) -> None:
    report = examine(subject, bounds=(), hardest=0)
    for word in words:
        assert word in str(report), word
    page = _page(report)
    for card in report.cards:
        assert all(html.escape(chart.title) in page for chart in card.result.charts)


def test_wrong_labels_are_not_called_wrong_samples() -> None:
    found = examine(labels(2), measures=["training-loss"], bounds=()).verdict
    assert any("of all labels wrong on its training data" in line for line in found.sentences)
