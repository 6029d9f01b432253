"""Pages: templates filled with a report, in one file that needs nothing from the network.

Formulas become MathML, which a browser draws without a script.
"""

from __future__ import annotations

import functools
import html
import html.parser
import importlib.resources
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import jinja2
from markupsafe import Markup

from mindgap._version import __version__
from mindgap.report import text as terminal, wording
from mindgap.report.draw import draw_all
from mindgap.report.parts import by_topic
from mindgap.report.sections import bounds_charts, training_charts
from mindgap.report.style import DARK
from mindgap.report.verdict import findings
from mindgap.report.verdict.verdict import guaranteeing

if TYPE_CHECKING:
    from mindgap.core import Sample
    from mindgap.report.parts import Card
    from mindgap.report.report import Report
    from mindgap.report.style import Drawn


_ATTRIBUTES = re.compile(
    r"accent|column\w+|depth|display|displaystyle|fence|form|height|largeop|linethickness|lspace|mathsize|mathvariant"
    r"|maxsize|minsize|movablelimits|row\w+|rspace|scriptlevel|separator|stretchy|symmetric|voffset|width|xmlns"
)
_ELEMENTS = re.compile(
    r"math|maction|merror|m(enclose|fenced|frac|i|multiscripts|n|o|over|padded|phantom|root|row|s|space|sqrt|style)"
    r"|m(sub|subsup|sup|table|td|text|tr|under|underover|prescripts)"
)


MOST_LETTERS = 24  # of a word that is not broken below an image
_SPACE = "http://www.w3.org/1998/Math/MathML"
_LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
_LARGE = {"∑", "∏", "⋃", "⋂", "max", "min", "sup", "inf"}
_OPERATORS = {r"\arg": "arg"}  # words that the converter does not know
_PLAIN = {"\u2216": "\\", "\u29f5": "\\"}  # signs that many fonts lack


@functools.lru_cache(maxsize=1024)
def mathml(latex: str, display: str = "block") -> str:
    """Convert a formula to a ``<math>`` element, or keep its source if the converter fails.

    >>> mathml("x^2").startswith("<math") and "<msup>" in mathml("x^2")
    True
    """
    if not latex:
        return ""
    from latex2mathml import converter  # only pages with formulas pay for it

    try:
        markup = str(converter.convert(latex, display=display))
        return _mended(markup, display) if _harmless(markup) else _source(latex)
    except Exception:  # the converter raises a dozen types; the source is still readable
        return _source(latex)


def _mended(markup: str, display: str) -> str:
    """Put limits below and above large signs, also between brackets, unlike the converter."""
    root = ET.fromstring(markup)  # noqa: S314  (checked to be plain MathML)
    for element in root.iter():
        name, text = element.tag.rpartition("}")[2], (element.text or "").strip()
        if name == "mi" and text in _OPERATORS:
            element.tag, element.text = f"{{{_SPACE}}}mo", _OPERATORS[text]
        elif text in _PLAIN:
            element.text = _PLAIN[text]
        elif re.match(r"\\\w", text):
            raise ValueError(text)
        elif display == "block" and name in _LIMITS and (element[0].text or "").strip() in _LARGE:
            element.tag = f"{{{_SPACE}}}{_LIMITS[name]}"
    ET.register_namespace("", _SPACE)
    return ET.tostring(root, encoding="unicode")


def _source(latex: str) -> str:
    return f'<code class="latex">{html.escape(latex)}</code>'


def _harmless(markup: str) -> bool:
    """Let only MathML pass: the converter copies ``\\text{<script>}`` and ``\\href`` unchanged."""
    checker = _Checker()
    checker.feed(markup)
    checker.close()
    return checker.clean


class _Checker(html.parser.HTMLParser):
    clean = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.clean &= _ELEMENTS.fullmatch(tag) is not None
        self.clean &= all(_ATTRIBUTES.fullmatch(name) for name, _ in attrs)

    def handle_comment(self, data: str) -> None:  # noqa: ARG002
        self.clean = False

    def handle_decl(self, decl: str) -> None:  # noqa: ARG002
        self.clean = False

    def handle_pi(self, data: str) -> None:  # noqa: ARG002
        self.clean = False


