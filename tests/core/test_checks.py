"""Checks of arguments by their annotations, and messages that stay short."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from mindgap.core.checks import check_type, integer, matches, number, validated
from mindgap.core.errors import InputError, UnknownNameError, shortened, shown

GOOD = [
    (3, int),
    (np.int64(3), int),
    (3, float),
    (np.float32(0.5), float),
    (None, int | None),
    ("grid", Literal["grid", "random"]),
    ([1, 2], Sequence[int]),
    ((1, 2), tuple[int, ...]),
    (["a"], tuple[str, ...]),
    (range(3), Sequence[int]),
    (torch.ones(2), Sequence[float]),
    ({"a": 1.0}, Mapping[str, float]),
    (len, Callable[[Any], Any]),
    (Path("x"), str | Path),
    ((1, "a"), tuple[int, str]),
    (object(), Any),
]
BAD = [
    (True, int),
    (3.0, int),
    (2**63, int),
    (10**400, float),
    (float("nan"), float),
    (torch.tensor(1.0), float),
    (1, bool),
    ("grid", Literal["random"]),
    ("ab", Sequence[str]),
    ({"a": 1}, Sequence[str]),
    ([1, "b"], Sequence[int]),
    ((1, 2, 3), tuple[int, int]),
    ({"a": "b"}, Mapping[str, float]),
    (3, Callable[[Any], Any]),
    (3, str | Path),
    (None, str),
]


@pytest.mark.parametrize(("value", "hint"), GOOD)
def test_values_of_a_type(value: Any, hint: Any) -> None:
    assert matches(value, hint)


@pytest.mark.parametrize(("value", "hint"), BAD)
def test_values_of_another_type(value: Any, hint: Any) -> None:
    assert not matches(value, hint)
    with pytest.raises((InputError, UnknownNameError), match=r"must be .*, got .*\."):
        check_type("setting", value, hint, "Pass another.")


@validated
class Point:
    """A class of the tests."""

    def __init__(self, x: float, names: Sequence[str] = (), *, seed: int = 0) -> None:
        self.x, self.names, self.seed = x, names, seed


def test_a_class_is_checked_and_stays_a_class() -> None:
    assert pickle.loads(pickle.dumps(Point(1.5))).x == 1.5
    with pytest.raises(InputError, match=r"names must be a sequence of strings, got 'ab'"):
        Point(1, "ab")
    with pytest.raises(InputError, match=r"seed must be an integer from 0"):
        Point(1, seed=-1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()


def test_annotations_that_only_a_type_checker_can_read_check_nothing() -> None:
    @validated
    def of(value: Unknown) -> object:  # noqa: F821
        return value

    assert of(3) == 3


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'random'"):
        check_type("method", "randm", Literal["grid", "random"] | None, "")


@pytest.mark.parametrize("check", [integer, number])
def test_huge_numbers(check: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="got an integer of 16610 bits"):
        check("size", 10**5000)


@pytest.mark.parametrize("text", ["a" * 5000, "a b " * 5000, "a\nb" * 5000, "'\"" * 5000])
def test_echoed_input_is_cut(text: str) -> None:
    assert len(shown(text)) < 420
    assert len(str(InputError(f"It must be short, got {text!r}. Cut it."))) < 300
    assert "\n" not in shortened(f"got {text}")


def test_arrays_are_shown_by_their_shape() -> None:
    assert shown(torch.zeros(3, 4)) == "Tensor of shape (3, 4)"
    assert len(shown(list(range(10**5)))) == 200
