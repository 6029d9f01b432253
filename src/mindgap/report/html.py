"""Pages: templates filled with a report; one file that asks the network for nothing.

LaTeX to MathML, which a browser draws without a script.
"""

from __future__ import annotations

import functools
import html
import html.parser
import importlib.resources
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import jinja2
from markupsafe import Markup

from mindgap.core import require
from mindgap.report import text as terminal
from mindgap.report import wording
from mindgap.report.sections import overview

if TYPE_CHECKING:
    from mindgap.report.report import Report


_ATTRIBUTES = re.compile(
    r"accent|column\w+|depth|display|displaystyle|fence|form|height|largeop|linethickness|lspace|mathsize|mathvariant"
    r"|maxsize|minsize|movablelimits|row\w+|rspace|scriptlevel|separator|stretchy|symmetric|voffset|width|xmlns"
)
_ELEMENTS = re.compile(
    r"math|maction|merror|m(enclose|fenced|frac|i|multiscripts|n|o|over|padded|phantom|root|row|s|space|sqrt|style)"
    r"|m(sub|subsup|sup|table|td|text|tr|under|underover|prescripts)"
)


_SPACE = "http://www.w3.org/1998/Math/MathML"
_LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
_LARGE = {"∑", "∏", "⋃", "⋂", "max", "min", "sup", "inf"}
_OPERATORS = {r"\arg": "arg"}  # words that the converter does not know


@functools.lru_cache(maxsize=1024)
def mathml(latex: str, display: str = "block") -> str:
    """The formula as a ``<math>`` element, or its LaTeX source where the converter fails.

    >>> mathml("x^2").startswith("<math") and "<msup>" in mathml("x^2")
    True
    """
    if not latex:
        return ""
    require("latex2mathml", "report")
    converter = require("latex2mathml.converter", "report")
    try:
        markup = str(converter.convert(latex, display=display))
        return _mended(markup, display) if _harmless(markup) else _source(latex)
    except Exception:  # the converter raises a dozen types; the source is still readable
        return _source(latex)


def _mended(markup: str, display: str) -> str:
    """Limits go below and above large signs, also between brackets, where the converter forgets it."""
    root = ET.fromstring(markup)  # noqa: S314  (checked to be plain MathML)
    for element in root.iter():
        name, text = element.tag.rpartition("}")[2], (element.text or "").strip()
        if name == "mi" and text in _OPERATORS:
            element.tag, element.text = f"{{{_SPACE}}}mo", _OPERATORS[text]
        elif re.match(r"\\\w", text):
            raise ValueError(text)
        elif display == "block" and name in _LIMITS and (element[0].text or "").strip() in _LARGE:
            element.tag = f"{{{_SPACE}}}{_LIMITS[name]}"
    ET.register_namespace("", _SPACE)
    return ET.tostring(root, encoding="unicode")


def _source(latex: str) -> str:
    return f'<code class="latex">{html.escape(latex)}</code>'


def _harmless(markup: str) -> bool:
    """The converter copies ``\\text{<script>}`` and ``\\href`` as they are, so only MathML may pass."""
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
    """The whole report as one HTML file."""
    return render(
        "report.html",
        report=report,
        charts=overview.of_report(report),
        defined=[card for card in report.measures if card.defined],
        undefined=[card for card in report.cards if not card.defined],
        bounds=terminal.tightest_first(report.bounds),
        vague=report.variance.reason if report.variance else "",
        tightest=next(
            (card for card in terminal.tightest_first(report.bounds) if card.guarantees_model), None
        ),
    )


def notebook(report: Report) -> str:
    """The verdict and the tables without charts: small enough to live in a notebook's cell."""
    return (
        _environment()
        .get_template("notebook.html")
        .render(report=report, css=asset("notebook.css"))
    )


def render(template: str, **values: Any) -> str:
    """A page with the style sheet and the scripts inlined."""
    inlined = {
        "css": asset("page.css"),
        "script": asset("page.js"),
        "library": Markup(overview.library()),  # noqa: S704  (the plotting library itself)
    }
    return _environment().get_template(template).render(**values, **inlined)


def asset(name: str) -> Markup:
    """A file of ours, to be inlined as it is."""
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
    }
    environment.globals |= {"wording": wording, "bound_verdict": terminal.bound_verdict}
    return environment


def prose(text: str) -> Markup:
    """A sentence of a docstring: ``double backticks`` become code.

    >>> str(prose("at most ``n`` < 2"))
    'at most <code>n</code> &lt; 2'
    """
    parts = text.split("``")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if k % 2 else Markup.escape(part)
        for k, part in enumerate(parts)
    )
