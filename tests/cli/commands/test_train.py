"""`mindgap train`: remedies, checkpoints, recipes, divergence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mindgap.cli import main

Out = Callable[..., str]


def test_train_with_remedies_saves_and_resumes(tmp_path: Path, out: Out) -> None:
    common = (
        "train",
        "-q",
        "--remedy",
        "dropout:rate=0.2",
        "--remedy",
        "weight-decay:decay=0.01",
        "--json",
    )
    whole = json.loads(out(*common, "--epochs", "3", "--save", str(tmp_path / "whole.pt")))
    for epochs in ("1", "3"):
        words = (
            "--epochs",
            epochs,
            "--checkpoint",
            str(tmp_path / "run.pt"),
            "--save",
            str(tmp_path / "part.pt"),
        )
        parts = json.loads(out(*common, *words))
    first, second = (
        torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("whole", "part")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert whole["verdict"] == parts["verdict"]


def test_train_a_users_recipe(user_file: Path, out: Out) -> None:
    text = out("train", "--recipe", f"{user_file}:make_recipe", "-q")
    assert "mine" in text


def test_divergence_is_a_failure_not_a_crash(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("train", "-q", "--epochs", "2", "--optimizer", "sgd", "--learning-rate", "1e25")
    assert main(list(words)) == 1
    assert "Training stopped: diverged" in capsys.readouterr().err


def test_remedies_are_read_with_numbers_and_flags() -> None:
    from mindgap.cli.commands.train import parse_remedy
    from mindgap.remedies import WeightDecay

    assert parse_remedy("weight-decay") == WeightDecay()
    assert parse_remedy("weight-decay:decay=0.3,decoupled=false") == WeightDecay(
        decay=0.3, decoupled=False
    )
    assert parse_remedy("weight_decay: decay = 0.3, decoupled = True") == WeightDecay(decay=0.3)
