"""The few pieces of Markdown that generated pages are made of."""


def cell(value):
    """Text that cannot break out of a table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def table(columns, rows):
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def fence(text, language="text"):
    """A block of code that may itself hold fences of three ticks."""
    return f"````{language}\n{text.rstrip()}\n````"


def toctree(entries):
    """Pages that the sidebar shows and this page does not."""
    return "\n".join(["```{toctree}", ":hidden:", "", *entries, "```"])


def join(*parts):
    """A page of paragraphs."""
    return "\n\n".join(part for part in parts if part) + "\n"
