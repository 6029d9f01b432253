"""`mindgap initialize`: one call of the job, its weights in a file, and refusals before any work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mindgap import reinitialized
from mindgap.cli import main
from mindgap.cli.target import load_subject
from mindgap.ops.initialization.subject import batch_of

Out = Callable[..., str]


def test_the_suggested_weights_are_saved_bit_for_bit(user_file: Path, out: Out) -> None:
    path, page = user_file.with_name("weights.pt"), user_file.with_name("page.html")
    words = [f"{user_file}:make_subject", "--seed", "3", "--save", str(path), "-q"]
    assert "* suggested" in out("initialize", *words, "--report", str(page))
    assert "<h2>Schemes</h2>" in page.read_text(encoding="utf-8")
    scheme = json.loads(out("initialize", *words, "--json"))["suggested"]
    subject = load_subject(f"{user_file}:make_subject")
    inputs, _ = batch_of(subject)
    expected = reinitialized(subject.model, inputs, scheme=scheme, seed=3).state_dict()
    found = torch.load(path, weights_only=True)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_named_scheme_is_saved_whether_it_is_the_best_or_not(user_file: Path, out: Out) -> None:
    path, target = user_file.with_name("weights.pt"), f"{user_file}:make_subject"
    out(
        "initialize", target, "--scheme", "xavier-uniform", "--gain", "9", "--save", str(path), "-q"
    )
    subject = load_subject(target)
    expected = reinitialized(subject.model, batch_of(subject)[0], scheme="xavier-uniform", gain=9.0)
    assert torch.equal(torch.load(path, weights_only=True)["0.weight"], expected[0].weight)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scheme", "kaiming-norml"], "Did you mean 'kaiming-normal'"),
        (["--scheme", "lsuv", "--gain", "2"], "left out for lsuv"),
        (["--scheme", "xavier-normal", "--fan", "out"], "fan must be 'in' for xavier-normal"),
        (["--save", "no/such\0/weights.pt"], "path"),
        (["--report", "page.txt"], "must end in"),
        (["--samples", "1"], "samples"),
    ],
)
def test_bad_input_is_one_sentence(
    user_file: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["initialize", f"{user_file}:make_subject", *words]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