def report_page(report: Report) -> str:
    """Return the whole report as one HTML file."""
    bounds = terminal.tightest_first(report.bounds)
    drawn = [
        (card, draw_all(card.result.charts, card.result.name))
        for card in report.measures
        if card.result.charts and card.result.name != report.gap.name
    ]
    # A chart that fills half a row shares it with one of another measure.
    topics = by_topic([card for card in report.measures if card.defined])
    small = [(card, charts) for card, charts in drawn if [c.wide for c in charts] == [False]]
    return render(
        "report.html",
        report=report,
        found=[
            (told, draw_all(told.finding.charts, f"finding-{told.finding.name}"))
            for told in findings.told(report.findings, report.checked)
        ],
        checks=[(findings.title_of(row.name, report.checked), row) for row in report.checked],
        checked=findings.summary(report.checked),
        gap_charts=draw_all(report.gap.charts, "gap"),
        curves=draw_all(training_charts(report.curves, report.facts), "curve"),
        bound_charts=draw_all(bounds_charts(report.bounds), "bound"),
        figures=_by_topic([pair for pair in drawn if pair not in small]),
        small=[chart for _, charts in small for chart in charts],
        first=topics[:1],
        others=topics[1:],
        compared=terminal.compared([card for card in report.measures if card.defined]),
        undefined=[card for card in report.cards if not card.defined],
        bounds=bounds,
        tightest=next(iter(guaranteeing(bounds, report.findings)), None),
    )


Figures = tuple["Card", "Sequence[Drawn]"]


def _by_topic(drawn: Sequence[Figures]) -> list[tuple[str, list[Figures]]]:
    """Group figures by the topic of their measure; samples to look at take most room, so are last."""
    plain = [pair for pair in drawn if not any(chart.samples for chart in pair[1])]
    charts = {id(card): charts for card, charts in plain}  # a measure may appear twice
    groups = [
        (topic, [(card, charts[id(card)]) for card in cards])
        for topic, cards in by_topic([card for card, _ in plain])
    ]
    samples = [pair for pair in drawn if pair not in plain]
    return [*groups, ("Samples", samples)] if samples else groups


def notebook(report: Report) -> str:
    """Return the verdict and the tables, with the whole page in a frame that opens on demand."""
    page = framed(report_page(report), height=800)
    template = _environment().get_template("notebook.html")
    return template.render(report=report, css=asset("notebook.css"), page=Markup(page))  # noqa: S704


def framed(page: str, height: int) -> str:
    """Return a page inside a frame, so that its style and script do not touch the notebook's."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{height}" '
        'style="border:0" loading="lazy"></iframe>'
    )


def render(template: str, **values: Any) -> str:
    """Return a page with the style sheets and the scripts inlined."""
    inlined = {
        "css": asset("page.css") + asset("chart.css"),
        "dark_css": asset("dark.css"),
        "dark_colors": Markup(json.dumps(DARK)),  # noqa: S704  (our own colors)
        "theme": asset("theme.js"),
        "script": asset("page.js"),
        "charts_script": asset("charts.js"),
        "library": Markup(library()),  # noqa: S704  (the plotting library itself)
        "version": __version__,
    }
    return _environment().get_template(template).render(**values, **inlined)


def fragment(charts: Sequence[Drawn]) -> str:
    """Write charts for a page of another program, which brings the style sheet and the scripts.

    Args:
        charts: What to show, with keys that are unique on the page.
    """
    macros: Any = _environment().get_template("macros.html").module
    return str(macros.charts_of(charts))


def library() -> str:
    """Return the script that draws figures, to be inlined once per page."""
    from plotly.offline import get_plotlyjs  # slow to import

    return str(get_plotlyjs())


def asset(name: str) -> Markup:
    """Return a file of ours, to be inlined as it is."""
    text = (
        importlib.resources.files("mindgap.report")
        .joinpath("assets", name)
        .read_text(encoding="utf-8")
    )
    return Markup(text)  # noqa: S704  (our own file, no user's words)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mindgap.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": wording.number,
        "percent": wording.percent,
        "seconds": wording.seconds,
        "span": wording.span,
        "cell": wording.cell,
        "title_of": wording.title,
        "mathml": lambda latex: Markup(mathml(latex)),  # noqa: S704  (checked to be MathML or escaped)
        "prose": prose,
        "longest_word": _letters,
        "words_of": lambda facts: ", ".join(f"{name} {text}" for name, text in facts.items()),
    }
    environment.globals |= {"wording": wording, "bound_verdict": terminal.bound_verdict}
    return environment


def _letters(samples: Sequence[Sample]) -> int:
    """Return the letters of the longest word below a gallery's images, to leave room for it."""
    texts = [f"{one.caption} {one.flag} {' '.join(one.facts.values())}" for one in samples]
    return min(max((len(word) for text in texts for word in text.split()), default=0), MOST_LETTERS)


def prose(text: str) -> Markup:
    """Return a sentence of a docstring: ``double backticks`` become code, $formulas$ MathML.

    >>> str(prose("at most ``n`` < 2"))
    'at most <code>n</code> &lt; 2'
    """
    parts = re.split(r"(``.*?``|(?<![\w$])\$[^$`]+\$(?![\w$]))", text)
    return Markup("").join(
        _inline(part) if k % 2 else Markup.escape(part) for k, part in enumerate(parts)
    )


def _inline(part: str) -> Markup:
    if part[0] == "`":
        return Markup("<code>{}</code>").format(part[2:-2])
    return Markup(mathml(part[1:-1], "inline"))  # noqa: S704  (checked to be MathML or escaped)
