"""The papers that specs cite, read from references.bib beside this file."""

import functools
import re
from importlib import resources

from mindgap.core.errors import unknown_name


@functools.cache
def bibliography() -> dict[str, dict[str, str]]:
    """All entries: key to fields. Third parties add theirs with :func:`add`."""
    return parse(
        resources.files("mindgap.core").joinpath("references.bib").read_text(encoding="utf-8")
    )


def parse(text: str) -> dict[str, dict[str, str]]:
    """The entries of a BibTeX file whose fields stand one a line in braces.

    >>> parse("@article{k,\\n  title = {On {ReLU} nets},\\n}")
    {'k': {'title': 'On ReLU nets'}}
    """
    entries = {}
    for key, body in re.findall(r"@\w+\{([^,]+),\n(.*?)\n\}", text.replace("\r", ""), re.S):
        fields = re.findall(r"^\s*(\w+)\s*=\s*\{(.*)\},?\s*$", body + "\n", re.M)
        entries[key] = {name: re.sub(r"[{}]", "", value) for name, value in fields}
    return entries


def add(text: str) -> None:
    """Add the entries of another BibTeX text, for specs outside the house."""
    bibliography().update(parse(text))


def reference(key: str) -> str:
    """One line: who, what, where, when."""
    if key not in bibliography():
        raise unknown_name("reference", key, bibliography())
    entry = bibliography()[key]
    where = entry.get("journal") or entry.get("booktitle") or entry.get("howpublished") or ""
    parts = [entry.get("author", ""), entry.get("title", ""), where, entry.get("year", "")]
    line = " ".join(
        part if part.endswith((".", "?", "!")) else f"{part}." for part in parts if part
    )
    return f"{line} {entry['url']}" if "url" in entry else line
