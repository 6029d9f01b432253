"""Results: a sweep saved as one JSON file, and the page that is made from the file alone."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from mindgap.core import (
    Claim,
    InputError,
    Spec,
    Table,
    Trial,
    UnknownNameError,
    check_types,
    citation,
    expanded,
    ordered,
    plain,
    restored,
    validated,
    write_whole,
)
from mindgap.core.spec import REGISTRY
from mindgap.core.table import TINY
from mindgap.runs.store import StoredTrial
from mindgap.runs.sweep import Sweep
from mindgap.runs.trial_id import version_of
from mindgap.runs.work import now

SCHEMA = 1
_NEEDED: dict[str, Any] = {
    "study": str,
    "fields": dict[str, Any],
    "expected": dict[str, float],
    "trials": list[dict[str, Any]],
    "table": dict[str, Any],
    "versions": dict[str, list[str]],
    "cost": dict[str, float],
    "date": str,
}
_STATUS = Literal["done", "failed", "missing"]


@validated
def save_results(sweep: Sweep, path: str | os.PathLike[str]) -> Path:
    """Write a sweep to a JSON file: study, trials, records, table, versions and cost.

    Args:
        sweep: What :func:`sweep` returned, with at least one finished trial.
        path: The file, which is written whole or not at all.

    Returns:
        The path of the file.

    >>> import tempfile
    >>> from mindgap.runs import SerialExecutor, sweep
    >>> from mindgap.studies import CertificateCoverage
    >>> study = CertificateCoverage().tiny()
    >>> found = sweep(study, store=":memory:", executor=SerialExecutor(), progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load_results(save_results(found, f"{folder}/results.json"))["study"]
    'certificate-coverage'
    """
    return write_whole(
        path,
        json.dumps(plain(as_results(sweep)), indent=1, allow_nan=False, ensure_ascii=False) + "\n",
    )


def as_results(sweep: Sweep) -> dict[str, Any]:
    """Return what :func:`save_results` writes, as a dictionary."""
    rows = [row for row in sweep.rows if row is not None]
    return {
        "schema": SCHEMA,
        "study": sweep.study.name,
        "fields": sweep.study.parameters,
        "expected": dict(sweep.study.expected),
        "complete": sweep.complete,
        "tiny": sweep.study.is_tiny,
        "table": sweep.table.to_dict(),
        "trials": [_trial(trial, row) for trial, row in zip(sweep.trials, sweep.rows, strict=True)],
        "versions": {name: _distinct(rows, name) for name in ("mindgap", "torch", "python")},
        "code": version_of(sweep.study),
        "cost": {
            name: sum(getattr(row, name) for row in rows)
            for name in ("wall_seconds", "cpu_seconds")
        },
        "date": now(),
    }


@validated
def load_results(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the file that :func:`save_results` wrote.

    Args:
        path: The file.

    Returns:
        Its content, with the table as a dictionary under ``"table"``.
    """
    try:
        data = restored(expanded(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} must be a file of results, got: {error.strerror}. Check the path."
        ) from error
    except ValueError as error:
        raise InputError(
            f"{path} must be a JSON file of results, got: {error}. Save the sweep again."
        ) from error
    return checked_results(data, path)


def table_of(results: Mapping[str, Any]) -> Table:
    """Make the table inside results."""
    return Table.from_dict(results["table"])


def claims_of(results: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return the judged claims of results.

    Files that are older than claims hold none. Then the study judges the stored records; a study
    that has changed too much to read them, or is not installed, says nothing.

    Args:
        results: What :func:`load_results` returned.
    """
    if "claims" in results["table"]:
        return table_of(results).claims
    records = [
        (Trial(parameters=trial["parameters"], seed=trial["seed"]), trial["record"])
        for trial in results["trials"]
        if trial["status"] == "done" and "record" in trial
    ]
    study = _registered(results["study"])
    try:
        made: Any = None if study is None else study_of(results)
        return made.summarize(records).claims if made is not None and records else ()
    except Exception:  # records of another version of the study: anything may be missing in them
        return ()


def is_tiny(results: Mapping[str, Any]) -> bool:
    """Tell whether results are those of a study's quick form; older files do not say it.

    Args:
        results: What :func:`load_results` returned.
    """
    if "tiny" in results:
        return bool(results["tiny"])
    study: Any = study_of(results)
    return study is not None and bool(study.is_tiny)


def study_of(results: Mapping[str, Any]) -> Spec | None:
    """Make the study of results, with defaults for fields that it did not have or has no more.

    Args:
        results: What :func:`load_results` returned.

    Returns:
        The study; None if it is not installed.
    """
    cls = _registered(results["study"])
    if cls is None:
        return None
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in results["fields"].items()
        if name in known
    }
    made = cls()
    for name, value in fields.items():
        with contextlib.suppress(InputError):  # a value that is no longer allowed
            made = made.replace(**{name: value})
    return made


def _trial(trial: Trial, row: StoredTrial | None) -> dict[str, Any]:
    head = {"parameters": dict(trial.parameters), "seed": int(trial.seed)}
    if row is None:
        return head | {"status": "missing"}
    tail = {"record": row.record} if row.status == "done" else {"error": row.error}
    return (
        head
        | {"status": row.status, "wall_seconds": row.wall_seconds, "cpu_seconds": row.cpu_seconds}
        | tail
    )


def _distinct(rows: list[StoredTrial], name: str) -> list[str]:
    return sorted({getattr(row, name) for row in rows})


def checked_results(data: Any, path: str | os.PathLike[str] = "The mapping") -> dict[str, Any]:
    """Return results that have all that pages need, each of its type.

    Args:
        data: What may be results.
        path: Where it comes from, for the error.
    """
    missing = (
        [name for name in _NEEDED if name not in data]
        if isinstance(data, Mapping)
        else list(_NEEDED)
    )
    if missing:
        raise InputError(
            f"{path} must hold results of a sweep, got no {missing[0]!r} in it. Save the sweep "
            "again."
        )
    if data.get("schema") != SCHEMA:
        raise InputError(
            f"{path} must have schema {SCHEMA}, got {data.get('schema')!r}. Upgrade mindgap."
        )
    _check_content(data, path)
    return dict(data)


def _check_content(data: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    try:
        for name, hint in _NEEDED.items():
            check_types(data[name], hint, name)
        for k, trial in enumerate(data["trials"]):
            check_types(trial.get("status"), _STATUS, f"trials[{k}].status")
            check_types(trial.get("error", ""), str, f"trials[{k}].error")
        table = table_of(data)
        check_types(table, Table, "table")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path} must hold results as mindgap wrote them, got damaged ones ({error!s:.200}). "
            "Save the sweep again."
        ) from error
    if {len(row) for row in table.rows} - {len(table.columns)}:
        raise InputError(
            f"{path} must have a table with {len(table.columns)} cells in every row, got another "
            "number. Save the sweep again."
        )


@validated
def results_page(results: Mapping[str, Any]) -> str:
    """Write a Markdown page with the study's words, table, cost and provenance.

    Args:
        results: What :func:`load_results` returned.

    >>> import tempfile
    >>> from mindgap.runs import SerialExecutor, save_results, sweep
    >>> from mindgap.studies import CertificateCoverage
    >>> study, local = CertificateCoverage().tiny(), SerialExecutor()
    >>> found = sweep(study, store=":memory:", executor=local, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = load_results(save_results(found, f"{folder}/results.json"))
    >>> results_page(results).startswith(f"# {found.table.title}")
    True
    """
    table = table_of(checked_results(results))
    if not is_tiny(results):
        table = dataclasses.replace(table, claims=claims_of(results))
    elif TINY not in table.notes:
        table = table.stamped()
    parts = [
        f"# {table.title}",
        *_words(results["study"]),
        table.to_markdown(),
        *_expected(results["expected"]),
    ]
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
    from mindgap.core import find

    try:
        return find(name, "study")
    except (UnknownNameError, ImportError):
        return None


def _cites(study: type[Spec]) -> str:
    return f"After {', '.join(citation(key) for key in study.cites)}." if study.cites else ""


def _expected(expected: Mapping[str, Any]) -> list[str]:
    if not expected:
        return []
    return [
        "## The paper's numbers",
        "\n".join(f"- {name}: {value:g}" for name, value in expected.items()),
    ]


def _incomplete(trials: list[Mapping[str, Any]]) -> list[str]:
    counts = {
        status: sum(trial["status"] == status for trial in trials)
        for status in ("failed", "missing")
    }
    if not any(counts.values()):
        return []
    text = (
        f"**Incomplete**: of {len(trials)} trials {counts['failed']} failed and "
        f"{counts['missing']} were not run."
    )
    errors = dict.fromkeys(trial["error"] for trial in trials if "error" in trial)
    return [text, *(["\n".join(f"- `{error}`" for error in errors)] if errors else [])]


def _provenance(results: Mapping[str, Any]) -> str:
    done = sum(trial["status"] == "done" for trial in results["trials"])
    versions = [
        f"{name} {', '.join(found)}" for name, found in results["versions"].items() if any(found)
    ]
    lines = [
        f"- Study: `{results['study']}` with `{ordered(results['fields'])}`",
        f"- Trials: {done} finished of {len(results['trials'])}",
        f"- Cost: {duration(results['cost']['wall_seconds'])} in workers, "
        f"{duration(results['cost']['cpu_seconds'])} of CPU time",
        f"- Versions: {'; '.join(versions)}; code `{results.get('code', 'unknown')}`",
        f"- Date: {results['date'][:10]}",
    ]
    return "\n".join(["## Cost and provenance", "", *lines])


def duration(seconds: float) -> str:
    """Write seconds in words.

    >>> duration(4.25), duration(90), duration(7300)
    ('4.2 s', '1.5 min', '2.0 h')
    """
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
