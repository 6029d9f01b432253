"""explain and entries: names of every kind, their topics, parameters and words."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from mindgap.core import UnknownNameError, implements
from mindgap.core.spec import FUNCTIONS
from mindgap.jobs.explain import KINDS, entries, explain


@pytest.fixture
def shoelace() -> Iterator[None]:
    """A function that a script of the user's has registered."""

    def shoelace_area(points: list[float], closed: bool = True, unit: str = "") -> float:
        """Compute the area of a :class:`Polygon`.

        Args:
            points: Corners, one after the
                other.
            closed: Whether the last corner is
                the first one.
            unit: Name of the ``unit``.
        """
        return 0.0

    shoelace_area.__module__ = "my_script"
    implements("E9", cites=("catoni2007pac",))(shoelace_area)
    yield
    FUNCTIONS.pop("shoelace-area")


@pytest.mark.usefixtures("shoelace")
def test_a_function_of_a_script() -> None:
    found = explain("shoelace_area")
    assert (found.family, found.topic, found.methods) == ("function", "my_script", ("E9",))
    assert found.citations == ["Catoni 2007"]
    assert [setting.required for setting in found.settings] == [True, False, False]
    assert found.settings[0].help == "Corners, one after the other"
    text = str(found)
    assert "Compute the area of a Polygon." in text
    assert "  closed = True: Whether the last corner is the first one" in text
    assert "  unit = '': Name of the unit" in text
    assert "Formula" not in text


@pytest.mark.parametrize(
    ("name", "family", "topic"),
    [
        ("gap", "measure", "basic"),
        ("kl-inverse", "bound", ""),
        ("sam", "remedy", "perturbation"),
        ("vbsw-table-1", "study", "vbsw"),
        ("mnist", "dataset", ""),
        ("local-variance", "function", "variance"),
        ("taylor-sampler", "function", "sampling"),
    ],
)
def test_topics(name: str, family: str, topic: str) -> None:
    found = explain(name)
    assert (found.family, found.topic) == (family, topic)


def test_everything_can_be_printed_and_written_as_json() -> None:
    for entry in entries():
        assert str(entry).startswith(f"{entry.name}  ({entry.family}")
        assert "``" not in str(entry)
        assert json.loads(json.dumps(entry.to_dict(), allow_nan=False))["name"] == entry.name


def test_families_come_in_order_and_an_unknown_one_is_refused() -> None:
    families = list(dict.fromkeys(entry.family for entry in entries()))
    assert families == list(KINDS)
    with pytest.raises(UnknownNameError, match="Did you mean 'measure'"):
        entries("measures")
