import re

import pytest

from mindgap import Subject, examine
from mindgap.report import markdown
from mindgap.report import text as terminal
from mindgap.training.certify.material import JoinedSplit


@pytest.mark.parametrize("width", [20, 60, 80, 100, 400])
def test_the_terminal_text_keeps_to_its_width(report, width):
    lines = terminal.text(report, width).splitlines()
    assert max(map(len, lines[2:])) <= min(max(width, terminal.NARROWEST), terminal.WIDEST)


def test_the_terminal_text_says_the_verdict_and_the_numbers(report):
    text = str(report)
    assert report.verdict.label.upper() in text
    assert "gap" in text
    assert "binomial-tail" in text
    assert "holds" in text
    assert "→ early-stopping" in text or "→ dropout" in text


def test_what_is_missing_is_said_with_its_reason(regression):
    text = str(examine(regression))
    assert "Not measured here:" in text
    assert "margin: needs a classification" in text


def test_a_broken_bound_is_called_invalid(subject):
    both = JoinedSplit(subject.test, subject.train)
    leaky = Subject(subject.model, subject.loss, subject.train, both)
    text = terminal.text(examine(leaky, measures=()), 100)
    assert "TEST DATA LEAK" in text
    share = len(subject.train) / len(both)
    assert f"invalid: {share:.0%} of the test samples" in text


def test_training_data_as_test_data_bound_nothing(subject):
    same = Subject(subject.model, subject.loss, subject.train, subject.train)
    text = terminal.text(examine(same, measures=()), 100)
    assert "TEST DATA LEAK" in text
    assert "needs test samples that are not in the training data" in text


def test_markdown_has_tables_and_no_markup_of_the_user(report):
    text = markdown.text(report)
    assert "| measure | value | interval | better | status |" in text
    assert "<script>" not in text


def test_samples_to_look_at_are_told(report, tmp_path):
    hardest = report["hardest-samples"].details["samples"][0]["index"]
    heaviest = report["local-label-variance"].details["heaviest"][0]["index"]
    for text in (str(report), report.save(tmp_path / "report.md").read_text(encoding="utf-8")):
        assert "Hardest samples: The 6 test samples with the largest loss" in " ".join(text.split())
        assert re.search(rf"^\W*{hardest} ", text, re.M)
        assert re.search(rf"^\W*{heaviest} ", text, re.M)
