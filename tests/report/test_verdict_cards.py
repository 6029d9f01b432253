"""Every page begins with a verdict, in words that follow from its own data."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch
from browser import first_section, needs_browser, seen
from cases import mlp_classes

from mindgap import choose_head, weigh
from mindgap.core import Certificate, Claim, Table
from mindgap.core.stats import paired
from mindgap.jobs.head.verdict import judge_head
from mindgap.report import study_page
from mindgap.report.html import library
from mindgap.report.pages.certificate import certificate_page, judge_certificate
from mindgap.report.pages.claim import compared, judge_study
from mindgap.report.pages.sampling import judge_sampling
from mindgap.report.pages.sampling_charts import acquisition_of
from mindgap.report.pages.weights import judge_weights
from mindgap.runs.results import load_results, table_of
from mindgap.sampling import Box, TaylorSampler

RESULTS = Path(__file__).parents[2] / "docs" / "results"
WHOLE = {"total": 4, "done": 4, "failed": 0, "missing": 0, "errors": []}
COLUMNS = ("data", "arm", "paper", "ours", "se", "minus a", "low", "high")
THEOREMS = ("kl", "quadratic", "mcallester", "catoni")


def told(verdict) -> str:
    words = (verdict.headline, *verdict.sentences, *(advice.text for advice in verdict.advice))
    return " ".join(words).replace("\u00a0", " ")


class TestStudy:
    """What is said about a published claim."""

    @pytest.mark.parametrize(
        ("second", "kind"),
        [
            ((3.0, 3.1, 0.1, 1.0, 0.8, 1.2), "reproduced"),
            ((9.0, 3.1, 0.1, 1.0, 0.8, 1.2), "direction"),
            ((3.0, 3.1, 0.1, 1.0, -0.1, 2.1), "not"),
            ((1.0, 3.1, 0.1, 1.0, 0.8, 1.2), "not"),
            ((None, 3.1, 0.1, 1.0, 0.8, 1.2), "reproduced"),
        ],
        ids=["number and direction", "direction", "cannot be told", "other way", "one number"],
    )
    def test_kinds(self, second: tuple[float | None, ...], kind: str) -> None:
        first = ("d", "a", 2.0, 2.1, 0.1, None, None, None)
        table = Table(title="t", columns=COLUMNS, rows=(first, ("d", "b", *second)))
        assert compared(table).kind == kind

    @pytest.mark.parametrize(
        ("held", "kind"),
        [
            (("yes", "yes"), "reproduced"),
            (("yes", "direction"), "direction"),
            (("yes", "no"), "part"),
            (("direction", "no"), "part"),
            (("no", "no"), "not"),
        ],
    )
    def test_claims_that_a_study_judges_itself(self, held: tuple[str, ...], kind: str) -> None:
        claims = tuple(Claim(f"Claim {k}.", one) for k, one in enumerate(held))
        rows = (("d", "a", 2.0, 9.0, 0.1, None, None, None),)  # a number that disagrees
        table = Table(title="t", columns=COLUMNS, rows=rows, claims=claims)
        found = judge_study(table, {}, WHOLE, None, "s")
        assert found.kind == kind
        assert found.sentences == tuple(map(str, claims))
        assert ("numbers are not" in found.headline) is False

    def test_arms_of_other_data_are_not_compared(self) -> None:
        rows = [
            (name, "a", value, value, 0.1, None, None, None) for name, value in (("d", 2), ("e", 3))
        ]
        found = compared(Table(title="t", columns=COLUMNS, rows=tuple(rows)))
        assert (found.kind, found.ways) == ("reproduced", ())

    def test_without_a_paired_interval_both_standard_errors_count(self) -> None:
        columns = ("arm", "paper", "ours", "se")
        for error, way in ((0.1, "same"), (0.4, "unclear")):
            rows = (("a", 2.0, 2.0, error), ("b", 3.0, 3.0, error))
            assert compared(Table(title="t", columns=columns, rows=rows)).ways == (way,)

    def test_a_lower_bound_is_no_number_to_meet(self) -> None:
        columns = ("what", "paper (at least)", "rate", "low", "high")
        for low, kind in ((1.6, "reproduced"), (1.4, "not")):
            rows = (("a", 1.5, 2.0, low, 2.4),)
            assert compared(Table(title="t", columns=columns, rows=rows)).kind == kind

    def test_numbers_without_intervals_are_told_not_judged(self) -> None:
        table = Table(title="t", columns=("net", "published", "ours"), rows=(("CNN", 0.02, 0.01),))
        found = judge_study(table, {"CNN": 0.02}, WHOLE, None, "s")
        assert (found.kind, found.tone) == ("other", "neutral")
        assert "Published 0.02, measured 0.01 (CNN)." in told(found)

    def test_nothing_published_is_said(self) -> None:
        table = Table(title="t", columns=("a",), rows=((1.0,),), notes=("Means of 3 seeds.",))
        found = judge_study(table, {}, WHOLE, None, "s")
        assert found.label == "No published claim"
        assert "No published number or claim is stored" in told(found)
        assert "Means of 3 seeds." in told(found)
        assert "no number next to" in judge_study(table, {"a": 2.0}, WHOLE, None, "s").headline

    def test_missing_trials_come_first(self) -> None:
        table = Table(title="t", columns=("a",), rows=((1.0,),))
        trials = {"total": 4, "done": 1, "failed": 1, "missing": 2, "errors": ["ValueError: x"]}
        found = judge_study(table, {}, trials, None, "toy")
        assert (found.label, found.tone) == ("Incomplete", "warn")
        assert found.headline == "1 of 4 trials failed and 2 were not run."
        assert found.sentences[0] == "``ValueError: x``"
        assert "``mindgap run toy``" in found.advice[0].text

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("vbsw-table-1", "not"),
            ("tbs-table-4", "direction"),
            ("tbs-table-5", "part"),
            ("variance-and-derivatives", "reproduced"),
            ("certificates", "other"),
            ("batch-size-gap", "nothing"),
        ],
    )
    def test_saved_studies(self, name: str, kind: str) -> None:
        assert compared(table_of(load_results(RESULTS / f"{name}.json"))).kind == kind

    def test_a_published_difference_that_points_the_other_way_is_counted(self) -> None:
        results = load_results(RESULTS / "vbsw-table-1.json")
        found = judge_study(table_of(results), results["expected"], WHOLE, None, "vbsw-table-1")
        assert "1 points the other way, 1 cannot be told from zero" in told(found)


def certificate(**changes: object) -> Certificate:
    bounds = dict.fromkeys(THEOREMS, 0.25)
    fields = {
        "bound": 0.25,
        "bounds": bounds,
        "loss_bounds": bounds,
        "kl": 3.0,
        "samples": 100,
        "error": 0.1,
        "error_limit": 0.12,
        "loss": 0.1,
        "loss_limit": 0.1,
        "draws": 1000,
        "baseline": 0.9,
    }
    return Certificate(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "tone", "words"),
    [
        ({}, "good", "at most 25 % of the answers"),
        ({"prior_bound": 0.2}, "good", "Here PAC-Bayes gains nothing over it."),
        ({"prior_bound": 0.3}, "good", "below its control, the held-out bound of 30 %"),
        ({"test_error": 0.11}, "good", "and on 11 % of the test data"),
        ({"broken": "samples repeat"}, "bad", "Samples repeat."),
        ({"broken": "samples repeat"}, "bad", "Do not quote the bound."),
        ({"baseline": 0.2}, "warn", "More bound samples"),
        ({"baseline": 0.1}, "warn", "learned too little"),
    ],
)
def test_certificates(changes: dict[str, object], tone: str, words: str) -> None:
    found = judge_certificate(certificate(**changes))
    assert found.tone == tone
    assert words in told(found)


def test_weights() -> None:
    x = torch.arange(120.0)[:, None]
    labels = (x[:, 0] >= 60).long()
    clean = _look(weigh(x, labels, k=5))
    assert clean.varied == 4  # two on either side of the boundary see both labels
    assert judge_weights(clean).label == "Not tested yet"
    assert "of 4 of 120 samples (3.3 %)" in told(judge_weights(clean))
    calm = judge_weights(_look(weigh(x, torch.zeros_like(labels), k=5)))
    assert calm.label == "Nothing to weight"
    wrong = labels.clone()
    wrong[20] = 1
    found = judge_weights(_look(weigh(x, wrong, k=15)))
    assert (found.label, found.tone) == ("Check labels first", "warn")
    assert "1 label may be wrong" in told(found)
    noise = torch.randint(0, 10, (120,), generator=torch.Generator().manual_seed(0))
    assert "neighbors say little" in told(judge_weights(_look(weigh(x, noise, k=11))))


def _look(found):
    from mindgap.jobs.weigh.samples import look_at

    return look_at(found.given, found.weigher, found.weighed)


def steep(points: torch.Tensor) -> torch.Tensor:
    return torch.tanh(9 * (points.sum(1) - 0.4))


def test_samplings() -> None:
    ran = TaylorSampler(steep, Box(0, 1), initial=12)
    assert _sampled(ran).label == "Not started"
    ran.run(0)
    assert _sampled(ran).label == "Initial design only"
    ran.run(8)
    found = _sampled(ran)
    assert (found.label, found.tone) == ("Not tested yet", "neutral")
    assert "8 new points lie where the function changes more" in told(found)
    values = acquisition_of(ran)
    new = ran.found().new
    ratio = float(values[new].mean() / values[~new].mean())
    assert float(re.search(r"is ([\d.]+) times as large", told(found))[1]) == pytest.approx(
        ratio, rel=1e-2
    )
    flat = judge_sampling(ran, torch.where(new, 0.5, 1.0).double())
    assert (flat.label, flat.tone) == ("Not where expected", "warn")


def test_samplings_with_failures_and_points_that_wait() -> None:
    waiting = TaylorSampler(None, Box(0, 1), initial=12)
    asked = waiting.ask(12)
    waiting.tell(asked[0], 1.0)
    assert _sampled(waiting).headline == "11 of 12 points wait for their values."
    for one in asked[1:4]:
        waiting.fail(one, "no fuel")
    found = _sampled(waiting)
    assert (found.label, found.tone) == ("Many failures", "warn")
    assert "3 failed and 8 are pending" in told(found)


def _sampled(sampler: TaylorSampler):
    return judge_sampling(sampler, acquisition_of(sampler))


@pytest.fixture(scope="module")
def head():
    return choose_head(mlp_classes(torch.float64), max_weights=(2.0, 10.0), ks=(3, 6))


@pytest.mark.parametrize(
    ("weighted", "permuted", "given", "label", "step"),
    [
        ([0.0] * 40, [0.0, 1.0] * 20, None, "Lowered the test error", "Use the new state dict"),
        ([0.0] * 40, [0.0] * 40, None, "No better than its control", "Keep the network"),
        ([0.0, 1.0] * 20, [0.0, 1.0] * 20, None, "No effect shown", "Keep the network"),
        ([1.0] * 40, [0.0, 1.0] * 20, None, "Made it worse", "Keep the network"),
        ([1.0] * 40, [0.0, 1.0] * 20, [1.0] * 40, "Made it worse", "retrained without weights"),
    ],
)
def test_heads(head, weighted, permuted, given, label: str, step: str) -> None:
    uniform = [0.0, 1.0] * 20
    uniform[0] = 1.0
    errors = {"as given": given or uniform, "uniform": uniform}
    errors |= {"permuted": permuted, "weighted": weighted}
    against = {arm: paired(errors[arm], uniform) for arm in errors if arm != "uniform"}
    found = judge_head(dataclasses.replace(head, errors=errors, against=against))
    assert found.label == label
    assert step in found.advice[0].text
    untested = judge_head(dataclasses.replace(head, errors={}, against={}))
    assert untested.label == "Not tested"
    assert "Hold test data out" in told(untested)


@pytest.fixture(scope="module")
def pages(head, tmp_path_factory):
    """One page of every kind, apart from the report and samplings, which have tests of their own."""
    folder = tmp_path_factory.mktemp("pages")
    x = torch.arange(60.0)[:, None]
    return {
        "study": study_page(load_results(RESULTS / "tbs-table-5.json"), folder / "study.html"),
        "certificate": certificate_page(certificate(), folder / "certificate.html"),
        "weights": weigh(x, (x[:, 0] > 30).long(), k=5).save(folder / "weights.html"),
        "head": head.save(folder / "head.html"),
    }


HEADLINES = {
    "study": "Only a part of what was published",
    "certificate": "With a confidence of 0.95",
    "weights": "The weights are ready",
    "head": "Weighting by local variance",
}


@pytest.mark.parametrize("name", HEADLINES)
def test_pages_begin_with_the_same_card(pages, name: str) -> None:
    text = pages[name].read_text(encoding="utf-8").replace(library(), "")
    section, heading = first_section(text)
    assert section == "verdict"
    assert heading.startswith(HEADLINES[name])
    assert text.count('<section id="verdict"') == text.count('class="badge"') == 1
    assert "<h3>What to do</h3>" in text
    assert 'href="#verdict"' in text


@pytest.fixture(scope="module")
def shown(pages, tmp_path_factory):
    """All pages after their scripts ran, and what the console said."""
    doms, console = seen(list(pages.values()), tmp_path_factory.mktemp("browser"))
    return dict(zip(pages, doms, strict=True)), console


@needs_browser
@pytest.mark.parametrize("name", HEADLINES)
def test_pages_begin_with_the_card_in_a_browser(shown, name: str) -> None:
    dom, console = shown[0][name], shown[1]
    section, heading = first_section(dom)
    assert (section, heading.startswith(HEADLINES[name])) == ("verdict", True)
    figures = len(re.findall(r'id="plot-[^"]*-data"', dom))
    assert dom.count('class="plot js-plotly-plot"') == figures >= 1
    assert not console


def test_the_page_of_a_file_says_what_the_results_say(tmp_path: Path) -> None:
    results = json.loads((RESULTS / "certificates.json").read_text(encoding="utf-8"))
    text = study_page(results, tmp_path / "page.html").read_text(encoding="utf-8")
    assert first_section(text)[1].startswith("The numbers differ from the published ones")
