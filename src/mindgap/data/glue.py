"""GLUE tasks on pairs of sentences: RTE, MRPC and STS-B."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mindgap.core import validated
from mindgap.data.damage import damaged, reading
from mindgap.data.dataset import DataSet, Texts, dataset
from mindgap.data.download import Remote
from mindgap.data.store import cache_folder, find, obtain, obtain_from_archive
from mindgap.data.text.vocabulary import Vocabulary

HOST = "https://dl.fbaipublicfiles.com/"
SOURCE = "Wang et al., GLUE (2019)"
MRPC_CORPUS = "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89"
MRPC_IDENTIFIERS = "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7"


@dataclass(frozen=True)
class Task:
    """One GLUE task: its folder, columns, classes (None for regression) and numbers of rows."""

    name: str
    folder: str
    sentences: tuple[str, str]
    label: str
    classes: tuple[str, ...] | None
    rows: int
    dev_rows: int
    source: str
    sha256: str = ""  # of its archive; MRPC has none


RTE = Task(
    "rte",
    "RTE",
    ("sentence1", "sentence2"),
    "label",
    ("entailment", "not_entailment"),
    2490,
    277,
    "RTE-1, 2, 3, 5",
    "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee",
)
MRPC = Task(
    "mrpc",
    "MRPC",
    ("#1 String", "#2 String"),
    "Quality",
    ("0", "1"),
    3668,
    408,
    "Dolan and Brockett (2005)",
)
STSB = Task(
    "stsb",
    "STS-B",
    ("sentence1", "sentence2"),
    "score",
    None,
    5749,
    1500,
    "Cer et al. (2017)",
    "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85",
)


@dataset("rte")
@validated
def rte(vocabulary: int = 5000, length: int = 128) -> DataSet:
    """2,490 + 277 pairs of sentences: does the first entail the second?

    The test part is GLUE's development part.

    Args:
        vocabulary: Number of token numbers, special ones included.
        length: Number of tokens per sample.
    """
    return _load(RTE, vocabulary, length)


@dataset("mrpc")
@validated
def mrpc(vocabulary: int = 5000, length: int = 128) -> DataSet:
    """3,668 + 408 pairs of sentences: do they mean the same?

    The test part is GLUE's development part.

    Args:
        vocabulary: Number of token numbers, special ones included.
        length: Number of tokens per sample.
    """
    return _load(MRPC, vocabulary, length)


@dataset("stsb")
@validated
def stsb(vocabulary: int = 5000, length: int = 128) -> DataSet:
    """5,749 + 1,500 pairs of sentences with their similarity from 0 to 5.

    The test part is GLUE's development part.

    Args:
        vocabulary: Number of token numbers, special ones included.
        length: Number of tokens per sample.
    """
    return _load(STSB, vocabulary, length)


def read_tsv(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Read the named columns; quotes are ordinary characters, and only a newline ends a row."""
    with reading(path, "a tab-separated file in UTF-8 below a header line"):
        lines = path.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
    header, *rows = (line.removesuffix("\r").split("\t") for line in lines)
    missing = [column for column in columns if column not in header]
    if missing:
        raise damaged(
            path, f"a tab-separated file with the column {missing[0]!r}", f"the columns {header}"
        )
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise damaged(
                path,
                f"a file of {len(header)} columns in every line",
                f"{len(row)} in line {number}",
            )
    places = [header.index(column) for column in columns]
    return [tuple(row[place] for place in places) for row in rows]


def _load(task: Task, vocabulary: int, length: int) -> DataSet:
    train, dev = _paths(task)
    texts, targets = _part(task, train, task.rows)
    dev_texts, dev_targets = _part(task, dev, task.dev_rows)
    known = Vocabulary.of(texts, vocabulary)
    return DataSet(
        task.name,
        *(known.encode(texts, length), targets, known.encode(dev_texts, length), dev_targets),
        task="regression" if task.classes is None else "classification",
        classes=task.classes,
        source=f"{SOURCE}; {task.source}.",
        texts=texts,
        test_texts=dev_texts,
        facts={"vocabulary": len(known)},
    )


def _part(task: Task, path: Path, rows: int) -> tuple[Texts, Tensor]:
    cells = read_tsv(path, (*task.sentences, task.label))
    if len(cells) != rows:
        raise damaged(path, f"a file of {rows} rows", f"{len(cells)}")
    return tuple(row[:2] for row in cells), _targets(task, path, [row[2] for row in cells])


def _targets(task: Task, path: Path, labels: list[str]) -> Tensor:
    if task.classes is None:
        with reading(path, f"a file with numbers in the column {task.label}"):
            return torch.tensor([[float(label)] for label in labels])
    with reading(path, f"a file with {' or '.join(task.classes)} in the column {task.label}"):
        return torch.tensor([task.classes.index(label) for label in labels])


def _paths(task: Task) -> tuple[Path, Path]:
    train, dev = (f"glue/{task.folder}/{part}.tsv" for part in ("train", "dev"))
    if task is not MRPC:
        archive = Remote(f"{HOST}glue/data/{task.folder}.zip", sha256=task.sha256)
        obtain_from_archive([train, dev], archive, "glue")
    elif find(train) is None or find(dev) is None:
        _split_mrpc(cache_folder() / train, cache_folder() / dev)
    return obtain(train), obtain(dev)


def _split_mrpc(train: Path, dev: Path) -> None:
    """Split the original corpus, which GLUE may not host, by GLUE's published identifiers."""
    corpus = obtain(
        "glue/MRPC/msr_paraphrase_train.txt",
        Remote(f"{HOST}senteval/senteval_data/msr_paraphrase_train.txt", sha256=MRPC_CORPUS),
    )
    chosen = obtain(
        "glue/MRPC/dev_ids.tsv",
        Remote(f"{HOST}glue/data/mrpc_dev_ids.tsv", sha256=MRPC_IDENTIFIERS),
    )
    with reading(corpus, "a tab-separated file in UTF-8"):
        header, *rows = corpus.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
        identifiers = set(chosen.read_text(encoding="utf-8").split("\n"))
        held = ["\t".join(row.split("\t")[1:3]) in identifiers for row in rows]
    for path, wanted in ((train, False), (dev, True)):
        kept = [row for row, is_held in zip(rows, held, strict=True) if is_held is wanted]
        _write(path, "\n".join([header, *kept]) + "\n")


def _write(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + f".{os.getpid()}.part")
    part.write_bytes(text.encode())
    part.replace(path)
