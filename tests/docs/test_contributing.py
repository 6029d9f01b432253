"""Follows docs/contributing.md: its files, installed as a plug-in, work everywhere it says."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
FILES = dict(
    re.findall(r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```$", PAGE, re.M | re.S)
)
FAMILIES = {
    "mean-confidence": "measure",
    "empirical-bernstein": "bound",
    "frozen-input": "diagnosis",
    "gradient-centralization": "remedy",
    "width-gap": "study",
    "checkerboard": "dataset",
}
SEVERAL = """
import contextlib, io, json, sys
from mindgap.cli import main

printed = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(words) == 0, words
    printed.append(out.getvalue())
print(json.dumps(printed))
"""
EQUAL = """
import mindgap, torch

data = mindgap.data.load("checkerboard", size=60)
remedies = [mindgap.find("gradient-centralization")(share=0.5)]
recipe = mindgap.Recipe(
    model=lambda: mindgap.nets.MLP(widths=(2, 8, 2)), train=data.train, test=data.test, epochs=3
)
for seed, member in enumerate(mindgap.ensemble(recipe, seeds=range(3), remedies=remedies)):
    alone = mindgap.fit(recipe, remedies, seed=seed).model.state_dict()
    for name, value in member.model.state_dict().items():
        torch.testing.assert_close(value, alone[name])
"""


def block(language: str) -> str:
    """The one block of the page in a language, without a caption."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    return str(found)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which a package with the files of the page is installed."""
    ((group, entry),) = tomllib.loads(block("toml"))["project"]["entry-points"].items()
    ((name, package),) = entry.items()
    site = tmp_path_factory.mktemp("site")
    (site / package).mkdir()
    (site / package / "__init__.py").write_text('"""The examples of a page."""\n')
    for file, code in FILES.items():
        (site / package / file).write_text(code, encoding="utf-8")
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {package}\n")
    return {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}


def run(environment: dict[str, str], *words: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def mindgap(environment: dict[str, str], cwd: Path, commands: list[list[str]]) -> list[str]:
    """What mindgap commands print, run one after the other by one interpreter."""
    printed = run(environment, "-c", SEVERAL, json.dumps(commands), cwd=cwd)
    return list(json.loads(printed.splitlines()[-1]))


def test_every_kind_has_a_file() -> None:
    assert {file.removesuffix(".py").replace("_", "-") for file in FILES} == set(FAMILIES)


def test_the_commands_of_the_page(environment: dict[str, str], tmp_path: Path) -> None:
    lines = [shlex.split(line) for line in block("bash").splitlines()]
    assert {words[0] for words in lines} == {"mindgap"}
    commands = [words[1:] for words in lines]
    printed = mindgap(environment, tmp_path, commands)
    shown = {words[0]: text for words, text in zip(commands, printed, strict=True)}
    for name in FAMILIES:
        assert re.search(rf"^ +{name} ", shown["list"], re.M), name
    assert "over-confidence" in shown["explain"]
    assert "Guo, Chuan" in shown["explain"]
    assert "0.134" in shown["bound"]
    assert "mean-confidence" in shown["train"]
    assert "Width against generalization gap" in shown["run"]
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    for part in ("checkerboard", "mean-confidence", "empirical-bernstein", "Frozen input"):
        assert part in report
    assert "Confidence on the training data" in report, "the chart of the measure"


def test_all_are_listed_in_their_family_and_explained(
    environment: dict[str, str], tmp_path: Path
) -> None:
    lists = [["list", "--family", family, "--names"] for family in FAMILIES.values()]
    explains = [["explain", name] for name in FAMILIES]
    printed = mindgap(environment, tmp_path, [*lists, *explains])
    count = len(FAMILIES)
    for name, listed, explained in zip(FAMILIES, printed[:count], printed[count:], strict=True):
        assert set(FAMILIES) & set(listed.split()) == {name}
        assert f"my_additions.{name.replace('-', '_')}." in explained


def test_the_code_of_the_page_trains_all_seeds_at_once(environment: dict[str, str]) -> None:
    """A notice that members are trained one after the other would be an error."""
    printed = run(environment, "-W", "error", "-c", block("python"))
    assert re.search(r"mean-confidence.*0\.\d+", printed)
    assert "Confidence on the training data" in printed, "the chart as text"


def test_the_vectorized_form_equals_the_hook(environment: dict[str, str]) -> None:
    run(environment, "-c", EQUAL)


def test_the_contracts_and_doctests_hold(environment: dict[str, str]) -> None:
    """The command of the page, for all additions at once."""
    program, *words, name = shlex.split(block("console"))
    assert program == ".venv/bin/pytest"
    assert name in FAMILIES
    names, options = " or ".join(FAMILIES), ("-q", "-p", "no:cacheprovider")
    contracts = run(environment, "-m", "pytest", *words, names, *options)
    assert passed(contracts) >= 90
    files = [str(Path(environment["PYTHONPATH"]) / "my_additions" / file) for file in FILES]
    doctests = run(environment, "-m", "pytest", "--doctest-modules", *files, "-n0", *options)
    assert passed(doctests) == len(FILES)


def passed(out: str) -> int:
    assert "failed" not in out
    return int(out.split(" passed")[0].split()[-1])
