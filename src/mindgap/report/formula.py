"""LaTeX to MathML, which a browser draws without a script."""

from __future__ import annotations

import functools
import html
import html.parser
import re
from xml.etree import ElementTree as ET

from mindgap.core.errors import require

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
