"""Writes ``docs/catalog`` when a build starts: a page per entry, from the registry."""

import hashlib
import importlib
import inspect
import itertools
import shutil
from pathlib import Path

import api
import data_sets
import parts
from entry_page import implementation, linked, page, written
from figures import chart_section
from markup import join, table, toctree

import mindgap
from mindgap.core import FAMILIES, Table
from mindgap.core.references import bibliography
from mindgap.jobs.explain import entries
from mindgap.report.wording import title
from mindgap.runs import load_results, results_page

ABOUT = {
    "measure": (
        "Measures",
        "A measure is a number that says something about generalization. Its result carries a "
        "status, its cost and its provenance. Measuring leaves the model as it was.",
    ),
    "bound": (
        "Bounds",
        "A bound is a theorem with all its constants: with probability at least 1 − delta, the "
        "risk is at most the empirical risk plus a complexity term. A result says whether the "
        "assumptions hold (*valid*) and whether it says no more than the worst case (*vacuous*).",
    ),
    "diagnosis": (
        "Diagnoses",
        "A diagnosis looks for one thing that can be wrong with a model, its data or its training. "
        "A finding says what is wrong, with evidence and what to do first. [](../diagnoses.md) says "
        "how findings are ordered.",
    ),
    "remedy": (
        "Remedies",
        "A remedy changes training. At zero strength it is exactly plain training, so that a "
        "comparison differs in nothing else.",
    ),
    "study": (
        "Studies",
        "A study is a table or a figure of a paper, or an experiment of our own. It is divided "
        "into trials, which can run anywhere and can be interrupted and resumed.",
    ),
    "dataset": (
        "Data sets",
        "A data set is a function that returns training and test data. `mindgap.data.load(name)` "
        "calls it, and `mindgap train --data name` trains on it. [](../data.md) says where mindgap "
        "looks for files.",
    ),
    "function": (
        "Functions",
        "These functions and classes implement methods that are neither a measure nor a bound, "
        "remedy or study. Measures and remedies build on many of them.",
    ),
}
LETTERS = {
    "V": "variance based sample weighting",
    "T": "Taylor based sampling",
    "P": "PAC-Bayes and perturbed optimization",
    "K": "generalization theory and its bounds",
    "E": "expressivity, optimization and overfitting",
    "S": "stability and robustness",
}


def pages(folder):
    """Write every generated page: path below ``docs/catalog`` to text.

    Args:
        folder: The folder of the documentation.
    """
    results = Path(folder) / "results"
    return {
        "index.md": _index(),
        "bibliography.md": _bibliography(),
        **{f"{plural(family)}.md": _family(family) for family in ABOUT},
        **{f"{entry.family}/{entry.name}.md": page(entry) for entry in entries()},
        **_results(results),
        "parts/api.md": api.page(),
        "parts/command-line.md": parts.command_line(),
        "parts/data-sets.md": data_sets.summary(),
        "parts/benchmarks.md": parts.benchmarks(results / "benchmarks"),
        "parts/reproduction.md": parts.reproduction(results),
        "parts/lectures.md": parts.lectures(results),
    }


def plural(family):
    """Name the page of a family: measures, bounds, remedies, studies, datasets, functions."""
    return FAMILIES[family].rpartition(".")[2] if family in FAMILIES else f"{family}s"


def write(folder):
    """Write the pages that changed, so that Sphinx reads no others, and remove stale ones."""
    target = Path(folder) / "catalog"
    wanted = pages(folder)
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_file() and str(path.relative_to(target)) not in wanted:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            shutil.rmtree(path)
    for name, text in wanted.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _index():
    rows = [(f"[{ABOUT[name][0]}]({plural(name)}.md)", len(entries(name))) for name in ABOUT]
    ids = [(f"`{letter}`", meaning) for letter, meaning in LETTERS.items()]
    return join(
        "# The catalog",
        "Everything that mindgap can compute, prove, change or reproduce, with formula, meaning, "
        "assumptions, settings and references. These pages are generated from the code. Plug-ins "
        "that are installed when the pages are built appear too.",
        table(("family", "entries"), rows),
        "An entry shows the ids of the methods that it implements. The letter says where a method "
        "comes from:",
        table(("id", "from work on"), ids),
        toctree([*map(plural, ABOUT), "bibliography"]),
    )


def _family(family):
    heading, about = ABOUT[family]
    known = entries(family)
    topics = itertools.groupby(known, key=lambda entry: entry.topic)
    sections = [part for topic, group in topics for part in _topic(topic, list(group))]
    names = sorted(entry.name for entry in known)
    return join(f"# {heading}", about, *sections, toctree([f"{family}/{name}" for name in names]))


def _topic(topic, group):
    """The entries of one folder, with its name and sentence unless it is the family's own."""
    papers = any(entry.cites for entry in group)
    rows = [
        (_link(entry), *(_papers(entry) if papers else ()), entry.words.summary) for entry in group
    ]
    listed = table(("name", *(["paper"] if papers else []), "what it is"), rows)
    if not topic:
        return [listed]
    words = " ".join(written(implementation(entry)) for entry in group)
    return [f"## {title(topic, words)}", _sentence(group[0]), listed]


def _link(entry):
    return f"[{entry.name}]({entry.family}/{entry.name}.md)"


def _papers(entry):
    return [entry.citations[0] if entry.cites else ""]


def _sentence(entry):
    """What an entry's folder says of itself."""
    module = inspect.getmodule(implementation(entry))
    package = importlib.import_module(module.__name__.rpartition(".")[0] or module.__name__)
    return " ".join((package.__doc__ or "").split("\n\n")[0].split())


def _bibliography():
    users = {key: [entry for entry in entries() if key in entry.cites] for key in bibliography()}
    return join("# References", *(_reference(key, users[key]) for key in sorted(bibliography())))


def _reference(key, users):
    used = ", ".join(map(_link, users))
    return f"(ref-{key})=\n**{key}** {linked(key)}" + (f"  \nUsed by {used}." if used else "")


def _results(folder):
    found = {path.stem: path for path in sorted(folder.glob("*.json"))} if folder.is_dir() else {}
    text = (
        "Results of studies, with tables, costs and versions. Every number comes from a file in "
        "`docs/results`. `make reproduce` runs the studies that are missing there, and "
        "[](../reproduce.md) says what they reproduce."
    )
    none = "There are no saved results in this copy yet; `make reproduce` makes them."
    listed = toctree([f"results/{name}" for name in found]) if found else ""
    index = join("# Results", text if found else none, listed)
    return {
        "results.md": index,
        **{f"results/{name}.md": _result(path) for name, path in found.items()},
    }


def _result(path):
    results = load_results(path)
    whole = f"`mindgap report docs/results/{path.name} -o page.html` makes a page of this study."
    return join(
        results_page(results).rstrip(), chart_section(Table.from_dict(results["table"])), whole
    )


def digest():
    """Hash the package and this extension: when either changes, Sphinx reads every page again."""
    files = [*Path(mindgap.__file__).parent.rglob("*.py"), *Path(__file__).parent.glob("*.py")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()


def setup(app):
    app.add_config_value("built_from", digest(), "env", str)
    app.connect("builder-inited", lambda app: write(app.srcdir))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
