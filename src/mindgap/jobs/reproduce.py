"""reproduce: list the tables and figures of the documents, and run the studies that are missing."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mindgap.core import InputError, MindgapError, Study, catalog, expanded, find, plain, validated
from mindgap.core.errors import shown
from mindgap.core.files import check_writable
from mindgap.report.pages.claim import judge_results
from mindgap.report.pages.reproduce import JUDGED, OWN, Reproduction, Row, State
from mindgap.runs import load_results, save_results, sweep
from mindgap.runs.executors import AnyExecutor, as_executor, at_least_one
from mindgap.runs.results import duration, is_tiny
from mindgap.runs.store import Store
from mindgap.studies.documents import DOCUMENTS, document_of

IN_THE_REPOSITORY, ELSEWHERE = Path("docs") / "results", Path("mindgap-results")
Place = tuple[str, str, str, str]  # document, item, what it is about, study


@validated
def reproduce(
    studies: Sequence[str] | None = None,
    *,
    document: str | None = None,
    missing: bool = False,
    again: bool = False,
    run: bool = True,
    tiny: bool = False,
    results: str | os.PathLike[str] | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    executor: AnyExecutor | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Reproduction:
    """List what the documents publish with state and verdict, and run the studies that are missing.

    Without ``studies``, ``document``, ``missing`` or ``again`` nothing is run. Trials are kept in a
    store as they finish, so that an interrupted run resumes where it stopped. A study that cannot
    be run, for want of data, is named with the reason; the others go on.

    Args:
        studies: Names of studies; all of a document, or all there are, unless given.
        document: The document whose studies are meant, by its name or the letter of its methods.
        missing: List and run only studies without a kept result.
        again: Run those with a kept result too.
        run: Whether to run anything; False only lists.
        tiny: Run versions of the studies that take seconds, and judge nothing.
        results: The folder of results files, one per study and named after it. By default
            ``docs/results`` if it holds any, else ``mindgap-results``.
        store: Where finished trials are kept, as in :func:`mindgap.sweep`.
        executor: Where trials run; worker processes of this machine unless given.
        workers: Number of worker processes; one per core unless given.
        progress: Tell on standard error what runs and how long it may take.

    Returns:
        The rows, by document. Print it, show it in a notebook, or ``save`` it.

    >>> found = reproduce(document="darc", results="no-such-folder", run=False)
    >>> found.rows[0].state, len({row.study for row in found.rows}) > 5
    ('never run', True)
    """
    if studies is not None and not len(studies):
        raise InputError("studies must name at least one study, got none. Leave it out for all.")
    if executor is not None:
        as_executor(executor)
    if workers is not None:
        at_least_one("workers", workers)
    folder, places = _folder(results), _chosen(studies or (), document)
    rows = [row for row in _rows(folder, places) if not missing or row.state not in JUDGED]
    if not run or not (studies or document or missing or again):
        return Reproduction(folder=str(folder), rows=tuple(rows))
    wanted = [row.study for row in rows if row.study and (again or row.state not in JUDGED)]
    ran, failed = _run_all(
        list(dict.fromkeys(wanted)),
        rows,
        folder,
        tiny=tiny,
        progress=progress,
        store=store,
        executor=executor,
        workers=workers,
    )
    shown = [(row.document, row.item, row.about, row.study) for row in rows]
    now = _rows(folder, shown)
    return Reproduction(folder=str(folder), rows=tuple(now), ran=tuple(ran), failed=failed)


INTERRUPTED = "It was interrupted; finished trials are kept."


def _run_all(
    names: Sequence[str],
    rows: Sequence[Row],
    folder: Path,
    *,
    tiny: bool,
    progress: bool,
    workers: int | None,
    **where: Any,
) -> tuple[list[str], dict[str, str]]:
    """Run studies one after the other: the finished ones, and why the others are not."""
    _make(folder)
    ran, failed = list[str](), dict[str, str]()
    for place, name in enumerate(names):
        if progress:
            sys.stderr.write(_outlook(names[place:], rows, len(names), workers) + "\n")
        made: Any = find(name, "study")()
        made = made.tiny() if tiny else made
        reason = _run(made, folder, workers=workers, progress=progress, **where)
        if reason is None:
            ran.append(name)
        else:
            failed[name] = reason
        if reason == INTERRUPTED:
            break
    return ran, failed


def _make(folder: Path) -> None:
    """See that results can be kept, before hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error
    check_writable(folder / "results.json")


