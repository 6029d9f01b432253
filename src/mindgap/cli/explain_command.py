"""Explain one measure, bound, remedy or study: formula, reading, assumptions, settings and reference."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from typing import Any

from mindgap.cli.output import write, write_json
from mindgap.cli.plain_math import plain_math


def add(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("name", help="a name that `mindgap list` shows")
    parser.add_argument("--json", action="store_true", help="for machines")


def run(arguments: argparse.Namespace) -> int:
    """Print what the spec says of itself."""
    facts = describe(arguments.name)
    if arguments.json:
        write_json(facts)
    else:
        write(_text(facts))
    return 0


def describe(name: str) -> dict[str, Any]:
    """All words of a spec as plain data."""
    from mindgap.core.options import allowed
    from mindgap.core.references import reference
    from mindgap.core.registry import find

    cls = find(name)
    settings = [
        {"name": field.name, "default": field.default, "help": field.metadata.get("help", "")}
        | ({"allowed": allowed(field.metadata)} if _limited(field) else {})
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
    ]
    return {
        "name": cls.name,
        "family": cls.family,
        "methods": list(cls.method),
        **dataclasses.asdict(cls.words()),
        "settings": settings,
        "references": [reference(key) for key in cls.cites],
        "source": f"{cls.__module__}.{cls.__qualname__}",
    }


def _limited(field: dataclasses.Field[Any]) -> bool:
    return bool(field.metadata.get("choices")) or any(
        field.metadata.get(key) is not None for key in ("low", "high", "above", "below")
    )


def _text(facts: dict[str, Any]) -> str:
    title = f"{facts['name']}  ({facts['family']}, {', '.join(facts['methods'])})"
    parts = [title, "─" * len(title), _wrapped(facts["summary"]), ""]
    shown = {"Formula": plain_math(facts["formula"]), "Reading": facts["reading"], "Assumes": facts["assumes"]}
    for head, text in shown.items():
        parts += [head, _wrapped(text.replace("``", ""), "  "), ""]
    if facts["settings"]:
        parts.append("Settings")
        parts += [_setting(setting) for setting in facts["settings"]] + [""]
    parts.append("References")
    parts += [_wrapped(text, "  ") for text in facts["references"]]
    return "\n".join([*parts, "", f"Source  {facts['source']}"])


def _setting(setting: dict[str, Any]) -> str:
    limits = f"; {setting['allowed']}" if "allowed" in setting else ""
    return _wrapped(f"{setting['name']} = {setting['default']}: {setting['help']}{limits}", "  ")


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, 96, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
