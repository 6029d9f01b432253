"""GLUE tasks from files in the official format, and from damaged ones."""

import dataclasses
import io
import zipfile
from hashlib import sha256

import pytest
import torch
from data_files import write

from mindgap.core.errors import DataUnavailableError
from mindgap.data import glue, mrpc, rte, stsb
from mindgap.data.glue import read_tsv


def rte_file(rows):
    lines = [
        f'{i}\tA "quote number {i}.\tB\u2028 {i}?\t{("not_" if i % 3 else "") + "entailment"}'
        for i in range(rows)
    ]
    return "\n".join(["index\tsentence1\tsentence2\tlabel", *lines, ""]).encode()


def stsb_file(rows):
    head = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    return "\n".join(
        [head, *(f"{i}\tg\tf\ty\to\ts\ts\tOne {i}\tTwo {i}\t{i % 6}.500" for i in range(rows)), ""]
    ).encode()


def mrpc_rows(rows):
    return [f"{i % 2}\t{1000 + i}\t{2000 + i}\tfirst {i}\tsecond {i}" for i in range(rows)]


MRPC_HEAD = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"


def test_rte(folder):
    write(folder / "glue/RTE/train.tsv", rte_file(2490))
    write(folder / "glue/RTE/dev.tsv", rte_file(277))
    data = rte(length=16)
    assert (len(data), len(data.test_targets)) == (2490, 277)
    assert data.texts[5] == ('A "quote number 5.', "B\u2028 5?")
    assert data.targets[:4].tolist() == [0, 1, 1, 0]
    assert data.classes == ("entailment", "not_entailment")
    assert data.inputs.shape == (2490, 16)
    assert int(data.inputs.max()) < data.facts["vocabulary"]
    chosen = data.subset(100, seed=1)
    assert len(chosen.texts) == 100
    assert torch.bincount(chosen.targets).tolist() == [33, 67]


def test_stsb_is_a_regression(folder):
    write(folder / "glue/STS-B/train.tsv", stsb_file(5749))
    write(folder / "glue/STS-B/dev.tsv", stsb_file(1500))
    data = stsb(length=8)
    assert data.task == "regression"
    assert data.targets.shape == (5749, 1)
    assert data.targets[:3, 0].tolist() == [0.5, 1.5, 2.5]


def test_mrpc(folder):
    write(folder / "glue/MRPC/train.tsv", "\n".join([MRPC_HEAD, *mrpc_rows(3668), ""]).encode())
    write(
        folder / "glue/MRPC/dev.tsv",
        "\n".join(["\ufeff" + MRPC_HEAD, *mrpc_rows(408), ""]).encode(),
    )
    data = mrpc(length=8)
    assert data.texts[1] == ("first 1", "second 1")
    assert data.targets[:3].tolist() == [0, 1, 0]


def test_mrpc_is_split_from_the_original_corpus(host, monkeypatch, cache):
    rows = mrpc_rows(3668 + 408)
    held = set(range(0, 4080, 10))
    identifiers = [f"{1000 + i}\t{2000 + i}" for i in sorted(held)]
    host.files["senteval/senteval_data/msr_paraphrase_train.txt"] = "\n".join(
        ["\ufeff" + MRPC_HEAD, *rows, ""]
    ).encode()
    host.files["glue/data/mrpc_dev_ids.tsv"] = ("\n".join(identifiers) + "\n").encode()
    monkeypatch.setattr(glue, "HOST", host.url)
    for name, content in zip(("MRPC_CORPUS", "MRPC_IDENTIFIERS"), host.files.values(), strict=True):
        monkeypatch.setattr(glue, name, sha256(content).hexdigest())
    data = mrpc(length=8)
    assert (len(data), len(data.test_targets)) == (3668, 408)
    assert data.test_texts[1] == ("first 10", "second 10")
    assert not list((cache / "glue/MRPC").glob("*.part"))


def test_rte_from_the_official_archive(host, monkeypatch):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("RTE/train.tsv", rte_file(2490))
        archive.writestr("RTE/dev.tsv", rte_file(277))
    host.files["glue/data/RTE.zip"] = packed.getvalue()
    monkeypatch.setattr(glue, "HOST", host.url)
    with pytest.raises(DataUnavailableError, match=r"RTE\.zip must have the sha256 checksum 6bf"):
        rte(length=8)
    known = dataclasses.replace(glue.RTE, sha256=sha256(packed.getvalue()).hexdigest())
    monkeypatch.setattr(glue, "RTE", known)
    assert len(rte(length=8)) == 2490


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (rte_file(2490)[:-16], "must be a file of 4 columns in every line, got 3 in line 2491."),
        (rte_file(2489), "must be a file of 2490 rows, got 2489."),
        (b"", "must be a tab-separated file with the column 'sentence1', got the columns ['']."),
        (
            b"\xff\xfe",
            "must be a tab-separated file in UTF-8 below a header line, got a damaged file",
        ),
        (
            rte_file(2490).replace(b"\tentailment", b"\tmaybe", 1),
            "with entailment or not_entailment in the column label",
        ),
    ],
)
def test_damaged(folder, content, text):
    path = write(folder / "glue/RTE/train.tsv", content)
    write(folder / "glue/RTE/dev.tsv", rte_file(277))
    with pytest.raises(DataUnavailableError) as caught:
        rte()
    assert str(path) in str(caught.value)
    assert text in str(caught.value)


def test_offline():
    for load in (rte, mrpc, stsb):
        with pytest.raises(
            DataUnavailableError, match=r"must be downloaded from https://dl.fbaipublicfiles.com/"
        ):
            load()


def test_rows_end_at_newlines_only(tmp_path):
    path = write(tmp_path / "x.tsv", 'a\tb\r\none\x85\u2028two\t"three\r\n'.encode())
    assert read_tsv(path, ["b", "a"]) == [('"three', "one\x85\u2028two")]
