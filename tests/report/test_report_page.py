import dataclasses
import html.parser
import re

import pytest
from charts import PIXEL

from mindgap import examine
from mindgap.core import Bar, Estimate, Finding, Gallery, Measure, Sample, Series, Surface
from mindgap.core.spec import REGISTRY
from mindgap.report import Report
from mindgap.report.html import library


class Reader(html.parser.HTMLParser):
    """Collects what the tests ask about."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.sources, self.images = [], [], [], [], []
        self.headings, self._heading = [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if "href" in found else []
        self.sources += [found["src"]] if "src" in found else []
        self.images += [found] if tag == "img" else []
        self._heading = tag if tag in ("h1", "h2") else None

    def handle_data(self, data):
        if self._heading:
            self.headings.append(data.strip())
            self._heading = None


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    return report.save(tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def findings(found, tmp_path_factory):
    """The body of a page with findings."""
    path = found.save(tmp_path_factory.mktemp("page") / "found.html")
    return path.read_text(encoding="utf-8").replace(library(), "")


@pytest.fixture(scope="module")
def body(page):
    """The page without Plotly's own five megabytes."""
    return page.replace(library(), "")


def test_sections_come_in_order_and_the_contents_point_to_them(body, report):
    reader = Reader(body)
    order = ["verdict", "checks", "gap", "curves", "bounds", "measures"]
    # Figures come by topic, and samples to look at last.
    order += ["training-loss", "worst-class-error", "margin", "hardest-samples"]
    order += ["local-label-variance", "further"]
    order += ["provenance"]
    assert [name for name in reader.ids if name in order] == order
    anchors = [link.removeprefix("#") for link in reader.links]
    assert set(anchors) <= set(reader.ids)
    assert set(order) <= set(anchors)
    assert reader.headings[1] == report.verdict.headline
    assert len(reader.ids) == len(set(reader.ids))


def test_nothing_is_requested_from_anywhere(body):
    reader = Reader(body)
    assert all(link.startswith("#") for link in reader.links)
    assert all(source.startswith("data:image/png;base64,") for source in reader.sources)
    assert not re.search(
        r"url\(|@import|<link|<iframe|fetch\(|XMLHttpRequest|plotlyServerURL", body
    )
    assert "default-src 'none'" in body
    outside = set(re.findall(r"https?://[^\"' <>]+", body))
    assert outside <= {"http://www.w3.org/1998/Math/MathML"}


def test_a_users_name_is_escaped_everywhere(body, report):
    assert "<script>alert" in report.title
    assert "<script>alert" not in body
    assert (
        body.count("<script")
        == body.count("</script>")
        == 4 + body.count('<script type="application/json"')
    )
    assert "&lt;script&gt;alert(1)" in body


def test_every_card_shows_value_reading_formula_and_status(body, report):
    for card in report.cards:
        assert card.title in body
    assert body.count('<div class="formula"') == len(report.cards)
    assert "room to spare" in body
    assert body.count("How to read it") == len(report.cards)


def test_the_page_can_be_read_without_eyes(body, report):
    reader = Reader(body)
    looked_at = [
        sample
        for card in report.cards
        for chart in card.result.charts
        if isinstance(chart, Gallery)
        for sample in chart.samples
    ]
    behind = body.partition('<details class="behind">')[2].partition("</details>")[0]
    assert len(reader.images) - behind.count("<img") == len(looked_at) == 12
    assert behind.count("<img") > 0
    assert all(image["alt"] for image in reader.images)
    assert body.count("<caption") == body.count("<table") > 3
    assert len(
        re.findall(r'class="plot" id="[^"]+" role="img" aria-label="[^"]+"', body)
    ) == body.count('class="plot"')


def test_findings_are_cards_in_order(findings, found):
    reader = Reader(findings)
    cards = [name for name in reader.ids if name.startswith("finding-")]
    names = ["wrong-labels", "input-shift", "dead-units", "over-fitting"]
    assert cards == [f"finding-{name}" for name in names]
    assert reader.ids.index("verdict") < reader.ids.index(cards[0]) < reader.ids.index("checks")
    explained = findings.partition("<h3>Explained by the above</h3>")[2]
    assert "The gap is large." in explained.partition("</dl>")[0]
    assert "Follows from: Wrong labels." in explained
    assert findings.count("An independent predictor disagrees") == 1, "the verdict says it"
    assert "8\xa0% … 12\xa0%" in findings
    assert "more than 99.9\xa0%" in findings
    assert "Wrong labels by class" in findings
    assert "… 22 more, all in the CSV" in findings
    assert len(reader.ids) == len(set(reader.ids))


