"""Layers are found by their calls; what is left out is named."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mindgap.core import Subject, Undefined
from mindgap.ops.features.layers import entering, layers_of


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused, self.shared, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
        self.embedding = nn.Embedding(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.shared(self.shared(inputs).relu()))


def test_names_what_is_skipped_and_why() -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    found = layers_of(Subject(Twice(), "mse", (x, x[:, :2])))
    assert found.names == ("head",)
    assert found.skipped == {
        "unused": "is not called",
        "shared": "is called 2 times per pass",
        "embedding": "is of the type Embedding",
    }


def test_features_are_those_of_a_pass_by_hand_also_behind_in_place_layers() -> None:
    x = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    subject = Subject(net, "mse", (x, x[:, :2]), batch_size=4)
    first, second, last = entering(subject, subject.train, ("0", "2"))
    assert torch.equal(first, x)
    assert torch.allclose(second, net[0](x).relu().detach())
    assert torch.allclose(last, net(x).detach())


def test_a_model_without_layers_is_undefined() -> None:
    with pytest.raises(Undefined, match="called once"):
        layers_of(Subject(nn.Identity(), "mse", (torch.eye(2), torch.eye(2))))
