"""The data sets that ``mindgap.data.load`` knows: where each comes from and whom to cite."""

import inspect
import urllib.parse

from markup import join

from mindgap.data.catalog import loaders
from mindgap.data.download import Remote


def summary():
    """List all data sets, for the page on data."""
    return join(*(f"`{name}`\n: {_paragraph(made)}" for name, made in loaders().items()))


def facts(function):
    """Say where a data set comes from and whom to cite."""
    return [
        ("Origin", _origin(function)),
        *([("Cite", _cite(function))] if _cite(function) else []),
    ]


def _paragraph(function):
    words = " ".join(inspect.getdoc(function).split("\n\n")[0].split())
    cited = f" *{_cite(function)}*" if _cite(function) else ""
    return f"{words} {_origin(function)}{cited}"


def _cite(function):
    source = getattr(inspect.getmodule(function), "SOURCE", "")
    return f"{source.rstrip('.')}." if source else ""


def _origin(function):
    module = inspect.getmodule(function)
    values = vars(module).values()
    addresses = [value.url if isinstance(value, Remote) else str(value) for value in values]
    urls = [text for text in addresses if text.startswith("https://")]
    hosts = {urllib.parse.urlsplit(url).hostname for url in urls}
    if hosts:
        return f"Downloaded from {', '.join(sorted(hosts))}."
    return "Comes with the package." if hasattr(module, "FILE") else "Generated."
