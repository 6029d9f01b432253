"""Python blocks of the pages on methods run, with a trained network as ``subject``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mindgap

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    *("conditioning", "curvature", "decomposition", "expressivity", "initialization"),
    *("landscapes", "layers", "minima", "monitor", "norms", "overfitting"),
)
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(
            r"^```python\n(.*?)^```$",
            (DOCS / f"{page}.md").read_text(encoding="utf-8"),
            re.M | re.S,
        )
    )
]


@pytest.fixture(scope="module")
def subject() -> mindgap.Subject:
    data = mindgap.data.digits()
    recipe = mindgap.Recipe(
        model=lambda: mindgap.nets.MLP(widths=(64, 16, 16, 10)),
        train=(data.inputs[:300], data.targets[:300]),
        test=data.test,
        epochs=5,
    )
    return mindgap.fit(recipe).subject()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(
    block: str, subject: mindgap.Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train = (subject.train.inputs[0], subject.train.targets)
    names = {"subject": subject, "model": subject.model, "train": train, "inputs": train[0]}
    exec(compile(block, "page", "exec"), names)
