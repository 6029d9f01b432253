"""The second moments of a subject: a large network is followed with fewer samples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.ops.initialization import subject as module


@pytest.mark.parametrize(("operations", "expected"), [(2**35, 40), (32 * 10, 10), (1, 8)])
def test_samples_follow_the_size_of_the_network(
    operations: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPERATIONS", operations)
    net, sizes = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), set[int]()
    subject = Subject(net, "mse", (torch.randn(40, 3), torch.zeros(40, 1)))
    subject.outputs()
    handle = net.register_forward_hook(lambda _, __, output: sizes.add(len(output)))
    module.propagation_of(subject)  # 24 + 8 operations per sample
    handle.remove()
    assert max(sizes) == expected
