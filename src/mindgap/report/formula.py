"""LaTeX to MathML, which a browser draws without a script."""

from __future__ import annotations

import functools
import html
import html.parser
import re

from mindgap.core.errors import require

_ATTRIBUTES = re.compile(
    r"accent|column\w+|depth|display|displaystyle|fence|form|height|largeop|linethickness|lspace|mathsize|mathvariant"
    r"|maxsize|minsize|movablelimits|row\w+|rspace|scriptlevel|separator|stretchy|symmetric|voffset|width|xmlns"
)
_ELEMENTS = re.compile(
    r"math|maction|merror|m(enclose|fenced|frac|i|multiscripts|n|o|over|padded|phantom|root|row|s|space|sqrt|style)"
    r"|m(sub|subsup|sup|table|td|text|tr|under|underover|prescripts)"
)


@functools.lru_cache(maxsize=1024)
def mathml(latex: str) -> str:
    """The formula as a ``<math>`` element, or its LaTeX source where the converter fails.

    >>> mathml("x^2").startswith("<math") and "<msup>" in mathml("x^2")
    True
    """
    if not latex:
        return ""
    require("latex2mathml", "report")
    converter = require("latex2mathml.converter", "report")
    try:
        markup = str(converter.convert(latex, display="block"))
    except Exception:  # the converter raises a dozen types; the source is still readable
        return _source(latex)
    return markup if _harmless(markup) else _source(latex)


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