def _unusable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"results must be a folder that can be made, got {shown(str(folder))} ({error.strerror}). "
        "Choose another."
    )


def _run(study: Study, folder: Path, **settings: Any) -> str | None:
    """Sweep a study and keep its results; return why that was not possible, or None."""
    try:
        swept = sweep(study, **settings)
        if swept.complete:
            save_results(swept, folder / f"{study.name}.json")
            return None
    except MindgapError as error:
        return str(error)
    if swept.interrupted:
        return INTERRUPTED
    return f"{swept.failed} of {len(swept.trials)} trials failed: {swept.failures[0][1].error}"


def _folder(results: str | os.PathLike[str] | None) -> Path:
    if results is not None:
        if not os.fspath(results):
            raise InputError(
                "results must name a folder, got an empty text. Leave it out or name one."
            )
        folder = expanded(results)
        try:
            nearest = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        except OSError as error:
            raise _unusable(folder, error) from error
        if nearest.exists() and not nearest.is_dir():
            raise InputError(
                f"results must be a folder, got the file {str(nearest)!r}. Name the folder of it."
            )
        return folder
    there = {path.stem for path in IN_THE_REPOSITORY.glob("*.json")}
    return IN_THE_REPOSITORY if there & set(catalog("study")) else ELSEWHERE


def _chosen(studies: Sequence[str], document: str | None) -> list[Place]:
    names = {find(name, "study").name for name in studies}
    home = document if document in (None, OWN.name) else document_of(str(document)).name
    return [
        place
        for place in _places()
        if (not names or place[3] in names) and home in (None, place[0])
    ]


def _places() -> list[Place]:
    """Every item with its studies; items without a study, and studies without an item, included."""
    users: dict[str, list[str]] = {}
    own = list[Place]()
    for name, study in catalog("study").items():
        items = getattr(study, "reproduces", ())
        for item in items:
            users.setdefault(item, []).append(name)
        if not items:
            own.append((OWN.name, ", ".join(study.method), study.words().summary, name))
    listed = [
        (document.name, item, about, name)
        for document in DOCUMENTS
        for item, about in document.items.items()
        for name in users.get(f"{document.name}: {item}", [""])
    ]
    return listed + own


def _rows(folder: Path, places: Sequence[Place]) -> list[Row]:
    names = {name for *_, name in places if name}
    facts = {name: _facts(folder / f"{name}.json") for name in names}
    return [
        Row(document=document, item=item, about=about, study=name, **facts.get(name, {}))
        for document, item, about, name in places
    ]


def _facts(path: Path) -> dict[str, Any]:
    """What a results file says: state, verdict, cost and date."""
    if not path.is_file():
        return {"state": "never run"}
    results = load_results(path)
    state, verdict = _state(results), judge_results(results)
    judged = {"kind": verdict.kind, "verdict": verdict.label} if state in JUDGED else {}
    return {
        "state": state,
        **judged,
        "cpu_seconds": float(results["cost"]["cpu_seconds"]),
        "date": results["date"][:10],
        "path": str(path.absolute()),
    }


def _state(results: dict[str, Any]) -> State:
    if any(trial["status"] != "done" for trial in results["trials"]):
        return "incomplete"
    study: Any = find(results["study"], "study")()
    if results["fields"] == plain(study.parameters):
        return "kept"
    return "tiny only" if is_tiny(results) else "other settings"


def _outlook(left: Sequence[str], rows: Sequence[Row], total: int, workers: int | None) -> str:
    """Say which study runs now, and how long it and the others took last time."""
    costs = {row.study: row.cpu_seconds for row in rows if row.cpu_seconds and row.state in JUDGED}
    count = workers or os.cpu_count() or 1
    own = costs.get(left[0])
    took = "it has no kept cost" if own is None else f"it took {duration(own)} of CPU time"
    known = [costs[name] or 0.0 for name in left if name in costs]
    unknown = len(left) - len(known)
    rest = [
        *([f"about {duration(sum(known) / count)} left with {count} workers"] if known else []),
        *([f"{unknown} of unknown cost"] if unknown and total > 1 else []),
    ]
    return f"{total - len(left) + 1} of {total}: {left[0]}; {'; '.join([took, *rest])}"
