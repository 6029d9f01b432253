"""Options of a spec on the command line, from its fields and back.

Lists on the command line: words or numbers with commas between them.
"""

import argparse
import dataclasses
import inspect
import types
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

from mindgap.cli.parser import Parser
from mindgap.core import InputError, Spec, find
from mindgap.core.spec import allowed

SpecType = TypeVar("SpecType", bound=Spec)


def add_fields(parser: argparse.ArgumentParser, cls: type[Spec]) -> None:
    """One option for every field."""
    hints = typing.get_type_hints(cls)
    group = parser.add_argument_group(f"settings of {cls.name}")
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        add_option(group, field.name, hints[field.name], field.default, _help(field))


def add_option(group: Any, name: str, hint: Any, default: Any, help_text: str) -> None:
    """One option of a type: number, word, flag, list or optional."""
    flag, required = (
        f"--{name.replace('_', '-')}",
        default in (dataclasses.MISSING, inspect.Parameter.empty),
    )
    settings: dict[str, Any] = {"dest": name, "help": help_text, "required": required}
    if not required:
        settings["default"] = default
    plain, many = _plain(hint)
    if plain is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **settings)
    else:
        settings |= {"nargs": "*"} if many else {}
        group.add_argument(flag, type=plain, metavar=plain.__name__.upper(), **settings)


def take(cls: type[SpecType], arguments: argparse.Namespace) -> SpecType:
    """The spec that the parsed options describe."""
    values = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return cls(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
    )


def from_words(cls: type[SpecType], words: Sequence[str]) -> SpecType:
    """A spec from command-line words.

    >>> from mindgap.measures.margins.margin import Margin
    >>> from_words(Margin, ["--quantile", "0.2"])
    Margin(quantile=0.2)
    """
    parser = Parser(prog=cls.name)
    add_fields(parser, cls)
    return take(cls, parser.parse_args(words))


def from_text(text: str, family: str, example: str) -> Spec:
    """A spec from ``name:field=value,field=value``.

    >>> from_text("margin:quantile=0.2", "measure", "margin:quantile=0.2")
    Margin(quantile=0.2)
    """
    name, _, settings = text.partition(":")
    pairs = [pair.partition("=") for pair in settings.split(",") if pair]
    if any(not equals for _, equals, _ in pairs):
        raise InputError(
            f"A {family} must look like name:field=value, got {text!r}. Write for example "
            f"{example}."
        )
    return from_words(
        find(name, family), [_word(field.strip(), value.strip()) for field, _, value in pairs]
    )


def _word(field: str, value: str) -> str:
    flag = field.replace("_", "-")
    if value.lower() in ("true", "yes", "on"):
        return f"--{flag}"
    return f"--no-{flag}" if value.lower() in ("false", "no", "off") else f"--{flag}={value}"


def to_words(spec: Spec) -> list[str]:
    """The command-line words that describe a spec."""
    words: list[str] = []
    for name, value in spec.parameters.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, tuple):
            words += [f"--{flag}", *map(str, value)]
        elif value is not None:
            words.append(
                f"--{flag}={value!r}" if not isinstance(value, str) else f"--{flag}={value}"
            )
    return words


def _plain(hint: Any) -> tuple[type, bool]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _plain(next(part for part in inner if part is not type(None)))
    if origin is tuple:
        return _plain(inner[0])[0], True
    if origin is typing.Literal:
        return type(inner[0]), False
    return (hint if isinstance(hint, type) else str), False


def _help(field: dataclasses.Field[Any]) -> str:
    limits = any(field.metadata.get(key) for key in ("choices",)) or any(
        field.metadata.get(key) is not None for key in ("low", "high", "above", "below")
    )
    text = str(field.metadata.get("help", "")) + (f"; {allowed(field.metadata)}" if limits else "")
    default = "" if field.default is dataclasses.MISSING else f" (default {field.default})"
    return (text + default).replace("%", "%%")


def words(text: str | None) -> tuple[str, ...]:
    """Names with commas between them.

    >>> words("heat, cold")
    ('heat', 'cold')
    """
    return tuple(word.strip() for word in text.split(",")) if text else ()


def numbers(name: str, text: str) -> list[float]:
    """Numbers with commas between them.

    >>> numbers("--low", "0,0.5")
    [0.0, 0.5]
    """
    from mindgap.core import InputError

    try:
        return [float(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{name} must be numbers with commas between them, got {text!r}. Write 0,0.5 for two."
        ) from error


def whole_numbers(name: str, text: str) -> list[int]:
    """Whole numbers with commas between them.

    >>> whole_numbers("--ks", "5,10")
    [5, 10]
    """
    from mindgap.core import InputError

    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{name} must be whole numbers with commas between them, got {text!r}. Write 5,10,20."
        ) from error
