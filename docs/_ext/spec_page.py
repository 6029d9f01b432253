"""The page of one spec: everything on it comes from the class itself."""

import dataclasses
import inspect
import typing

from markup import fence, join, table

from mindgap.core.measure import INVARIANCES
from mindgap.core.references import bibliography, reference
from mindgap.core.registry import FAMILIES
from mindgap.core.spec import allowed
from mindgap.report.wording import title

DIRECTIONS = {
    "lower": "lower values are claimed to generalize better",
    "higher": "higher values are claimed to generalize better",
    "none": "none is claimed",
}
NEEDS = {
    "test": "test data",
    "initial": "the weights from before training",
    "classification": "a classification",
    "gradients": "gradients",
}
CHANGES = {
    "sample-order": "reordering the samples",
    "unit-permutation": "permuting the hidden units",
    "relu-rescaling": "rescaling one ReLU layer against the next",
    "output-scaling": "scaling the outputs",
    "duplication": "duplicating every sample",
}
LIMITS = ("choices", "low", "high", "above", "below")


def page(cls):
    """A spec as Markdown."""
    words = cls.words()
    about = f"`{cls.name}` · {cls.family}" + (f" · {', '.join(cls.method)}" if cls.method else "")
    return join(
        f"# {title(cls.name)}",
        f"{about}",
        words.summary,
        "## Formula",
        f"```{{math}}\n{words.formula}\n```",
        "## How to read it",
        words.reading,
        "## What it assumes",
        words.assumes,
        *_facts(cls),
        "## Settings",
        fields(cls),
        *_numbers(cls),
        "## From Python",
        fence(python(cls), "python"),
        "## From the command line",
        fence(command(cls), "bash"),
        "## References",
        "\n".join(f"- {cited(key)}" for key in cls.cites),
        "## Source",
        source(cls),
    )


def fields(cls):
    """A table of the settings."""
    hints = typing.get_type_hints(cls)
    rows = [
        (
            f"`{field.name}`",
            f"`{_type(hints[field.name])}`",
            f"`{field.default!r}`",
            _allowed(field),
            _help(field),
        )
        for field in dataclasses.fields(cls)
    ]
    return (
        table(("name", "type", "default", "allowed", "meaning"), rows)
        if rows
        else "There is nothing to set."
    )


def _type(hint):
    return hint.__name__ if isinstance(hint, type) else str(hint).removeprefix("typing.")


def _allowed(field):
    limits = field.metadata.get("choices") or any(
        field.metadata.get(key) is not None for key in LIMITS[1:]
    )
    return allowed(field.metadata) if limits else "any"


def _help(field):
    return field.metadata.get("help", "")


def _facts(cls):
    rows = {"measure": _measured, "bound": _measured, "remedy": _treated, "study": _studied}[
        cls.family
    ](cls)
    return ["## At a glance", "\n".join(f"- **{name}**: {text}" for name, text in rows)]


def _measured(cls):
    others = [
        CHANGES.get(change, change) for change in INVARIANCES if change not in cls.invariant_to
    ]
    return [
        *([("Direction", DIRECTIONS[cls.direction])] if cls.family == "measure" else []),
        (
            "Needs",
            ", ".join(NEEDS.get(need, need) for need in sorted(cls.needs))
            or "only the model and training data",
        ),
        (
            "Unchanged by",
            ", ".join(
                CHANGES.get(change, change) for change in INVARIANCES if change in cls.invariant_to
            )
            or "—",
        ),
        ("Changed by", ", ".join(others) or "—"),
        ("Cost", cls.cost),
    ]


def _treated(cls):
    return [
        ("Treats", cls.treats),
        ("Strength", f"`{cls.strength}`; zero is plain training, bit for bit"),
    ]


def _studied(cls):
    rows = [("Trials", str(len(cls().trials())))]
    return rows + [(f"Paper: {name}", f"{value:g}") for name, value in cls.expected.items()]


def _numbers(cls):
    if cls.family != "bound":
        return []
    rows = [
        (
            f"`{name}`",
            f"`{_type(hint)}`",
            "required" if default is inspect.Parameter.empty else f"`{default!r}`",
        )
        for name, (hint, default) in cls.arguments().items()
    ]
    text = (
        "The theorem is plain arithmetic: it can be evaluated on these numbers, without any model."
    )
    return ["## Numbers", text, table(("name", "type", "default"), rows)]


def _required(cls):
    return [
        name for name, (_, default) in cls.arguments().items() if default is inspect.Parameter.empty
    ]


def python(cls):
    """How to use the spec from Python."""
    home = FAMILIES[cls.family]
    place = home if cls.__module__.startswith(home + ".") else cls.__module__
    uses = {
        "measure": "result = {made}(subject)\nprint(result)",
        "bound": "result = {made}(subject)\nprint(result, result.valid, result.vacuous)\n\n{made}.evaluate({numbers})",
        "remedy": "fitted = mindgap.fit(recipe, [{made}], seed=0)",
        "study": 'swept = mindgap.sweep({made}.tiny(), store="runs.sqlite")\nprint(swept.table)',
    }
    settings = ", ".join(f"{field.name}={field.default!r}" for field in dataclasses.fields(cls))
    made = f"{cls.__name__}()" if cls.family == "study" else f"{cls.__name__}({settings})"
    numbers = ", ".join(f"{name}=..." for name in _required(cls)) if cls.family == "bound" else ""
    head = "import mindgap\n" if cls.family in ("remedy", "study") else ""
    return f"{head}from {place} import {cls.__name__}\n\n" + uses[cls.family].format(
        made=made, numbers=numbers
    )


def command(cls):
    """How to use the spec from the command line."""
    more = f"mindgap explain {cls.name}"
    if cls.family == "measure":
        return f"mindgap examine my_model.py:make_subject --measure {cls.name}\n{more}"
    if cls.family == "bound":
        numbers = " ".join(f"--{name.replace('_', '-')} {name.upper()}" for name in _required(cls))
        lines = (f"{cls.name} {numbers}", f"{cls.name} --subject my_model.py:make_subject")
        return "".join(f"mindgap bound {line}\n" for line in lines) + more
    if cls.family == "remedy":
        return f"mindgap train --data digits --remedy {cls.name}:{cls.strength}={getattr(cls(), cls.strength)}\n{more}"
    return f"mindgap run {cls.name} --tiny\nmindgap run {cls.name} --help\n{more}"


def cited(key):
    """A reference as one line, with a link to its place in the bibliography."""
    return f"{linked(key)} [{key}](#ref-{key})"


def linked(key):
    """A reference whose address can be clicked."""
    address = bibliography()[key].get("url")
    line = reference(key)
    return line.replace(address, f"<{address}>") if address else line


def source(cls):
    """The whole file, folded: one file is one idea, and short."""
    code = inspect.getsource(inspect.getmodule(cls))
    head = f"<details><summary>Read <code>{cls.__module__}</code></summary>"
    return join(head, fence(code, "python"), "</details>").rstrip()
