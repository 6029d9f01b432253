import pytest

from mindgap.core.registry import catalog
from mindgap.report.html import mathml


@pytest.mark.parametrize("name", sorted(catalog()))
def test_every_formula_of_the_house_becomes_mathml(name):
    formula = catalog()[name].words().formula
    assert mathml(formula).startswith("<math") or not formula


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
