"""The second moments of a subject: a large network is followed with fewer samples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mindgap.core import Subject
from mindgap.nets import MLP, Elman
from mindgap.ops.initialization import subject as module
from mindgap.ops.signal.trace import gradient_trace


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


@pytest.mark.parametrize("net", [MLP((3, 8, 8, 1)), Elman(3, 8, 1)], ids=["layers", "steps"])
def test_gradients_are_those_of_the_trace_up_to_the_number_of_samples(net: nn.Module) -> None:
    shape = (12, 9, 3) if isinstance(net, Elman) else (12, 3)
    subject = Subject(net, "mse", (torch.randn(shape), torch.zeros(12, 1)))
    found, trace = module.propagation_of(subject).gradients, gradient_trace(subject)
    assert found is not None
    assert trace is not None
    expected = {name: pytest.approx(12 * norm) for name, norm in trace.layers.items()}
    assert found.layers == expected
    assert list(found.times) == list(trace.times) == ["recurrent"] * isinstance(net, Elman)
    for name, norms in found.times.items():
        assert norms == pytest.approx([12 * norm for norm in trace.times[name]])
