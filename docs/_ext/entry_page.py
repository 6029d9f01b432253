"""The page of one entry of the catalog: everything on it comes from the code itself."""

import dataclasses
import importlib
import inspect

import data_sets
from api import address, autodoc
from markup import fence, join, table

from mindgap.core import FAMILIES, catalog, functions, reference
from mindgap.core.measure import INVARIANCES
from mindgap.core.references import bibliography
from mindgap.data.catalog import loaders
from mindgap.report.wording import title

KINDS = {**{family: family for family in FAMILIES}, "dataset": "data set", "function": "function"}
DIRECTIONS = {
    "lower": "lower values are claimed to generalize better",
    "higher": "higher values are claimed to generalize better",
    "none": "no direction is claimed",
}
NEEDS = {
    "test": "test data",
    "initial": "the weights before training",
    "classification": "a classification task",
    "gradients": "gradients",
    "history": "the training curves",
    "recipe": "the recipe that trained it",
}
CHANGES = {
    "sample-order": "reordering the samples",
    "unit-permutation": "permuting the hidden units",
    "relu-rescaling": "rescaling one ReLU layer against the next",
    "output-scaling": "scaling the outputs",
    "duplication": "duplicating every sample",
}


def page(entry):
    """Write the page of an entry.

    Args:
        entry: A ``mindgap.jobs.explain.Entry``.
    """
    code = implementation(entry)
    return join(
        f"# {entry.name if entry.family == 'dataset' else title(entry.name, written(code))}",
        " · ".join(filter(None, [f"`{entry.name}`", KINDS[entry.family], *entry.methods])),
        *_words(entry),
        *_section("At a glance", "\n".join(f"- **{k}**: {v}" for k, v in _facts(entry, code))),
        *_section("Settings", "" if entry.family == "function" else _settings(entry)),
        *_section("Numbers", _numbers(code) if entry.family == "bound" else ""),
        *_section("From Python", python(entry, code)),
        *_section("From the command line", fence(command(entry, code), "bash")),
        *_section("References", "\n".join(f"- {cited(key)}" for key in entry.cites)),
        *_section("Source", source(code)),
    )


def implementation(entry):
    """Find the class or function behind an entry."""
    if entry.family == "dataset":
        return loaders()[entry.name]
    if entry.family == "function":
        return functions()[entry.name].call
    return catalog(entry.family)[entry.name]


def written(code):
    """Join what a class or function, its file and its folder say of themselves."""
    module = inspect.getmodule(code)
    package = importlib.import_module(module.__name__.rpartition(".")[0] or module.__name__)
    return " ".join(filter(None, (code.__doc__, module.__doc__, package.__doc__)))


def _section(heading, text):
    return [f"## {heading}", text] if text else []


def _words(entry):
    words = entry.words
    return [
        words.summary,
        *_section("Formula", f"```{{math}}\n{words.formula}\n```" if words.formula else ""),
        *_section("How to read it", words.reading),
        *_section("What it assumes", words.assumes),
    ]


def _settings(entry):
    if not entry.settings:
        return "There is nothing to set."
    columns = {
        "name": [f"`{s.name}`" for s in entry.settings],
        "default": ["required" if s.required else f"`{s.default!r}`" for s in entry.settings],
        "allowed": [s.allowed or "any" for s in entry.settings],
        "meaning": [s.help for s in entry.settings],
    }
    filled = {name: values for name, values in columns.items() if set(values) - {"", "any"}}
    return table(list(filled), zip(*filled.values(), strict=True))


def _facts(entry, code):
    kinds = {
        "measure": _measured,
        "bound": _measured,
        "diagnosis": _diagnosed,
        "remedy": _treated,
        "study": _studied,
        "dataset": data_sets.facts,
    }
    return kinds[entry.family](code) if entry.family in kinds else []


def _measured(cls):
    kept = [CHANGES[change] for change in INVARIANCES if change in cls.invariant_to]
    others = [CHANGES[change] for change in INVARIANCES if change not in cls.invariant_to]
    needs = [NEEDS[need] for need in sorted(cls.needs)]
    return [
        *([("Direction", DIRECTIONS[cls.direction])] if cls.family == "measure" else []),
        ("Needs", ", ".join(needs) or "only the model and training data"),
        ("Unchanged by", ", ".join(kept) or "—"),
        ("Changed by", ", ".join(others) or "—"),
        ("Cost", cls.cost),
    ]


