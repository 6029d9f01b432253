"""Ids: equal for equal work, different once a parameter, a seed or a line of code that is used differs."""

from __future__ import annotations

import enum
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mindgap.core.errors import InputError
from mindgap.core.plain import canonical, restored
from mindgap.core.study import Trial
from mindgap.runs import trial_id

code = importlib.import_module("mindgap.runs.trial_id")


def identity(toy, parameters=None, seed=0, **fields) -> str:
    return trial_id(toy.ToyStudy(**fields), Trial(parameters=parameters or {"a": 1}, seed=seed))


def test_equal_values_give_equal_ids(toy):
    first = identity(toy, {"a": (1, 2.5), "b": 3})
    assert first == identity(toy, {"b": np.int64(3), "a": [torch.tensor(1), np.float64(2.5)]})
    assert len(first) == 32


def test_everything_that_matters_changes_the_id(toy):
    ids = [
        identity(toy),
        identity(toy, seed=1),
        identity(toy, count=7),
        *(
            identity(toy, {"a": value})
            for value in (1.0, True, "1", None, [1], {"b": 1}, float("nan"), 0.1, 0.1 + 1e-17 * 8)
        ),
    ]
    assert len(set(ids)) == len(ids)


def test_the_same_in_another_process(toy, tmp_path):
    program = (
        "import toy_study; from mindgap.core.study import Trial; from mindgap.runs import "
        "trial_id; "
        "print(trial_id(toy_study.ToyStudy(), Trial(parameters={'x': 0.1}, seed=3)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == trial_id(toy.ToyStudy(), Trial(parameters={"x": 0.1}, seed=3))


def test_parameters_must_be_plain(toy):
    for bad in (object(), {1, 2}, 1j, lambda: 0):
        with pytest.raises(InputError, match=r"trial parameter\.a must be plain data"):
            identity(toy, {"a": bad})
    with pytest.raises(InputError, match="keys of trial parameter"):
        identity(toy, {("a", "b"): 1})
    with pytest.raises(InputError, match="must be a mapping"):
        trial_id(toy.ToyStudy(), Trial(parameters=[1]))


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, "3"])
def test_seeds_are_integers_of_64_bits(toy, seed):
    with pytest.raises(InputError, match="seed of a trial must be an integer"):
        identity(toy, seed=seed)


def test_plain_data_goes_there_and_back():
    class Color(enum.Enum):
        RED = "red"

    value = {
        "p": Path("x"),
        "c": Color.RED,
        "t": torch.ones(2),
        "n": np.float32(0.5),
        "i": -float("inf"),
        "u": "ü",
    }
    assert restored(canonical(value)) == {
        "p": "x",
        "c": "red",
        "t": [1, 1],
        "n": 0.5,
        "i": -float("inf"),
        "u": "ü",
    }


def rewrite(module, old: str, new: str) -> None:
    path = Path(module.__file__)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_edit_of_the_study_changes_the_id(toy):
    before = identity(toy)
    rewrite(toy, "number**2", "number**3")
    assert identity(toy) != before


def test_words_and_comments_do_not(toy):
    before = identity(toy)
    rewrite(toy, '"""A toy."""', '"""Another word."""\n# and a remark')
    rewrite(toy, "Squares of small numbers.", "The squares.")
    assert identity(toy) == before


def test_a_file_beside_the_study_counts(toy, tmp_path):
    before = identity(toy)
    (tmp_path / "toy_helper.py").write_text("A = 1\n")
    assert identity(toy) == before
    rewrite(toy, "import time", "import time\nimport toy_helper")
    with_helper = identity(toy)
    (tmp_path / "toy_helper.py").write_text("A = 2\n")
    assert len({before, with_helper, identity(toy)}) == 3


