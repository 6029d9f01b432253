"""What a spec's docstring says, taken apart for the command line, the report and the docs."""

from __future__ import annotations

import dataclasses
import inspect
import re

SECTIONS = ("Formula", "Reading", "Assumes")


@dataclasses.dataclass(frozen=True)
class Words:
    """One line, the formula as LaTeX, how to read a value, and what must hold."""

    summary: str
    formula: str
    reading: str
    assumes: str


def words_of(cls: type) -> Words:
    """Parse ``Formula:``, ``Reading:`` and ``Assumes:`` paragraphs out of a docstring."""
    text = inspect.cleandoc(cls.__doc__ or "").split("\n>>>")[0]
    paragraphs = [" ".join(block.split()) for block in re.split(r"\n\s*\n", text)]
    parts = dict.fromkeys(SECTIONS, "")
    for paragraph in paragraphs[1:]:
        head, _, body = paragraph.partition(":")
        if head in parts:
            parts[head] = body.strip()
    return Words(
        summary=paragraphs[0],
        formula=parts["Formula"].strip("$ "),
        reading=parts["Reading"],
        assumes=parts["Assumes"],
    )
