"""Options on the command line: a spec's fields as options and back, and lists with commas."""

import argparse
import contextlib
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from mindgap.cli.parser import Parser
from mindgap.core import FAMILIES, InputError, Spec, catalog, find
from mindgap.core.spec import allowed

SpecType = TypeVar("SpecType", bound=Spec)
WIDTH = 98


def add_named_spec(
    parser: argparse.ArgumentParser, family: str, words: Sequence[str]
) -> Sequence[str]:
    """Find the spec that the words name, and add an option for each of its fields.

    The name may be anywhere among the words. The parser's default ``spec`` is then the class.
    Without a name, ``--help`` or no words at all lists the names, and ``spec`` is None.

    Args:
        parser: The parser to extend.
        family: The family to look in.
        words: What the user typed after the command.

    Returns:
        The words without the name.
    """
    if words and not words[0].startswith("-"):
        place = 0  # a name even if it is misspelled
    else:
        known = catalog(family)
        place = next((k for k, word in enumerate(words) if word in known), -1)
    if place < 0:
        parser.set_defaults(spec=None)
        return _list_names(parser, family, words)
    cls = find(words[place], family)
    parser.prog, parser.description = f"{parser.prog} {cls.name}", cls.words().summary
    parser.set_defaults(spec=cls)
    _add_fields(parser, cls)
    return [*words[:place], *words[place + 1 :]]


def _list_names(
    parser: argparse.ArgumentParser, family: str, words: Sequence[str]
) -> Sequence[str]:
    if words and not {"--help", "-h"} & set(words):
        raise InputError(
            f"{parser.prog} must name a {family}, got only options. Run '{parser.prog}' to see "
            "the names."
        )
    known = catalog(family)
    width = max(map(len, known), default=0)
    lines = [
        textwrap.fill(
            cls.words().summary,
            WIDTH,
            initial_indent=f"  {name:{width}}  ",
            subsequent_indent=" " * (width + 4),
        )
        for name, cls in known.items()
    ]
    placeholder = family.upper()
    parser.usage = f"{parser.prog} {placeholder} [options] [settings of the {family}]"
    parser.epilog = "\n".join(
        [
            f"{FAMILIES[family].rpartition('.')[2]}:",
            *lines,
            "",
            f"`{parser.prog} {placeholder} --help` shows the settings of one of them.",
        ]
    )
    return ["--help"]


def _add_fields(parser: argparse.ArgumentParser, cls: type[Spec]) -> None:
    """Add one option for every field."""
    hints = typing.get_type_hints(cls)
    group = parser.add_argument_group(f"settings of {cls.name}")
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        add_option(group, field.name, hints[field.name], field.default, _help(field))


def add_option(group: Any, name: str, hint: Any, default: Any, help_text: str) -> None:
    """Add one option: a number, word, flag or list, optional or not."""
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
    """Make the spec that the parsed options describe."""
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    values = {field.name: getattr(arguments, field.name) for field in fields}
    return cls(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
    )


def from_words(cls: type[SpecType], words: Sequence[str]) -> SpecType:
    """Make a spec from command-line words.

    >>> from mindgap.measures.margins.margin import Margin
    >>> from_words(Margin, ["--quantile", "0.2"])
    Margin(quantile=0.2)
    """
    parser = Parser(prog=cls.name)
    _add_fields(parser, cls)
    return take(cls, parser.parse_args(words))


def from_text(text: str, family: str, example: str) -> Spec:
    """Make a spec from ``name:field=value,field=value``.

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
    """Write a spec as command-line words."""
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


def add_executor(group: Any) -> None:
    """Add the option that says where trials run."""
    group.add_argument(
        "--executor",
        metavar="WHERE",
        default="local",
        help="local, dask:ADDRESS of a scheduler, or ray (local)",
    )


@contextlib.contextmanager
def executor_of(arguments: argparse.Namespace) -> Iterator[Any]:
    """Open the executor that ``--executor`` names; None for worker processes of this machine."""
    from mindgap.runs.executors import named_executor

    if arguments.executor != "local":
        refuse(arguments, f"--executor {arguments.executor}", "workers")
    with named_executor(arguments.executor) as executor:
        yield executor


def refuse(arguments: argparse.Namespace, reason: str, *names: str) -> None:
    """Refuse options that would be ignored; an option that is not given is None or False.

    Args:
        arguments: The parsed options.
        reason: The option or argument that makes the others useless.
        *names: The others, by their names in ``arguments``.

    >>> refuse(argparse.Namespace(net="mlp", width=None), "--recipe", "net", "width")
    Traceback (most recent call last):
    mindgap.core.errors.InputError: --net must not come with --recipe, which would ignore it, got \
both. Leave one of them out.
    """
    # Compared by identity: a 0 is given, though it equals False.
    values = {name: getattr(arguments, name) for name in names}
    given = [name for name, value in values.items() if value is not None and value is not False]
    if given:
        raise InputError(
            f"--{given[0].replace('_', '-')} must not come with {reason}, which would ignore it, "
            "got both. Leave one of them out."
        )


def words(name: str, text: str | None) -> tuple[str, ...]:
    """Split names at commas; an option that is not given has none.

    >>> words("--names", "heat, cold")
    ('heat', 'cold')
    """
    found = () if text is None else tuple(word.strip() for word in text.split(","))
    if not all(found):
        raise InputError(
            f"{name} must be names with commas between them, got {text!r}. Write heat,cold for two."
        )
    return found


def numbers(name: str, text: str) -> list[float]:
    """Read numbers with commas between them.

    >>> numbers("--low", "0,0.5")
    [0.0, 0.5]
    """
    try:
        return [float(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{name} must be numbers with commas between them, got {text!r}. Write 0,0.5 for two."
        ) from error


def whole_numbers(name: str, text: str) -> list[int]:
    """Read whole numbers with commas between them.

    >>> whole_numbers("--ks", "5,10")
    [5, 10]
    """
    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{name} must be whole numbers with commas between them, got {text!r}. Write 5,10,20."
        ) from error
