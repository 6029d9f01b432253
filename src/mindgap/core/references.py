"""The papers that specs cite, read from references.bib in this folder."""

import functools
import re
from importlib import resources

from mindgap.core.errors import unknown_name


@functools.cache
def bibliography() -> dict[str, dict[str, str]]:
    """Read all entries as key → fields; third parties add theirs with :func:`add`."""
    return parse(
        resources.files("mindgap.core").joinpath("references.bib").read_text(encoding="utf-8")
    )


def parse(text: str) -> dict[str, dict[str, str]]:
    """Parse BibTeX entries that have one field per line, in braces.

    >>> parse("@article{k,\\n  title = {On {ReLU} nets},\\n}")
    {'k': {'title': 'On ReLU nets'}}
    """
    entries = {}
    for key, body in re.findall(r"@\w+\{([^,]+),\n(.*?)\n\}", text.replace("\r", ""), re.S):
        fields = re.findall(r"^\s*(\w+)\s*=\s*\{(.*)\},?\s*$", body + "\n", re.M)
        entries[key] = {name: re.sub(r"[{}]", "", value) for name, value in fields}
    return entries


def add(text: str) -> None:
    """Add the entries of another BibTeX text, for specs of third parties."""
    bibliography().update(parse(text))


def reference(key: str) -> str:
    """Format one entry as a line: authors, title, where, year and address.

    >>> reference("hoeffding1963probability").startswith("Hoeffding, Wassily. Probability")
    True
    """
    if key not in bibliography():
        raise unknown_name("reference", key, bibliography())
    entry = bibliography()[key]
    where = entry.get("journal") or entry.get("booktitle") or entry.get("howpublished") or ""
    parts = [entry.get("author", ""), entry.get("title", ""), where, entry.get("year", "")]
    line = " ".join(
        part if part.endswith((".", "?", "!")) else f"{part}." for part in parts if part
    )
    return f"{line} {entry['url']}" if "url" in entry else line


def citation(key: str) -> str:
    """Name a paper as a text does: authors and year.

    >>> citation("novello2020variance"), citation("krogh1991simple"), citation("catoni2007pac")
    ('Novello et al. 2020', 'Krogh & Hertz 1991', 'Catoni 2007')
    """
    if key not in bibliography():
        raise unknown_name("reference", key, bibliography())
    entry = bibliography()[key]
    names = [name.split(",")[0] for name in entry.get("author", key).split(" and ")]
    who = " & ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return f"{who} {entry['year']}" if "year" in entry else who
