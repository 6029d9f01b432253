"""Specs name, register and check themselves; the registry finds them and advises on misspelled names."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from mindgap.core.errors import (
    InputError,
    MissingExtraError,
    UnknownNameError,
    require,
    unknown_name,
)
from mindgap.core.measure import Measure
from mindgap.core.references import bibliography, parse, reference
from mindgap.core.registry import catalog, find
from mindgap.core.spec import REGISTRY, kebab, option
from mindgap.measures import Margin, ParameterNorm
from mindgap.studies import PoisonedMinima


@pytest.fixture
def clean_registry():
    kept = {family: dict(shelf) for family, shelf in REGISTRY.items()}
    yield
    REGISTRY.clear()
    REGISTRY.update(kept)


def test_a_spec_is_abstract_or_final_never_both(clean_registry) -> None:
    with pytest.raises(TypeError, match="abstract or final"):
        type("Wider", (Margin,), {})


@pytest.mark.parametrize("levels", [(1.0, float("inf")), (float("-inf"),)])
def test_no_value_of_a_list_is_infinite(levels: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match=r"levels must be a finite number, got -?inf"):
        PoisonedMinima(levels=levels)


def test_two_specs_may_not_share_a_name(clean_registry) -> None:
    with pytest.raises(TypeError, match="Two measures are called 'margin'"):
        type(
            "Margin", (Measure,), {"__module__": "elsewhere", "compute": lambda self, subject: 0.0}
        )


def test_names_are_kebab_case() -> None:
    assert kebab("PACBayesBound") == "pac-bayes-bound"
    assert kebab("KlInverse") == "kl-inverse"
    assert kebab("Sharpness2") == "sharpness-2"


def test_find_takes_any_spelling_and_advises() -> None:
    assert find("parameter_norm") is ParameterNorm
    with pytest.raises(UnknownNameError, match="Did you mean 'parameter-norm'"):
        find("paramter-norm")
    with pytest.raises(UnknownNameError, match="family must be"):
        catalog("measures")
    assert "Known: a, b" in str(unknown_name("thing", "xyz", ["b", "a"]))
    many = str(unknown_name("thing", "xyz", [f"a{place}" for place in range(300)]))
    assert "The nearest of 300: a" in many
    assert len(many) < 120


def test_fields_are_checked_with_one_sentence() -> None:
    for bad in (0.0, 1.5, -1):
        with pytest.raises(
            InputError, match="quantile must be a number above 0 and at most 1, got"
        ):
            Margin(quantile=bad)


@given(st.floats(0.0001, 1))
def test_digest_depends_on_parameters_alone(quantile: float) -> None:
    assert Margin(quantile=quantile).digest == Margin(quantile=quantile).digest
    assert (Margin(quantile=quantile).digest == Margin().digest) == (quantile == 0.1)
    assert Margin().digest != ParameterNorm().digest


def test_digest_is_the_same_in_another_process() -> None:
    code = "from mindgap.measures.margins.margin import Margin; print(Margin(quantile=0.3).digest)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == Margin(quantile=0.3).digest


def test_replace_makes_a_checked_copy() -> None:
    assert Margin().replace(quantile=0.5) == Margin(quantile=0.5)
    with pytest.raises(InputError):
        Margin().replace(quantile=2)


def test_choices_are_checked() -> None:
    @dataclasses.dataclass
    class Thing:
        kind: str = option("a", help="which", choices=("a", "b"))

    from mindgap.core.spec import check

    check(Thing("b"))
    with pytest.raises(InputError, match="kind must be one of 'a', 'b', got 'c'"):
        check(Thing("c"))


def test_references_resolve() -> None:
    assert len(bibliography()) >= 12
    assert "Keskar" in reference("keskar2017large")
    assert not any(".." in reference(key) or "?." in reference(key) for key in bibliography())
    assert all({"author", "title"} <= set(entry) for entry in bibliography().values())
    with pytest.raises(UnknownNameError, match="Did you mean 'keskar2017large'"):
        reference("keskar2017larg")
    assert parse("no entries") == {}


def test_missing_extra_names_the_extra() -> None:
    assert require("json", "core").__name__ == "json"
    with pytest.raises(MissingExtraError, match=r"pip install 'mindgap\[report\]'"):
        require("no_such_package_anywhere", "report")
