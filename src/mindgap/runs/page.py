"""Page: Markdown made from saved results; every number on it comes from the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindgap.core.errors import UnknownNameError
from mindgap.core.spec import REGISTRY, Spec
from mindgap.runs.plain import ordered
from mindgap.runs.results import table_of


def results_page(results: Mapping[str, Any]) -> str:
    """A page with the study's words, its table and notes, the paper's numbers, the cost and the provenance."""
    table = table_of(results)
    parts = [f"# {table.title}", *_words(results["study"]), table.to_markdown(), *_expected(results["expected"])]
    return "\n\n".join([*parts, *_incomplete(results["trials"]), _provenance(results)]) + "\n"


def _words(name: str) -> list[str]:
    study = _registered(name)
    if study is None:
        return []
    words = study.words()
    return [text for text in (words.summary, words.reading, _cites(study)) if text]


def _registered(name: str) -> type[Spec] | None:
    known = REGISTRY.get("study", {}).get(name)
    if known is not None:
        return known
    from mindgap.core.registry import find

    try:
        return find(name, "study")
    except (UnknownNameError, ImportError):
        return None


def _cites(study: type[Spec]) -> str:
    return f"After: {', '.join(study.cites)}." if study.cites else ""


def _expected(expected: Mapping[str, Any]) -> list[str]:
    if not expected:
        return []
    return ["## The paper's numbers", "\n".join(f"- {name}: {value:g}" for name, value in expected.items())]


def _incomplete(trials: list[Mapping[str, Any]]) -> list[str]:
    counts = {status: sum(trial["status"] == status for trial in trials) for status in ("failed", "missing")}
    if not any(counts.values()):
        return []
    text = f"**Incomplete**: of {len(trials)} trials {counts['failed']} failed and {counts['missing']} were not run."
    errors = dict.fromkeys(trial["error"] for trial in trials if "error" in trial)
    return [text, *(["\n".join(f"- `{error}`" for error in errors)] if errors else [])]


def _provenance(results: Mapping[str, Any]) -> str:
    done = sum(trial["status"] == "done" for trial in results["trials"])
    versions = [f"{name} {', '.join(found)}" for name, found in results["versions"].items() if any(found)]
    lines = [
        f"- Study: `{results['study']}` with `{ordered(results['fields'])}`",
        f"- Trials: {done} finished of {len(results['trials'])}",
        f"- Cost: {duration(results['cost']['wall_seconds'])} in workers, "
        f"{duration(results['cost']['cpu_seconds'])} of processor time",
        f"- Versions: {'; '.join(versions)}; code `{results.get('code', 'unknown')}`",
        f"- Date: {results['date'][:10]}",
    ]
    return "\n".join(["## Cost and provenance", "", *lines])


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(4.25), duration(90), duration(7300)
    ('4.2 s', '1.5 min', '2.0 h')
    """
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
