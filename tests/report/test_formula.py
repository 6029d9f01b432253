import pytest

from mindgap.report.html import mathml


@pytest.mark.parametrize(
    "latex",
    [
        r"\text{<script>alert(1)</script>}",
        r"\href{javascript:alert(1)}{x}",
        r"\frac{",
        r"\text{<!-- -->}",
    ],
)
def test_what_is_broken_or_not_mathml_is_shown_as_source(latex):
    found = mathml(latex)
    assert found.startswith('<code class="latex">')
    assert "<script" not in found


def test_no_formula_no_markup():
    assert mathml("") == ""
