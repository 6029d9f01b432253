"""The few pieces of Markdown that generated pages are made of."""

import re


def cell(value):
    """Write text so that it cannot break out of a table, and no line breaks within a number."""
    parts = " ".join(str(value).split()).split("`")
    parts[::2] = [re.sub(r"(?<=\de)-(?=\d)", "\N{MINUS SIGN}", words) for words in parts[::2]]
    return "`".join(parts).replace("|", "\\|")  # code stays as it is


def table(columns, rows):
    """Write a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def fence(text, language="text"):
    """Write a block of code that may itself contain fences of three ticks."""
    return f"````{language}\n{text.rstrip()}\n````"


def toctree(entries):
    """List pages in the sidebar without showing them on the page."""
    return "\n".join(["```{toctree}", ":hidden:", "", *entries, "```"])


def join(*parts):
    """Join paragraphs, without the empty ones, to a page."""
    return "\n\n".join(part for part in parts if part) + "\n"
