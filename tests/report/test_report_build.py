import dataclasses
import json
import math
import time

import pytest
import torch

from mindgap import examine
from mindgap.core import Advice
from mindgap.core.errors import InputError, UnknownNameError
from mindgap.core.plain import plain
from mindgap.core.subject import Subject
from mindgap.jobs import examine as examine_module
from mindgap.measures.curvature import curvature_measure
from mindgap.ops.initialization import subject as untrained_module
from mindgap.report import Report, report as report_module
from mindgap.report.report import decode


def test_a_report_survives_json(report):
    text = report.to_json()
    assert Report.from_json(text) == report
    json.loads(text, parse_constant=pytest.fail)  # strict JSON has no NaN


def test_findings_survive_json(found):
    again = Report.from_json(found.to_json())
    assert again == found
    assert again.suspects == found.suspects
    assert len(again.suspects) == 32


def test_findings_of_a_later_version_are_read(found):
    data = found.to_dict()
    data["findings"][0]["later"] = data["checked"][0]["later"] = 1
    assert Report.from_dict(data) == found


def test_reports_without_findings_stay_readable(report, tmp_path):
    """A file of version 0.1 has another verdict and knows of no checks."""
    data = report.to_dict()
    del data["findings"], data["checked"]
    data["facts"]["unstable"] = ""
    data["verdict"] |= {"kind": "over-fitting", "label": "Over-fitting", "tone": "bad"}
    data["verdict"]["advice"] = [{"text": "Stop earlier.", "remedy": "early-stopping"}]
    old = Report.from_dict(data)
    assert (old.findings, old.checked, old.suspects) == ((), (), [])
    assert old.verdict.advice == (Advice(text="Stop earlier.", remedy="early-stopping"),)
    for suffix in (".html", ".md", ".txt"):
        assert "Stop earlier." in old.save(tmp_path / f"old{suffix}").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("findings", 0, "severity"), "terrible"),
        (("findings", 0, "suspects", "index"), ["a"]),
        (("findings", 0, "evidence", 0, "value"), "much"),
        (("findings", 0, "advice", 0), {"words": ""}),
        (("checked", 0, "outcome"), 3),
        (("findings",), 1),
    ],
)
def test_damaged_findings_are_one_sentence(found, place, value):
    data = json.loads(found.to_json())
    part = data
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    with pytest.raises(InputError, match="report"):
        Report.from_dict(data)


def test_suspects_are_written_whole(found, tmp_path):
    path = found.save_suspects(tmp_path / "new" / "suspects.csv")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "finding,split,index,label"
    assert len(lines) == 33
    assert lines[-1] == "input-shift,test,2,"
    assert list(path.parent.iterdir()) == [path]


def test_a_report_of_a_regression_survives_json(regression):
    report = examine(regression)
    assert Report.from_json(report.to_json()) == report
    assert report["worst-class-error"].value is None
    assert report["training-loss"].charts


def test_numbers_that_json_lacks_and_words_that_look_like_them(report):
    curves = ({"epoch": 1.0, "train_loss": math.inf},)
    odd = dataclasses.replace(report, title="NaN", curves=curves)
    back = Report.from_json(odd.to_json())
    assert back.title == "NaN"
    assert back.curves == curves


def test_decode_leaves_out_what_it_does_not_know():
    advice = Advice(text="Train longer.", remedy="x")
    assert decode(Advice, {**plain(advice, fallback=str), "later": 1}) == advice


def test_facts(report, subject):
    facts = report.facts
    assert (facts.train_samples, facts.test_samples, facts.parameters) == (
        200,
        500,
        64 * 32 + 32 + 32 * 10 + 10,
    )
    assert facts.test_error == subject.mean_error("test")
    assert facts.baseline == pytest.approx(1 - 21 / 200, abs=0.02)
    assert facts.overlap == 0
    assert facts.initial


def test_the_baseline_of_a_regression_is_the_variance(regression):
    report = examine(regression, measures=(), bounds=())
    assert report.facts.baseline == pytest.approx(
        float(regression.targets("train").var(unbiased=False)), rel=1e-5
    )


def test_results_by_name(report):
    assert report["gap"] == report.gap
    with pytest.raises(UnknownNameError, match="Did you mean 'margin'"):
        report["magin"]


