"""Writes ``docs/catalog`` when a build starts: one page per spec, from the registry. No list is kept by hand."""

import hashlib
import shutil
from pathlib import Path

import parts
from markup import join, table, toctree
from spec_page import linked, page

import mindgap
from mindgap.core.references import bibliography
from mindgap.core.registry import FAMILIES, catalog
from mindgap.runs import load_results, results_page

ABOUT = {
    "measure": (
        "Measures",
        "A measure is a number that says something about generalization. It comes with a status, "
        "its cost and where "
        "it came from, and it leaves the model as it was.",
    ),
    "bound": (
        "Bounds",
        "A bound is a theorem with all its constants: with probability at least 1 − delta the "
        "risk is below what was "
        "seen plus the price of generalizing. A result says whether the assumptions hold "
        "(*valid*) and whether it says "
        "more than the worst case would (*vacuous*).",
    ),
    "remedy": (
        "Remedies",
        "A remedy changes training. At zero strength it is plain training, bit for bit, so that "
        "what you compare "
        "differs in nothing else.",
    ),
    "study": (
        "Studies",
        "A study is a table or a figure of a paper, or an experiment, cut into trials that can be "
        "run anywhere, "
        "killed and resumed.",
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
    """Every generated page: path below ``docs/catalog`` to text. ``folder`` is the documentation's."""
    results = Path(folder) / "results"
    return {
        "index.md": _index(),
        "bibliography.md": _bibliography(),
        **{f"{plural(family)}.md": _family(family) for family in FAMILIES},
        **{
            f"{family}/{name}.md": page(cls)
            for family in FAMILIES
            for name, cls in catalog(family).items()
        },
        **_results(results),
        "parts/command-line.md": parts.command_line(),
        "parts/public-names.md": parts.public_names(),
        "parts/data-sets.md": parts.data_sets(),
        "parts/benchmarks.md": parts.benchmarks(results / "benchmarks"),
    }


def plural(family):
    """The room's last name: measures, bounds, remedies, studies."""
    return FAMILIES[family].rpartition(".")[2]


def write(folder):
    """Write what changed, so that Sphinx reads only that again, and remove what is gone."""
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
    rows = [
        (f"[{ABOUT[family][0]}]({plural(family)}.md)", len(catalog(family))) for family in FAMILIES
    ]
    ids = [(f"`{letter}`", meaning) for letter, meaning in LETTERS.items()]
    return join(
        "# The catalog",
        "Everything that mindgap can compute, prove, change or reproduce, with formula, reading, "
        "assumptions, settings "
        "and references. These pages are written from the classes themselves; plug-ins that are "
        "installed when the "
        "pages are built appear too.",
        table(("family", "entries"), rows),
        "An entry carries the ids of the methods it implements. The letter says where a method "
        "comes from:",
        table(("id", "from work on"), ids),
        toctree([*map(plural, FAMILIES), "bibliography"]),
    )


def _family(family):
    heading, about = ABOUT[family]
    known = catalog(family)
    rows = [
        (f"[{name}]({family}/{name}.md)", ", ".join(cls.method), cls.words().summary)
        for name, cls in known.items()
    ]
    listed = table(("name", "methods", "what it is"), rows) if rows else "There is none yet."
    return join(
        f"# {heading}",
        about,
        listed,
        toctree([f"{family}/{name}" for name in known]) if known else "",
    )


def _bibliography():
    users = {key: [cls for cls in catalog().values() if key in cls.cites] for key in bibliography()}
    return join("# References", *(_entry(key, users[key]) for key in sorted(bibliography())))


def _entry(key, users):
    used = ", ".join(f"[{cls.name}]({cls.family}/{cls.name}.md)" for cls in users)
    return f"(ref-{key})=\n**{key}** {linked(key)}" + (f"  \nUsed by {used}." if used else "")


def _results(folder):
    found = {path.stem: path for path in sorted(folder.glob("*.json"))} if folder.is_dir() else {}
    text = (
        "Studies that were run, with their tables, costs and versions. Every number comes from a "
        "file in "
        "`docs/results`, and `make reproduce` computes them anew."
    )
    none = "There are no saved results in this copy yet; `make reproduce` makes them."
    listed = toctree([f"results/{name}" for name in found]) if found else ""
    index = join("# Results", text if found else none, listed)
    return {
        "results.md": index,
        **{f"results/{name}.md": _result(path) for name, path in found.items()},
    }


def _result(path):
    charts = (
        f"`mindgap report docs/results/{path.name} -o page.html` draws the charts of this table."
    )
    return join(results_page(load_results(path)).rstrip(), charts)


def digest():
    """Changes with the package and with the code that writes these pages: then every page is read again."""
    files = [*Path(mindgap.__file__).parent.rglob("*.py"), *Path(__file__).parent.glob("*.py")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()


def setup(app):
    app.add_config_value("built_from", digest(), "env", str)
    app.connect("builder-inited", lambda app: write(app.srcdir))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
