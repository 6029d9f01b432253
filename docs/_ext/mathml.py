"""Formulas as MathML, drawn by the browser itself: no script, no font and no request."""

import re
from xml.etree import ElementTree as ET

from docutils import nodes
from latex2mathml.converter import convert

SPACE = "http://www.w3.org/1998/Math/MathML"
LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
LARGE = {"∑", "∏", "⋃", "⋂", "max", "min", "sup", "inf"}
WORDS = {r"\arg": "arg"}  # operators that the converter does not know


def mathml(latex, display="block"):
    """A formula as a ``<math>`` element; LaTeX that cannot be converted ends the build."""
    root = ET.fromstring(convert(latex, display=display))
    for element in root.iter():
        _check(element, latex)
        if display == "block":
            _put_limits_below(element)
    ET.register_namespace("", SPACE)
    return ET.tostring(root, encoding="unicode")


def _check(element, latex):
    if element.tag == f"{{{SPACE}}}mi" and element.text in WORDS:
        element.tag, element.text = f"{{{SPACE}}}mo", WORDS[element.text]
    if re.match(r"\\\w", element.text or ""):
        raise ValueError(f"The formula must be LaTeX that latex2mathml knows, got {element.text} in: {latex}")


def _put_limits_below(element):
    """The converter forgets to do so between brackets."""
    name = element.tag.rpartition("}")[2]
    if name in LIMITS and (element[0].text or "").strip() in LARGE:
        element.tag = f"{{{SPACE}}}{LIMITS[name]}"


def visit_inline(translator, node):
    translator.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def visit_block(translator, node):
    translator.body.append(f'<div class="formula">{mathml(node.astext())}</div>\n')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
