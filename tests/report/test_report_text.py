import re

import pytest

from mindgap import Subject, examine
from mindgap.report import markdown, text as terminal
from mindgap.training.certify.material import JoinedSplit


@pytest.mark.parametrize("width", [20, 60, 80, 100, 400])
def test_the_terminal_text_keeps_to_its_width(report, found, width):
    code = {f"      {line}" for line in found.verdict.advice[0].code.splitlines()}
    for shown in (report, found):
        lines = terminal.text(shown, width).splitlines()
        room = min(max(width, terminal.NARROWEST), terminal.WIDEST)
        assert max(len(line) for line in lines[2:] if line not in code) <= room


def test_code_is_not_broken_so_that_it_can_be_pasted(found):
    code = found.verdict.advice[0].code
    assert max(map(len, code.splitlines())) > terminal.WIDEST
    pasted = [line[6:] for line in terminal.text(found, 60).splitlines()]
    assert set(code.splitlines()) <= set(pasted)


def test_terminal_and_markdown_tell_findings_in_the_same_words_and_order(found):
    told = [
        found.verdict.headline,
        "An independent predictor disagrees with them.",
        "What to do",
        "Look at the samples, and drop what is wrong.",
        "variance-weighting",
        "8 % … 12 %",
        "more than 99.9 % (p = 1e-09, corrected for all tests)",
        "30 training samples to look at",
        "… 22 more, all in the CSV",
        "A few test samples come from elsewhere.",
        "Check their source.",
        "Three units never fire.",
        "Explained by the above",
        "The gap is large. Follows from: Wrong labels.",
        "6 checks: 4 found something, 1 found nothing, 1 did not apply.",
    ]
    for text in (terminal.text(found, 100), markdown.text(found)):
        flat = " ".join(text.replace("&lt;", "<").split())
        places = [flat.find(" ".join(words.split())) for words in told]
        assert -1 not in places, told[places.index(-1)]
        assert places == sorted(places)


def test_the_terminal_text_says_the_verdict_and_the_numbers(report):
    text = str(report)
    assert report.verdict.label.upper() in text
    assert "gap" in text
    assert "binomial-tail" in text
    assert "holds" in text


def test_what_is_missing_is_said_with_its_reason(regression):
    text = str(examine(regression))
    assert "Not measured here:" in text
    (line,) = re.findall(r"· ([^·]*): needs a classification", " ".join(text.split()))
    assert {"margin", "worst-class-error"} <= set(line.split(", "))


def test_a_broken_bound_is_called_invalid(subject):
    both = JoinedSplit(subject.test, subject.train)
    leaky = Subject(subject.model, subject.loss, subject.train, both)
    text = terminal.text(examine(leaky, measures=()), 100)
    share = len(subject.train) / len(both)
    assert f"invalid: {100 * share:.0f} % of the test samples" in text


def test_training_data_as_test_data_bound_nothing(subject):
    same = Subject(subject.model, subject.loss, subject.train, subject.train)
    text = terminal.text(examine(same, measures=()), 100)
    assert "needs test samples that are not in the training data" in " ".join(text.split())


def test_markdown_has_tables_and_no_markup_of_the_user(report, found):
    for shown in (report, found):
        text = markdown.text(shown)
        assert "| measure | value | interval | untrained | better | status |" in text
        fenced = text.split("```")
        assert not any("<script>" in part for part in fenced[::2]), "code is shown as it is"


def test_samples_to_look_at_are_told(report, tmp_path):
    hardest = report["hardest-samples"].details["samples"][0]["index"]
    heaviest = report["local-label-variance"].details["heaviest"][0]["index"]
    for text in (str(report), report.save(tmp_path / "report.md").read_text(encoding="utf-8")):
        assert "Hardest samples: The 6 test samples with the largest loss" in " ".join(text.split())
        assert re.search(rf"^\W*{hardest} ", text, re.M)
        assert re.search(rf"^\W*{heaviest} ", text, re.M)
