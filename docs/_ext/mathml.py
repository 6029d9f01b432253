"""Formulas as MathML, drawn by the browser itself: no script, no font and no request."""

from docutils import nodes

from mindgap.report.html import mathml as convert


def mathml(latex, display="block"):
    """Convert a formula to a ``<math>`` element; LaTeX that cannot be converted ends the build."""
    found = convert(latex, display)
    if not found.startswith("<math"):
        raise ValueError(f"The formula must be LaTeX that latex2mathml knows, got: {latex}")
    return found


def visit_inline(translator, node):
    translator.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def visit_block(translator, node):
    translator.body.append(f'<div class="formula">{mathml(node.astext())}</div>\n')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