def test_a_file_that_was_missing_counts_as_soon_as_it_is_there(toy, tmp_path):
    rewrite(
        toy, "import time", "import time\ntry:\n    import toy_helper\nexcept ImportError: pass"
    )
    before = identity(toy)
    assert identity(toy) == before
    (tmp_path / "toy_helper.py").write_text("A = 1\n")
    assert identity(toy) != before


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package in the place of mindgap."""
    files = {
        "__init__.py": "from little.unused import nothing\n",
        "unused.py": "nothing = 0\n",
        "ops/__init__.py": "",
        "ops/norms.py": "from little.ops import shared\n",
        "ops/shared.py": "x = 1\n",
        "ops/other.py": "x = 1\n",
        "measures/__init__.py": "import importlib\n",
        "measures/margin.py": "from ..ops.other import x\n",
        "study.py": "def run():\n    from little.ops.norms import x\n",
        "wide.py": "from .measures import Margin\n",
    }
    for name, text in files.items():
        path = tmp_path / "little" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "little" / "__init__.py").write_text("")
    importlib.import_module("little")
    (tmp_path / "little" / "__init__.py").write_text(files["__init__.py"])
    yield tmp_path / "little"
    for name in [name for name in sys.modules if name.partition(".")[0] == "little"]:
        del sys.modules[name]


def test_only_what_is_imported_is_followed_and_nothing_is_imported(package):
    assert set(code.reachable("little.study")) == {
        "little.study",
        "little.ops.norms",
        "little.ops.shared",
    }
    assert "little.study" not in sys.modules


def test_a_package_counts_with_its_whole_folder(package):
    found = set(code.reachable("little.wide"))
    assert found == {"little.wide", "little.measures", "little.measures.margin", "little.ops.other"}


def test_an_edit_in_a_used_module_changes_the_version_and_one_elsewhere_does_not(package):
    before = code.code_version("little.study")
    (package / "ops" / "other.py").write_text("x = 2\n")
    (package / "unused.py").write_text("nothing = 2\n")
    assert code.code_version("little.study") == before
    (package / "ops" / "shared.py").write_text("x = 22\n")
    assert code.code_version("little.study") != before


def test_mindgap_itself_is_followed(toy):
    found = code.reachable("toy_study")
    assert {"toy_study", "mindgap.core.study", "mindgap.core.spec", "mindgap.core.table"} <= set(
        found
    )
    assert not any(name.startswith(("mindgap.runs", "mindgap.nets", "torch")) for name in found)


@pytest.mark.parametrize(
    "line",
    [
        "from mindgap.core import find",
        "from mindgap.core.registry import catalog",
        "from mindgap.core import registry",
        "import mindgap.core.registry",
    ],
)
def test_looking_specs_up_by_name_depends_on_all_of_them(line, toy):
    found = set(code.reachable("toy_study"))
    assert "mindgap.measures.basic.gap" not in found
    rewrite(toy, "import time", f"import time\n{line}")
    found = set(code.reachable("toy_study"))
    assert {"mindgap.measures.basic.gap", "mindgap.bounds.kl_inverse"} <= found
    assert "mindgap.remedies.perturbation.dropout" in found


def test_loading_data_by_name_depends_on_all_data_sets(toy):
    rewrite(toy, "import time", "import time\nfrom mindgap.data import load")
    assert {"mindgap.data.mnist", "mindgap.data.catalog"} <= set(code.reachable("toy_study"))


def test_a_lazy_name_leads_to_the_file_that_defines_it(toy):
    rewrite(toy, "import time", "import time\nfrom mindgap.core import require")
    found = set(code.reachable("toy_study"))
    assert "mindgap.core.errors" in found
    assert "mindgap.core.certificate" not in found


def test_broken_source_is_hashed_as_it_is(package):
    (package / "study.py").write_text("def run(:\n")
    before = code.code_version("little.study")
    (package / "study.py").write_text("def run(::\n")
    assert code.code_version("little.study") != before


def test_without_source_the_version_and_the_bytecode_remain():
    program = (
        "from mindgap.core.study import Study, Trial; from mindgap.runs import trial_id\n"
        "class Typed(Study):\n"
        "    def trials(self): return []\n"
        "    def run(self, trial): return {{'x': {value}}}\n"
        "    def summarize(self, records): ...\n"
        "    def tiny(self): return self\n"
        "print(trial_id(Typed(), Trial(parameters={{}})))"
    )
    shown = [
        subprocess.run(
            [sys.executable, "-c", program.format(value=v)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for v in (1, 1, 2)
    ]
    assert shown[0] == shown[1] != shown[2]