def test_cards_carry_the_words_of_their_specs(report):
    margin = next(card for card in report.cards if card.result.name == "margin")
    assert margin.direction == "higher"
    assert "room to spare" in margin.reading
    assert r"\max" in margin.formula


def test_seconds_are_those_of_the_whole_job(subject, monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr("mindgap.jobs.examine.time.perf_counter", lambda: next(ticks))
    monkeypatch.setattr("mindgap.jobs.examine.build", slow(ticks))
    report = examine(subject, measures=["gap"], bounds=())
    assert report.provenance["settings"]["seconds"] >= 50


def slow(ticks):
    """Building a report that takes fifty ticks of the clock."""

    def build(*arguments, **options):
        for _ in range(50):
            next(ticks)
        return report_module.build(*arguments, **options)

    return build


def test_what_only_the_cache_made_cheap_is_not_measured_at_the_initial_weights(monkeypatch):
    search = curvature_measure.top_eigenpairs

    def slow(*arguments, **settings):
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
        return search(*arguments, **settings)

    monkeypatch.setattr(curvature_measure, "top_eigenpairs", slow)
    x = torch.linspace(-1, 1, 40)[:, None]
    net = torch.nn.Linear(1, 1)
    before = {name: value + 1 for name, value in net.state_dict().items()}
    names = ["keskar-sharpness", "largest-hessian-eigenvalue", "parameter-norm"]
    known = {}
    for most in (0.2, 60.0):
        monkeypatch.setattr(examine_module, "AGAIN", most)
        report = examine(Subject(net, "mse", (x, x), initial=before), measures=names, bounds=())
        known[most] = [card.untrained is not None for card in report.measures]
    assert known == {0.2: [False, False, True], 60.0: [True, True, True]}


def test_a_pass_with_the_initial_weights_may_be_refused(monkeypatch):
    monkeypatch.setattr(untrained_module, "WORK", 0)
    x = torch.linspace(-1, 1, 40)[:, None]
    net = torch.nn.Linear(1, 1)
    before = {name: value + 1 for name, value in net.state_dict().items()}
    names = ["training-loss", "parameter-norm"]
    report = examine(Subject(net, "mse", (x, x), initial=before), measures=names, bounds=())
    assert [card.untrained is None for card in report.measures] == [True, False]


def test_the_gap_and_the_overlap_are_known_even_if_nobody_asked():
    inputs = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    data = inputs, (inputs[:, 0] > 0).long()
    leaky = Subject(torch.nn.Linear(3, 2), "cross_entropy", data, data)
    report = examine(leaky, measures=(), bounds=())
    assert (report.gap.value, report.facts.overlap, report.cards) == (0.0, 1.0, ())


@pytest.mark.parametrize(
    ("suffix", "beginning"),
    [(".html", "<!doctype html>"), (".json", "{"), (".md", "# a "), (".txt", "a <b>")],
)
def test_save_writes_by_suffix_and_leaves_nothing_else(report, tmp_path, suffix, beginning):
    path = tmp_path / "new" / f"report{suffix}"
    path.parent.mkdir()
    path.write_text("old")
    assert report.save(path) == path
    assert path.read_text(encoding="utf-8").startswith(beginning)
    assert list(path.parent.iterdir()) == [path]


def test_save_refuses_other_suffixes_in_one_sentence(report, tmp_path):
    with pytest.raises(InputError, match=r"must end in \.html, \.json, \.md or \.txt"):
        report.save(tmp_path / "report.pdf")


def test_an_unwritable_path_is_one_sentence(report, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="must be a file that can be written"):
        report.save(tmp_path / "file" / "report.json")


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"schema": 2, "kind": "report"}', '{"schema": 1, "kind": "report"}']
)
def test_other_files_are_refused(text):
    with pytest.raises(InputError, match="A report must"):
        Report.from_json(text)


def test_multilabel(tmp_path):
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (
        torch.randn(40, 5, generator=generator),
        torch.randint(0, 2, (40, 3), generator=generator).float(),
    )
    subject = Subject(
        torch.nn.Linear(5, 3), "bce", (inputs[:20], targets[:20]), (inputs[20:], targets[20:])
    )
    report = examine(subject)
    assert report.facts.rate
    assert 0 < report.facts.baseline <= 0.5
    assert report.save(tmp_path / "report.html").stat().st_size > 1e6