def test_findings_cannot_break_out(findings):
    assert "<script>alert" not in findings
    assert findings.count("<script") == findings.count("</script>")
    assert findings.count("&lt;script&gt;alert(1)") >= 5


def test_code_is_in_a_box_of_its_own(findings):
    boxes = re.findall(
        r'<div class="paste"><pre[^>]*><code>(.*?)</code></pre></div>', findings, re.S
    )
    assert len(boxes) == 1, "the verdict has it, so its card does not"
    assert boxes[0].count("\n") == 1


def test_what_was_checked_is_folded(findings):
    section = findings.partition('<section id="checks">')[2].partition("</section>")[0]
    assert "<details>" in section
    assert "6 checks: 4 found something, 1 found nothing, 1 did not apply." in section
    assert "needs the training history" in section
    assert "10 ms" in section


def test_nothing_is_guaranteed_below_a_leak(found, tmp_path):
    assert "Guaranteed below" in found.save(tmp_path / "a.html").read_text(encoding="utf-8")
    leak = Finding(name="leaked-samples", sentence="All are known.", severity="wrong", voids=True)
    leaky = dataclasses.replace(found, findings=(leak,))
    assert "Guaranteed below" not in leaky.save(tmp_path / "b.html").read_text(encoding="utf-8")


def test_a_saved_report_gives_the_same_page(page, report, tmp_path):
    again = Report.from_json(report.to_json())
    assert again.save(tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_a_page_without_test_data_and_history(subject, tmp_path):
    from mindgap.core.subject import Subject

    bare = Subject(subject.model, subject.loss, subject.train)
    text = examine(bare, hardest=0).save(tmp_path / "bare.html").read_text(encoding="utf-8")
    reader = Reader(text.replace(library(), ""))
    assert {"verdict", "measures", "undefined"} <= set(reader.ids)
    assert not {"gap", "curves", "hardest-samples"} & set(reader.ids)


def test_vectors_are_shown_as_rows(regression, tmp_path):
    text = examine(regression).save(tmp_path / "line.html").read_text(encoding="utf-8")
    assert "… 8 more" in text
    assert "<img" not in text.replace(library(), "")


def test_the_notebook_gets_tables_and_the_whole_page_in_a_frame(report):
    text = report._repr_html_()
    table, _, frame = text.partition("<iframe")
    assert len(table) < 20_000
    assert "<script" not in table
    assert report.verdict.label in table
    assert "plot-gap-0" in frame


def test_names_of_users_cannot_break_out(report, tmp_path):
    nasty = "<img src=x onerror=alert(1)>"
    sample = Sample(caption=nasty, facts={nasty: nasty}, flag=nasty)
    charts = (
        Gallery(title=nasty, samples=[sample], caption=nasty),
        Gallery(title=nasty, samples=[dataclasses.replace(sample, image=PIXEL)]),
        Bar(title=nasty, x_label=nasty, series=[Series(name=nasty, x=[nasty], y=[1.0])]),
    )
    first, *rest = report.cards
    card = dataclasses.replace(rest[0], result=dataclasses.replace(rest[0].result, charts=charts))
    page = (
        dataclasses.replace(report, cards=(first, card, *rest[1:]))
        .save(tmp_path / "page.html")
        .read_text(encoding="utf-8")
    )
    assert nasty not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 8


def test_a_third_party_measure_with_a_surface_appears(subject, tmp_path):
    known = dict(REGISTRY["measure"])
    try:

        class Bowl(Measure):
            """A bowl.

            Reading: Round is good.
            """

            def compute(self, subject):
                axis = [-1.0, 0.0, 1.0]
                z = [[x * x + y * y for x in axis] for y in axis]
                return Estimate(value=1.0, charts=(Surface(title="A bowl", x=axis, y=axis, z=z),))

        report = examine(subject, measures=["bowl"], bounds=())
    finally:
        REGISTRY["measure"].clear()
        REGISTRY["measure"].update(known)
    again = Report.from_json(report.to_json())
    text = again.save(tmp_path / "bowl.html").read_text(encoding="utf-8").replace(library(), "")
    assert again == report
    assert 'id="bowl"' in text
    assert 'aria-label="A bowl. Surface over x and y: height from 0 to 2."' in text
    assert "Round is good." in text


def test_old_reports_stay_readable(report, tmp_path):
    """A file of version 0.1 has sections of its own instead of charts."""
    data = report.to_dict()
    for card in data["cards"]:
        del card["result"]["charts"]
    del data["gap"]["charts"]
    data["samples"], data["variance"], data["layers"] = [], None, []
    old = Report.from_dict(data)
    assert old["margin"].value == report["margin"].value
    assert 'id="measures"' in old.save(tmp_path / "old.html").read_text(encoding="utf-8")
