"""The search for a head with its controls, from Python and from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import mlp_classes, mlp_regression
from scipy import stats
from torch import nn

from mindgap.cli import main
from mindgap.core.subject import Subject
from mindgap.jobs.head.choose import HeadChoice, choose_head, retrain_head

SEARCH = {"max_weights": (2.0, 10.0), "ks": (3, 6)}


@pytest.mark.parametrize("case", [mlp_classes, mlp_regression])
def test_arms_are_those_of_retrain_head(case: object) -> None:
    subject = case(torch.float64)  # type: ignore[operator]
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    found: HeadChoice = choose_head(subject, **SEARCH, seed=4)  # type: ignore[arg-type]
    m, k = found.search.best
    for arm, control in (("uniform", "uniform"), ("permuted", "permuted"), ("weighted", "none")):
        model = retrain_head(subject, k=k, max_weight=m, control=control, seed=4).model
        other = Subject(model, subject.loss, subject.train, subject.test, task=subject.task)
        assert found.errors[arm] == pytest.approx(other.errors("test").tolist())
    assert found.errors["as given"] == pytest.approx(subject.errors("test").tolist())
    assert all(
        torch.equal(value, before[name]) for name, value in subject.model.state_dict().items()
    )
    expected = stats.ttest_rel(found.errors["weighted"], found.errors["uniform"])
    if not np.isnan(expected.pvalue):
        assert found.against["weighted"].p_value == pytest.approx(expected.pvalue, rel=1e-6)
    assert found.verdict in found.table().notes


def test_the_choice_does_not_see_test_data() -> None:
    subject = mlp_classes(torch.float64)
    x, y = torch.randn(20, 4, dtype=torch.float64), torch.zeros(20, dtype=torch.long)
    other = Subject(subject.model, subject.loss, subject.train, (x, y))
    first, second = (choose_head(one, **SEARCH) for one in (subject, other))  # type: ignore[arg-type]
    assert first.search.best == second.search.best
    for name, value in first.model.state_dict().items():
        torch.testing.assert_close(value, second.model.state_dict()[name], rtol=0, atol=0)


def test_without_test_data_it_only_chooses() -> None:
    subject = mlp_classes(torch.float64)
    found = choose_head(Subject(subject.model, subject.loss, subject.train), **SEARCH)  # type: ignore[arg-type]
    assert found.errors == {}
    assert "Pass test data" in found.verdict
    assert [row[1] for row in found.table().rows] == [None] * 4


@pytest.mark.parametrize(
    ("weighted", "permuted", "words"),
    [
        ([0.0] * 40, [0.0, 1.0] * 20, "lowered the test error"),
        ([0.0] * 40, [0.0] * 40, "no more than with the same weights on other samples"),
        ([0.0, 1.0] * 20, [0.0, 1.0] * 20, "shows no effect"),
        ([1.0] * 40, [0.0, 1.0] * 20, "raised the test error"),
    ],
    ids=["helps", "as well permuted", "nothing", "hurts"],
)
def test_verdict(weighted: list[float], permuted: list[float], words: str) -> None:
    from dataclasses import replace

    from mindgap.core.stats import paired

    found = choose_head(mlp_classes(torch.float64), **SEARCH)  # type: ignore[arg-type]
    uniform = [0.0, 1.0] * 20
    uniform[0] = 1.0
    errors = {"as given": uniform, "uniform": uniform, "permuted": permuted, "weighted": weighted}
    against = {arm: paired(errors[arm], uniform) for arm in ("as given", "permuted", "weighted")}
    assert words in replace(found, errors=errors, against=against).verdict


MODEL = """
import torch
from torch import nn
from mindgap import Subject

def net():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

def make_subject():
    x = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    y = (x.sum(1) * 2).round().long() % 3
    torch.manual_seed(0)
    return Subject(net(), "cross_entropy", (x[:60], y[:60]), (x[60:], y[60:]))

def number():
    return 3
"""


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    page, state = tmp_path / "head.html", tmp_path / "head.pt"
    options = [
        "--ks",
        "3,6",
        "--max-weights",
        "2,10",
        "-q",
        "-o",
        str(state),
        "--report",
        str(page),
    ]
    assert main(["choose-head", f"{file}:make_subject", *options]) == 0
    assert "weighted by local variance" in capsys.readouterr().out
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    net.load_state_dict(torch.load(state, weights_only=True))
    assert "neighbors k" in page.read_text()
    assert (
        main(
            [
                "choose-head",
                f"{file}:make_subject",
                "--ks",
                "3",
                "--search",
                "random",
                "--trials",
                "4",
                "--json",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"]["k"] == 3
    assert len(found["rows"]) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ks", "3,x"], "--ks must be whole numbers"),
        (["--max-weights", "0.5"], "max_weights must be a number of at least 1"),
        (["--validation", "2"], "validation must be"),
        (["-o", "/nowhere/x.pt"], "No such file"),
    ],
)
def test_command_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    assert main(["choose-head", f"{file}:make_subject", "-q", *options]) == 2
    assert words in capsys.readouterr().err


def test_commands_want_a_subject(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    for command in (["choose-head"], ["examine"], ["bound", "binomial-tail", "--subject"]):
        assert main([*command, f"{file}:number"]) == 2
        assert "must return a mindgap.Subject, got int" in capsys.readouterr().err
