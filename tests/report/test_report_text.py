import pytest

from mindgap import examine
from mindgap.report import markdown
from mindgap.report import text as terminal


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
    from mindgap.core.subject import Subject

    leaky = Subject(subject.model, subject.loss, subject.train, subject.train)
    text = terminal.text(examine(leaky, measures=()), 100)
    assert "TEST DATA LEAK" in text
    assert "invalid: 100% of the test samples" in text


def test_markdown_has_tables_and_no_markup_of_the_user(report):
    text = markdown.text(report)
    assert "| measure | value | interval | better | status |" in text
    assert "<script>" not in text
