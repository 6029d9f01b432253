"""Every data set with every network: a model that takes the data, or one sentence."""

from __future__ import annotations

import pytest
import torch

from mindgap import data, nets
from mindgap.cli import main, recipe as recipes
from mindgap.cli.recipe import default_recipe
from mindgap.core import MindgapError
from mindgap.data import DataSet

FITTING = {
    "images": {"elman", "gated", "lenet5", "mlp", "resnet", "resnet20", "wide-resnet"},
    "tokens": {"elman", "transformer"},
    "vectors": {"mlp"},
    "texts": set(),
}
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "digits": (1, 8, 8)}
TEXTS = ("mrpc", "rte", "stsb")


def kind_of(name: str) -> str:
    if name in TEXTS:
        return "texts"
    return "images" if name in SHAPES else "tokens" if name == "modular" else "vectors"


def stand_in(name: str) -> DataSet:
    """A few samples in the shape of a data set, which need no download."""
    labels, kind = torch.arange(6) % 3, kind_of(name)
    if kind == "texts":
        return DataSet(name, torch.zeros(6, 5).long(), labels, texts=(("a", "b"),) * 6)
    if kind == "tokens":
        return DataSet(name, torch.ones(6, 4).long(), labels, facts={"vocabulary": 9})
    inputs = torch.randn(6, *SHAPES.get(name, (7,)))
    if name.startswith("uci") or name in ("boston", "california", "heteroscedastic"):
        return DataSet(name, inputs, torch.randn(6, 1), task="regression")
    return DataSet(name, inputs, labels, classes=("a", "b", "c"))


@pytest.mark.parametrize("net", nets.available())
def test_every_pair(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "load", stand_in)
    for name in data.available():
        colors = net in ("elman", "gated") and name == "cifar10"
        fits = net in FITTING[kind_of(name)] and not colors
        if fits:
            recipe = default_recipe(name, net)
            outputs = recipe.build(0)(recipe.train[0][:2])
            assert outputs.shape == (2, 1 if recipe.loss == "mse" else 3), name
        else:
            with pytest.raises(MindgapError, match=r"must (get|hold) .*\. (Choose|Encode)"):
                default_recipe(name, net)


@pytest.mark.parametrize(
    ("words", "title"),
    [(["--data", "modular"], "transformer on modular"), (["--net", "lenet5"], "lenet5 on digits")],
)
def test_training_of_a_pair(
    words: list[str], title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ("--measure", "gap", "--diagnosis", "not-finite")
    assert main(["train", *words, "--epochs", "0", *only, "-q"]) == 0
    assert title in capsys.readouterr().out


@pytest.mark.parametrize(("net", "layer"), [("mlp", 0), ("resnet20", 0), ("elman", 0)])
def test_the_width_reaches_the_network(net: str, layer: int) -> None:
    narrow, usual = (default_recipe("digits", net, width).build(0) for width in (8, None))
    first = [list(model.parameters())[layer].shape[0] for model in (narrow, usual)]
    assert first[0] == 8
    assert first[0] < first[1]
