"""More than 1,000 bad inputs, generated from the parser and from signatures: each is one sentence.

A value is bad if its parameter's annotation excludes it, or if it is out of every sensible range.
So a new command, option, study or public callable is attacked as soon as it exists.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import itertools
import math
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mindgap
from mindgap import data, runs, sampling
from mindgap.cli import main
from mindgap.cli.parser import COMMANDS, command_parser
from mindgap.core import MindgapError, catalog
from mindgap.core.checks import matches, resolved_hints
from mindgap.measures import Gap

USER_FILE = """
import torch, mindgap
from torch import nn
x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
def draw(size, seed): return torch.zeros(size, 3), torch.arange(size) % 2
def net(): return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
def make_subject(): return mindgap.Subject(net(), "cross_entropy", (x[:24], y[:24]), (x[24:], y[24:]))
def make_recipe(): return mindgap.Recipe(model=net, train=(x[:24], y[:24]), epochs=1)
def make_whole(): return make_recipe().replace(test=(x[24:], y[24:]))
def f(point): return point[0]
"""
WORDS = {
    "attack": ["mine.py:make_subject", "--epsilon", "0.1", "--steps", "2", "--no-black-box", "-q"],
    "bound": [],
    "certify": ["mine.py:make_recipe", "--epochs", "0", "--draws", "10", "-q"],
    "choose-head": ["mine.py:make_subject", "--ks", "3", "--max-weights", "2", "-q"],
    "decompose": [
        *("mine.py:make_recipe", "--source", "mine.py:draw", "--draws", "2", "--pool", "20"),
        *("--large", "20", "--steps", "2", "--polish", "1", "--sizes", "4", "-q"),
    ],
    "doctor": [],
    "examine": ["mine.py:make_subject", "--measure", "gap", "-q"],
    "explain": ["gap"],
    "improve": [
        "mine.py:make_whole",
        *("--trainings", "40", "--workers", "1", "--store", "improve.sqlite", "-q"),
    ],
    "initialize": ["mine.py:make_subject", "--scheme", "kaiming-normal", "-q"],
    "landscape": ["mine.py:make_subject", "--points", "3", "--dimensions", "1", "-q"],
    "lipschitz": ["mine.py:make_subject", "--steps", "2", "--ascent", "2", "-q"],
    "list": [],
    "monitor": ["run.jsonl"],
    "report": ["report.json"],
    "reproduce": ["grokking", "--list", "--results", "none"],
    "run": ["--limit", "0", "--tiny", "--store", "store.sqlite", "-q"],
    "sample": ["mine.py:f", "--low", "0", "--high", "1", "--new", "0", "--workers", "1", "-q"],
    "train": ["--recipe", "mine.py:make_recipe", "--measure", "gap", "-q"],
    "weigh": ["data.npz", "--k", "3", "-q"],
}
EXAMINE = ["examine", *WORDS["examine"]]
HUGE, LONG = "1" * 5000, "x" * 300
PATHS = ("data.npz/x.html", f"{LONG}.html", "~nosuchuser/x.html", "", "\0", "/", f"no/{LONG}.html")
FOLDERS = ("/", PATHS[-1])  # of which the first is one, and the last is not looked for yet
FREE_TEXT = {"names", "outputs", "command", "encoder", "head"}  # any text means something


def bad_words(action: argparse.Action) -> list[str]:
    """Values that no option of this kind can have."""
    if action.type is int:
        return ["x", "-1", HUGE, "nan", "", "2.5", "99999999999999999999"]
    if action.type is float:
        return ["x", "-1", "nan", "inf", "", HUGE]
    if action.choices:
        return ["nope", "", LONG]
    return [] if action.dest in FREE_TEXT else list(PATHS)


def good_commands() -> Iterator[list[str]]:
    """Every command, bound and study with words that it takes."""
    for command, words in WORDS.items():
        if command not in ("bound", "run"):
            yield [command, *words]
    for name, bound in catalog("bound").items():
        hints = {key: hint for key, (hint, _) in bound.arguments().items()}  # type: ignore[attr-defined]
        numbers = {key: "1" if hint is int else "0.1" for key, hint in hints.items()}
        numbers |= {"samples": "100"}
        pairs = [(f"--{key.replace('_', '-')}", value) for key, value in numbers.items()]
        yield ["bound", name, *itertools.chain(*pairs)]
    for name in catalog("study"):
        yield ["run", name, *WORDS["run"]]


def bad_commands() -> Iterator[list[str]]:
    """Every good command, with every option once in every bad way."""
    for command, *words in good_commands():
        _, parser, _ = command_parser(command, words)
        for action in parser._actions:
            if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
                continue
            for bad in bad_words(action):
                if (command, action.dest) == ("reproduce", "results") and bad in FOLDERS:
                    continue
                if action.option_strings:
                    yield [command, *words, f"{action.option_strings[0]}={bad}"]
                else:
                    yield [command, bad, *words[1:]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(USER_FILE)
    mindgap.Monitor(net(), log="run.jsonl").close()
    np.savez("data.npz", x=np.eye(12), y=np.arange(12) % 2)
    assert main([*EXAMINE, "--report", "report.json"]) == 0
    return tmp_path


def test_every_command_is_attacked() -> None:
    assert WORDS.keys() == COMMANDS.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("folder")
def test_good_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise the bad ones could be refused for another reason."""
    for words in good_commands():
        assert main(words) != 2, (words, capsys.readouterr().err)


