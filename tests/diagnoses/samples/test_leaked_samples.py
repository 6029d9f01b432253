"""Leaked samples: which ones, copies from before the split, and discrete data."""

from __future__ import annotations

import pytest
import torch
from pasting import pasted
from torch import Tensor, nn

from mindgap.core import Finding, Subject
from mindgap.diagnoses import LeakedSamples
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit

Data = tuple[Tensor, Tensor]


def look(train: Data, test: Data) -> Finding | None:
    return LeakedSamples()(Subject(nn.Flatten(), "cross_entropy", train, test))


def drawn(count: int, seed: int) -> Data:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(count, 4, generator=random), torch.randint(0, 3, (count,), generator=random)


def test_every_leaked_sample_is_traced() -> None:
    train, test = drawn(300, 0), drawn(100, 1)
    test[0][5:15], test[1][5:15] = train[0][200:210], train[1][200:210]
    finding = look(train, test)
    assert finding.severity == "wrong"
    assert list(finding.suspects.index) == list(range(5, 15))
    assert list(finding.suspects.columns["training sample"]) == list(range(200, 210))
    assert finding.evidence[0].interval.low < 0.1 < finding.evidence[0].interval.high
    assert "guarantee" in finding.sentences[0]
    scope = pasted(finding, test_inputs=test[0], test_targets=test[1])
    assert len(scope["test_inputs"]) == 90
    assert look(train, (scope["test_inputs"], scope["test_targets"])) is None


def test_the_same_data_twice() -> None:
    train = drawn(50, 0)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    finding = look(train, (train[0][order], train[1][order]))
    assert finding.sentence.startswith("100 %")
    assert "in another order" in " ".join(finding.sentences)


def test_copies_from_before_the_split_are_found() -> None:
    x, y = (part.repeat_interleave(2, 0) for part in drawn(400, 0))
    order = torch.randperm(800, generator=torch.Generator().manual_seed(1))
    train, test = ((x[part], y[part]) for part in order.split([500, 300]))
    finding = look(train, test)
    assert finding.severity == "wrong"
    assert "copied before" in " ".join(finding.sentences)


def test_discrete_data_are_a_note() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randint(0, 12, (900, 2), generator=random).float()
    y = torch.randint(0, 2, (900,), generator=random)
    assert look((x[:600], y[:600]), (x[600:], y[600:])).severity == "note"


def test_a_class_that_was_repeated_at_random_before_the_split_is_suspect() -> None:
    """As many repeat in the training data, in the way of chance, but the model has seen them."""
    random = torch.Generator().manual_seed(0)
    x, y = drawn(500, 0)
    more = (y == 0).nonzero().flatten()
    more = more[torch.randint(len(more), (400,), generator=random)]
    x, y = torch.cat([x, x[more]]), torch.cat([y, y[more]])
    order = torch.randperm(len(y), generator=random)
    train, test = order[:600], order[600:]
    finding = look((x[train], y[train]), (x[test], y[test]))
    assert finding.severity == "suspect"
    assert finding.voids
    assert "before the split" in finding.sentences[-1]
    scope = pasted(finding, test_inputs=x[test], test_targets=y[test])
    assert look((x[train], y[train]), (scope["test_inputs"], scope["test_targets"])) is None


def test_one_natural_duplicate_is_a_note() -> None:
    train, test = drawn(600, 0), drawn(300, 1)
    test[0][0], test[1][0] = train[0][0], train[1][0]
    finding = look(train, test)
    assert finding.severity == "note"
    assert finding.sentence.startswith("0.33 %")


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_found_if_planted_and_only_then(kind: str) -> None:
    recipe = healthy_recipe(kind).replace(epochs=0)
    finding = LeakedSamples()(LeakedSamples.plant(recipe, 0, 0.25))
    assert finding.severity == "wrong"
    assert finding.evidence[0].value == pytest.approx(0.05, abs=0.005)
    assert LeakedSamples()(fit(recipe).subject()) is None