def _diagnosed(cls):
    needs = [NEEDS[need] for need in sorted(cls.needs)]
    return [
        ("Needs", ", ".join(needs) or "only the model and training data"),
        ("Test", "an exact check" if cls.exact else "a p-value, corrected for all tests"),
        ("Stage", cls.stage),
        ("Explains", ", ".join(f"`{name}`" for name in sorted(cls.explains)) or "—"),
        ("Can be planted in", ", ".join(cls.kinds)),
    ]


def _treated(cls):
    alone = cls.sequential_hook()
    return [
        ("Treats", ", ".join(sorted(cls.treats))),
        ("Strength", f"`{cls.strength}`; zero is exactly plain training"),
        ("Many seeds at once", f"no, because of its hook `{alone}`" if alone else "yes"),
    ]


def _studied(cls):
    rows = [("Trials", str(len(cls().trials())))]
    rows += [("Reproduces", ", ".join(cls.reproduces))] if cls.reproduces else []
    return rows + [(f"Paper: {name}", f"{value:g}") for name, value in cls.expected.items()]


def _numbers(cls):
    rows = [
        (
            f"`{name}`",
            f"`{getattr(hint, '__name__', hint)}`",
            "required" if default is inspect.Parameter.empty else f"`{default!r}`",
        )
        for name, (hint, default) in cls.arguments().items()
    ]
    text = "The theorem is plain arithmetic. You can evaluate it on numbers, without any model."
    return join(text, table(("name", "type", "default"), rows)).rstrip()


def _required(cls):
    arguments = cls.arguments().items()
    return [name for name, (_, default) in arguments if default is inspect.Parameter.empty]


def python(entry, code):
    """Show how to use an entry from Python."""
    if entry.family == "dataset":
        return fence(f'import mindgap\n\ndata = mindgap.data.load("{entry.name}")', "python")
    if entry.family == "function":
        package, _, name = address(code).rpartition(".")
        described = fence(autodoc(address(code), ":no-index:"), "{eval-rst}")
        return join(fence(f"from {package} import {name}", "python"), described).rstrip()
    return fence(spec_use(code), "python")


def spec_use(cls):
    """Show how to use a spec from Python, with its default settings."""
    home = FAMILIES[cls.family]
    place = home if cls.__module__.startswith(home + ".") else cls.__module__
    uses = {
        "measure": "result = {made}(subject)\nprint(result)",
        "bound": "result = {made}(subject)\nprint(result, result.valid, result.vacuous)\n\n"
        "{made}.evaluate({numbers})",
        "diagnosis": "finding = {made}(subject)\nprint(finding)  # None if it is not there",
        "remedy": "fitted = mindgap.fit(recipe, [{made}], seed=0)",
        "study": 'swept = mindgap.sweep({made}.tiny(), store="runs.sqlite")\nprint(swept.table)',
    }
    values = ", ".join(f"{field.name}={field.default!r}" for field in dataclasses.fields(cls))
    made = f"{cls.__name__}()" if cls.family == "study" else f"{cls.__name__}({values})"
    numbers = ", ".join(f"{name}=..." for name in _required(cls)) if cls.family == "bound" else ""
    use = uses[cls.family].format(made=made, numbers=numbers)
    head = "import mindgap\n" if cls.family in ("remedy", "study") else ""
    return f"{head}from {place} import {cls.__name__}\n\n{use}"


def command(entry, code):
    """Show how to use an entry from the command line."""
    more = f"mindgap explain {entry.name}"
    if entry.family == "measure":
        return f"mindgap examine my_model.py:make_subject --measure {entry.name}\n{more}"
    if entry.family == "bound":
        numbers = " ".join(f"--{name.replace('_', '-')} {name.upper()}" for name in _required(code))
        lines = (f"{entry.name} {numbers}", f"{entry.name} --subject my_model.py:make_subject")
        return "".join(f"mindgap bound {line}\n" for line in lines) + more
    if entry.family == "remedy":
        strength = f"{code.strength}={getattr(code(), code.strength)}"
        return f"mindgap train --data digits --remedy {entry.name}:{strength}\n{more}"
    if entry.family == "study":
        return f"mindgap run {entry.name} --tiny\nmindgap run {entry.name} --help\n{more}"
    return more


def cited(key):
    """Write a reference as one line, with a link to its place in the bibliography."""
    return f"{linked(key)} [{key}](#ref-{key})"


def linked(key):
    """Write a reference whose web address can be clicked."""
    url = bibliography()[key].get("url")
    line = reference(key)
    return line.replace(url, f"<{url}>") if url else line


def source(code):
    """Show the whole file, folded: one file is one idea, and short."""
    module = inspect.getmodule(code)
    head = f"<details><summary>Read <code>{module.__name__}</code></summary>"
    return join(head, fence(inspect.getsource(module), "python"), "</details>").rstrip()