@pytest.mark.filterwarnings("ignore")
def test_generated_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    capsys.readouterr()
    count = 0
    for words in bad_commands():
        code, (out, err) = main(words), capsys.readouterr()
        assert code == 2, (words, out, err)
        assert err.startswith("mindgap: "), (words, err)
        assert err.count("\n") == 1, (words, err)
        assert out == "", words
        assert "x" * 210 not in err, words
        assert "1" * 210 not in err, words
        count += 1
    assert count > 1000
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


X = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
BOX, STUDY = sampling.Box(0, 1), mindgap.studies.BatchSizeGap()
RECIPE = mindgap.Recipe(model=net, train=(X, Y), epochs=0)
SUBJECT = mindgap.Subject(net(), "cross_entropy", (X[:16], Y[:16]), (X[16:], Y[16:]))
ROWS = torch.rand(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
# The arguments that a callable cannot do without; others are left at their defaults.
GIVEN: dict[str, dict[str, Any]] = {
    "Subject": {"model": net(), "loss": "cross_entropy", "train": (X, Y)},
    "Recipe": {"model": net, "train": (X, Y)},
    "PerturbedOptimizer": {"base": torch.optim.SGD(net().parameters(), lr=0.1)},
    "Probe": {"measure": Gap()},
    "attack": {"subject": SUBJECT, "epsilons": [0.1], "steps": 2, "black_box": False},
    "certify": {"subject": RECIPE, "draws": 10, "epochs": 0},
    "choose_head": {"subject": SUBJECT, "max_weights": (2.0,), "ks": (3,)},
    "compare": {
        "subjects": {"a": SUBJECT, "b": SUBJECT},
        "measures": ["gap"],
        "bounds": [],
        "diagnoses": [],
    },
    "decompose": {
        "recipe": RECIPE,
        "source": lambda size, seed: (torch.zeros(size, 3), torch.arange(size) % 2),
        "sizes": [4],
        "draws": 2,
        "large": 20,
        "pool": 20,
        "steps": 2,
        "polish": 1,
    },
    "diagnose": {"subject": SUBJECT, "diagnoses": ["not-finite"]},
    "ensemble": {"recipe": RECIPE, "seeds": [0]},
    "examine": {"subject": SUBJECT, "measures": ["gap"], "bounds": []},
    "explain": {"name": "gap"},
    "find": {"name": "gap"},
    "fit": {"recipe": RECIPE},
    "improve": {
        "recipe": RECIPE.replace(test=(X, Y), epochs=1),
        "trainings": 40,
        "store": ":memory:",
        "remedies": ["weight-decay"],
    },
    "initialize": {"subject": SUBJECT, "schemes": ["kaiming-normal"]},
    "landscape": {"subject": SUBJECT, "points": 3, "dimensions": 1},
    "propagation": {"model": net(), "inputs": X},
    "reinitialized": {"model": net(), "inputs": X},
    "lipschitz": {"subject": SUBJECT, "steps": 2, "ascent": 2},
    "monitor": {"log": mindgap.Monitor(net())},
    "retrain_head": {"model": net(), "train": (X, Y), "k": 3},
    "sample": {"domain": BOX, "evaluator": min, "executor": runs.SerialExecutor(), "new": 0},
    "weigh": {"data": X, "labels": Y, "k": 3},
    "DataSet": {"name": "dots", "inputs": X, "targets": Y},
    "Vocabulary": {"words": ("a", "b")},
    "bateman": {"points": ROWS[:, :3]},
    "bateman_system": {
        "points": ROWS,
        "production": [1.0, 1.0],
        "reaction": [[-1.0, 0.0], [0.0, -1.0]],
    },
    "dataset": {"name": "dots"},
    "encode": {"texts": ["a"], "encoder": "bag-of-words"},
    "gaussian_noise": {"targets": X, "std": 0.1},
    "label_noise": {"labels": Y, "fraction": 0.1},
    "load": {"name": "two-moons"},
    "standardize": {"train": X},
    "stratified_folds": {"targets": Y, "folds": 2},
    "stratified_split": {"targets": Y, "parts": (4, 4)},
    "with_label_noise": {"dataset": data.DataSet("dots", X, Y), "fraction": 0.1},
    "Elman": {"features": 3, "hidden": 4, "outputs": 2},
    "Gated": {"features": 3, "hidden": 4, "outputs": 2},
    "MLP": {"widths": (3, 4, 2)},
    "Transformer": {"vocabulary": 5, "outputs": 2, "length": 3},
    "build": {"name": "lenet5"},
    "Box": {"low": 0, "high": 1},
    "Product": {"factors": (BOX,)},
    "Simplex": {"size": 2},
    "Where": {"inside": BOX, "rule": lambda rows: rows[:, 0] > 0.5},
    "TaylorSampler": {"function": None, "domain": BOX},
    "initial_design": {"kind": "sobol", "count": 4, "domain": BOX},
    "sweep": {"study": STUDY, "store": ":memory:", "limit": 0},
    "trial_id": {"study": STUDY, "trial": STUDY.trials()[0]},
    "save_results": {"sweep": None, "path": "results.json"},
    "load_results": {"path": "results.json"},
    "results_page": {"results": {}},
    "Store": {"path": ":memory:"},
    "tried": {"store": "runs.sqlite"},
    "VarianceWeights": {"k": 3},
}
# Some arguments are looked at when they are used: a recipe's data, an estimator's settings.
USED: dict[str, Callable[[Any], object]] = {
    "Recipe": lambda recipe: recipe.splits(),
    "VarianceWeights": lambda weigher: weigher.fit(X, Y),
}
NEEDS_FILES = {"encode", "load_results", "results_page", "save_results", "tried"}
# The package makes these; no user does. They hold what was found, even NaN.
RECORDS = {"Asked", "Certificate", "Finding", "Report", "Result", "Sampled", "Sweep"}
EMPTY_IS_FINE = {"measures", "bounds", "remedies", "probes", "readings", "classes", "history"} | {
    *("seeds", "retune", "diagnoses", "in_use"),
    *("words", "feature_names", "test_texts", "facts"),
}
SIGNED = {"production", "reaction", "low"}
BAD = (None, "nope", -1, math.nan, [], 10**30, object())


def public() -> Iterator[tuple[str, Any]]:
    """Every public callable that has arguments, without specs, which test_specs attacks."""
    for package in ("", ".data", ".nets", ".sampling", ".runs"):
        module = importlib.import_module(f"mindgap{package}")
        for name in module.__all__:
            value = getattr(module, name)
            attackable = callable(value) and not inspect.isabstract(value) and name not in RECORDS
            if attackable and not (inspect.isclass(value) and issubclass(value, Exception)):
                yield name, value


def is_bad(parameter: str, value: Any, hint: Any) -> bool:
    """Whether the annotation excludes the value, or no range of such a parameter has it."""
    if not matches(value, hint):
        return True
    if hint is Any or isinstance(value, str):
        return False  # what a string means is its callable's business: "nope" may be a title
    if value == []:
        return parameter not in EMPTY_IS_FINE
    return value == -1 and parameter not in SIGNED


def complaint(action: Callable[[], object]) -> str:
    """What the package says against it; empty if it accepts it. Another error is a fault."""
    try:
        action()
    except MindgapError as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("ignore")
def test_good_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the bad ones could be refused for another reason."""
    monkeypatch.chdir(tmp_path)
    for name, call in public():
        if name in GIVEN and name not in NEEDS_FILES:
            USED.get(name, lambda made: made)(call(**GIVEN[name]))


@pytest.mark.filterwarnings("ignore")
def test_generated_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path))
    count = 0
    for name, call in public():
        given, use = GIVEN.get(name, {}), USED.get(name, lambda made: made)
        for parameter, hint in resolved_hints(call).items():
            for bad in BAD:
                if is_bad(parameter, bad, hint):
                    changed = {**given, parameter: bad}
                    told = complaint(lambda use=use, call=call, to=changed: use(call(**to)))
                    assert told, f"{name}({parameter}={bad!r}) was accepted"
                    assert "\n" not in told
                    count += 1
    assert count > 1000


def test_all_arguments_are_annotated() -> None:
    for name, call in public():
        wanted = {
            parameter.name
            for parameter in inspect.signature(call).parameters.values()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }
        assert resolved_hints(call).keys() == wanted, name


@pytest.mark.parametrize("family", ["measure", "bound", "remedy", "study"])
def test_generated_specs(family: str) -> None:
    for spec in catalog(family).values():
        for field, hint in typing.get_type_hints(spec.__init__).items():
            for bad in (*BAD, math.inf, -math.inf):
                if field != "return" and not (hint is str and isinstance(bad, str)):
                    told = complaint(lambda spec=spec, field=field, bad=bad: spec(**{field: bad}))
                    assert told, f"{spec.name}.{field} = {bad!r} was accepted"
