"""What was reproduced: the tables, figures and claims of the documents, as text, page and JSON."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from mindgap.core import Advice, InputError, Table, citation, write_whole
from mindgap.core.references import bibliography
from mindgap.report import text as terminal, wording
from mindgap.report.pages.claim import KINDS
from mindgap.report.parts import Verdict
from mindgap.runs.results import duration
from mindgap.studies.documents import DOCUMENTS, Document

State = Literal["kept", "other settings", "tiny only", "incomplete", "never run", "no study"]
STATES: Mapping[State, str] = {
    "kept": "a result of the study's default settings",
    "other settings": "a result of other settings than the study's defaults now",
    "tiny only": "a result of the quick form, which judges nothing",
    "incomplete": "some trials failed or are missing",
    "never run": "no results file",
    "no study": "no study reproduces it with its default settings",
}
JUDGED: tuple[State, ...] = ("kept", "other settings")
OWN = Document(
    name="own",
    letters="",
    title="Experiments of our own, which reproduce no table or figure",
    cites=(),
    items={},
)
COLUMNS = ("table, figure or claim", "study", "state", "CPU time", "date", "verdict")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A table, figure or claim of a document, and the study that reproduces it.

    Args:
        document: The name of the document; ``"own"`` for an experiment of our own.
        item: Its name in the document, or the ids of the methods of an own experiment.
        about: What it shows.
        study: The study; empty if there is none.
        state: What is known of it.
        kind: Which verdict the result has, in one word; empty without a judged result.
        verdict: The verdict in words.
        cpu_seconds: What the result cost; None without one.
        date: The day of the result.
        path: The results file; empty without one.
    """

    document: str
    item: str
    about: str
    study: str = ""
    state: State = "no study"
    kind: str = ""
    verdict: str = ""
    cpu_seconds: float | None = None
    date: str = ""
    path: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of the columns."""
        cost = "" if self.cpu_seconds is None else duration(self.cpu_seconds)
        words = (self.item, self.study, self.state, cost, self.date, self.verdict)
        return tuple(word or "—" for word in words)

    @property
    def tone(self) -> str:
        """The color of the verdict."""
        tone = KINDS[self.kind][1] if self.kind in KINDS else "neutral"
        return "dull" if tone == "neutral" else tone


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Which tables, figures and claims are reproduced; ``print`` lists them by document.

    Args:
        folder: Where results were looked for.
        rows: One per item and study.
        ran: The studies that were run now and are kept.
        failed: The studies that were run now and could not be finished, each with the reason.
    """

    folder: str
    rows: tuple[Row, ...]
    ran: tuple[str, ...] = ()
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def by_document(self) -> list[tuple[Document, list[Row]]]:
        """Group the rows; experiments of our own come last."""
        grouped = [
            (document, [row for row in self.rows if row.document == document.name])
            for document in (*DOCUMENTS, OWN)
        ]
        return [(document, rows) for document, rows in grouped if rows]

    @property
    def verdict(self) -> Verdict:
        """How much is reproduced, in words."""
        return judge(self)

    def __str__(self) -> str:
        told = terminal.verdict(self.verdict, terminal.room_of(None))
        tables = [
            str(Table(title=heading(document), columns=COLUMNS, rows=tuple(r.cells for r in rows)))
            for document, rows in self.by_document()
        ]
        seen = {row.state for row in self.rows} - {"kept"}
        notes = [f"· {state}: {words}." for state, words in STATES.items() if state in seen]
        parts = ["\n".join(told), *tables, "\n".join(notes)]
        return "\n\n".join(filter(None, parts)).replace("``", "`")

    def _repr_html_(self) -> str:
        from mindgap.report import html

        return html.framed(page(self), height=800)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        return {
            "folder": self.folder,
            "verdict": self.verdict.headline,
            "ran": list(self.ran),
            "failed": dict(self.failed),
            "rows": [dataclasses.asdict(row) for row in self.rows],
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a page (.html) or all rows (.json).

        Args:
            path: The file to write.
        """
        ending = Path(path).suffix.lower()
        if ending == ".json":
            return write_whole(path, json.dumps(self.to_dict(), indent=1, ensure_ascii=False))
        if ending not in (".html", ".htm"):
            raise InputError(f"The path must end in .html or .json, got {str(path)!r}. Rename it.")
        return write_whole(path, page(self, Path(path).absolute().parent))


def heading(document: Document) -> str:
    """Write the title of a document with its authors."""
    cited = ", ".join(citation(key) for key in document.cites)
    return f"{document.title} ({cited})" if cited else document.title


def judge(found: Reproduction) -> Verdict:
    """Count the items with a result, and the verdicts on the studies behind them.

    Args:
        found: The rows, of which those of documents count.
    """
    listed = [row for row in found.rows if row.document != OWN.name]
    items = dict.fromkeys((row.document, row.item) for row in listed)
    done = {(row.document, row.item) for row in listed if row.state in JUDGED}
    kinds = {row.study: row.kind for row in listed if row.kind}
    return Verdict(
        kind="reproduction",
        label=f"{list(kinds.values()).count('reproduced')} of {len(kinds)} reproduced",
        tone="neutral",
        headline=f"{len(done)} of {len(items)} tables, figures and claims have a result."
        if items
        else f"{sum(row.state in JUDGED for row in found.rows)} of "
        f"{wording.count(len(found.rows), 'experiment')} of our own have a result.",
        sentences=tuple(_sentences(found, kinds)),
        advice=tuple(_advice(found)),
    )


def _sentences(found: Reproduction, kinds: Mapping[str, str]) -> list[str]:
    files = {row.path for row in found.rows if row.path}
    studies = {row.study for row in found.rows if row.study}
    told = [f"``{found.folder}`` holds results of {len(files)} of {len(studies)} studies listed."]
    counts = [
        f"{list(kinds.values()).count(kind)} {label.lower()}"
        for kind, (label, *_) in KINDS.items()
        if kind in kinds.values()
    ]
    if counts:
        told.append(f"Verdicts on the studies behind them: {', '.join(counts)}.")
    cost = {row.study: row.cpu_seconds for row in found.rows if row.cpu_seconds is not None}
    if cost:
        told.append(f"All results together cost {duration(sum(cost.values()))} of CPU time.")
    told += [f"Not finished: {name}. {reason}" for name, reason in found.failed.items()]
    return told


def _advice(found: Reproduction) -> list[Advice]:
    missing = {row.study for row in found.rows if row.study and row.state not in JUDGED}
    steps = [Advice(text="Read a verdict with its controls: ``mindgap report FILE -o page.html``.")]
    if missing:
        steps.insert(0, Advice(text="Run ``mindgap reproduce --missing`` for those never run."))
    return steps


def page(found: Reproduction, folder: Path | None = None) -> str:
    """Return the page as text.

    Args:
        found: What :func:`mindgap.reproduce` returned.
        folder: Where the page goes, for links to results files; none are made if None.
    """
    from mindgap.report import html

    groups = [
        (
            document,
            heading(document),
            _address(document),
            [(row, _link(row, folder)) for row in rows],
        )
        for document, rows in found.by_document()
    ]
    return html.render(
        "reproduce.html",
        found=found,
        verdict=found.verdict,
        groups=groups,
        columns=COLUMNS,
        states=STATES,
    )


def _address(document: Document) -> str:
    urls = [bibliography()[key].get("url", "") for key in document.cites]
    return next(filter(None, urls), "")


def _link(row: Row, folder: Path | None) -> str:
    if not row.path or folder is None:
        return ""
    return Path(os.path.relpath(row.path, folder)).as_posix()
