"""The page of the Python interface: every public name of every package, once, by autodoc."""

import importlib
import inspect
import pkgutil
import re

from markup import fence, join

import mindgap
from mindgap.core import FAMILIES

AUTHORS = "mindgap.core"
ORDER = ("function", "class", "exception", "data")
WORDS = re.compile(r"^(\s*)(Formula|Reading|Assumes): ", re.M)
FORMULA = re.compile(r"\$([^$]+)\$")
BAR = re.compile(r"``.*?``|`[^`]*`|\|", re.S)  # or a literal or role, in which bars are fine


def packages():
    """The packages that ``import mindgap`` offers, but those that the catalog describes."""
    found = (getattr(mindgap, name) for name in mindgap.__all__)
    offered = [value.__name__ for value in found if inspect.ismodule(value)]
    return [name for name in offered if name not in FAMILIES.values()]


def page():
    """Write a section per package; a name that several packages offer is described once."""
    seen = set()
    own = _section("mindgap", "## mindgap", seen)
    return join(
        *own,
        *(part for name in packages() for part in _section(name, f"## {name}", seen)),
        *_section(AUTHORS, f"## {AUTHORS}, for authors", seen),
    )


def described():
    """The addresses of the functions and classes on the page."""
    return re.findall(r"^\.\. auto\w+:: (\S+)$", page(), re.M)


def address(thing):
    """Where a user imports a function or class from: its package, or else its own module."""
    for package in ("mindgap", *packages(), AUTHORS):
        if getattr(importlib.import_module(package), thing.__name__, None) is thing:
            return f"{package}.{thing.__name__}"
    return f"{thing.__module__}.{thing.__qualname__}"


def autodoc(path, *options):
    """Describe one object from its docstring.

    Args:
        path: Its dotted address.
        *options: Lines of options of the directive, such as ``":no-index:"``.
    """
    package, _, name = path.rpartition(".")
    value = getattr(importlib.import_module(package), name)
    kind = _kind(value)
    if kind == "data":
        return _constant(path, value)
    members = [":members:"] if kind == "class" else []
    lines = [f".. auto{kind}:: {path}", *(f"   {line}" for line in (*members, *options))]
    return "\n".join(lines) + "\n"


def _kind(value):
    if inspect.isclass(value):
        return "exception" if issubclass(value, Exception) else "class"
    return "function" if inspect.isroutine(inspect.unwrap(value)) else "data"


def _constant(path, value):
    """Describe a constant, which has no docstring of its own: its keys or its value."""
    shown = ", ".join(f"``{key!r}``" for key in value) if isinstance(value, dict) else ""
    about = f"A dictionary with the keys {shown}." if shown else f"``{_plain(value)}``"
    return f".. py:data:: {path}\n\n   {about}\n"


def _plain(value):
    return re.sub(r"\b(typing|collections\.abc)\.", "", str(value))


def _section(path, heading, seen):
    module = importlib.import_module(path)
    offered = {name: getattr(module, name) for name in _names(module)}
    parts = {name: value for name, value in offered.items() if inspect.ismodule(value)}
    fresh = [name for name in offered if name not in parts and _new(offered[name], seen)]
    fresh.sort(key=lambda name: (ORDER.index(_kind(offered[name])), name))
    described = "\n".join(autodoc(f"{path}.{name}") for name in fresh)
    below = [] if path == "mindgap" else [value.__name__ for value in parts.values()]
    return [
        heading,
        _paragraph(module) if path != "mindgap" else "",
        fence(described, "{eval-rst}") if described else "",
        *(part for name in below for part in _section(name, f"### {name}", seen)),
    ]


def _names(module):
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("_")]
    if hasattr(module, "__path__"):
        names = [found.name for found in pkgutil.iter_modules(module.__path__)]
        for name in names:
            importlib.import_module(f"{module.__name__}.{name}")
        return names
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _new(value, seen):
    """Whether an object has not been described yet; constants that are equal may be two things."""
    if not hasattr(value, "__qualname__"):
        return True
    known = value in seen
    seen.add(value)
    return not known


def _paragraph(module):
    return " ".join((module.__doc__ or "").split("\n\n")[0].split()).replace("``", "`")


def typeset(lines):
    """Turn the formulas of a docstring into reStructuredText, and its heads into bold words.

    Args:
        lines: The lines of the docstring, which are changed in place.
    """
    text = "\n".join(lines)
    if WORDS.search(text):
        text = FORMULA.sub(lambda found: f":math:`{' '.join(found[1].split())}`", text)
        text = WORDS.sub(r"\1**\2.** ", text)
    lines[:] = "\n\n".join(map(_with_bars, text.split("\n\n"))).split("\n")


def _with_bars(paragraph):
    """Keep the bars of an absolute value, which reStructuredText takes for a substitution."""
    if paragraph.lstrip().startswith(">>>"):
        return paragraph
    return BAR.sub(lambda found: r"\|" if found[0] == "|" else found[0], paragraph)


def without_words(lines):
    """Drop the summary, formula, reading and assumptions, which the page of an entry shows itself.

    Args:
        lines: The lines of the docstring, which are changed in place.
    """
    _, *paragraphs = "\n".join(lines).split("\n\n")
    lines[:] = "\n\n".join(part for part in paragraphs if not WORDS.match(part)).split("\n")


def _process(*event):
    *_, what, _, _, options, lines = event
    if what in ("function", "class") and "no-index" in options and WORDS.search("\n".join(lines)):
        without_words(lines)
    typeset(lines)


def readable(signature):
    """Write a signature that Sphinx can parse: a default that a factory makes is an ellipsis."""
    return signature and signature.replace("<factory>", "...")


def setup(app):
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", lambda *event: (readable(event[-2]), event[-1]))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
