"""Subject: every way to hold data gives the same numbers; caches notice every change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import CASES, Rows, mlp_classes
from reference import outputs as reference_outputs
from reference import sample_errors, sample_losses
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from mindgap.core.subject import Subject

x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
y = torch.arange(30) % 3


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(x, y, strict=True))


WAYS = {
    "tensors": (x, y),
    "list": [x, y],
    "arrays": (x.numpy(), y.numpy()),
    "doubles": (x.double().numpy(), y.numpy().astype(np.int32)),
    "read-only array": (np.broadcast_to(x.numpy(), x.shape), y),
    "float labels": (x, y.float()),
    "TensorDataset": TensorDataset(x, y),
    "Dataset": Rows(x, y),
    "list of pairs": Rows(x, y),
    "loader": DataLoader(TensorDataset(x, y), batch_size=4),
    "shuffling loader": DataLoader(Rows(x, y), batch_size=4, shuffle=True, drop_last=True),
    "stream": Stream(),
    "loader of a stream": DataLoader(Stream(), batch_size=7),
    "dict": {"input": x, "labels": y},
    "tuple with dict": ({"input": x}, y),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_hold_data_gives_the_same_losses(way: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    subject = Subject(model, "cross_entropy", WAYS[way], WAYS[way])
    expected = nn.functional.cross_entropy(model(x), y, reduction="none")
    assert torch.allclose(subject.losses("train"), expected, atol=1e-6)
    assert torch.allclose(subject.losses("test"), expected, atol=1e-6)
    assert len(subject.train) == 30


@pytest.mark.parametrize("case", CASES)
def test_passes_equal_one_sample_at_a_time(case: str) -> None:
    subject = CASES[case](torch.float64)
    for which in ("train", "test"):
        assert np.allclose(
            subject.outputs(which).numpy(), reference_outputs(subject, which), atol=1e-12
        )
        assert np.allclose(subject.losses(which).numpy(), sample_losses(subject, which), atol=1e-12)
        assert np.allclose(subject.errors(which).numpy(), sample_errors(subject, which), atol=1e-12)


def each(output, target):
    return nn.functional.cross_entropy(output, target, reduction="none")


LOSSES = {
    "module": (nn.CrossEntropyLoss(), "cross_entropy"),
    "function": (nn.functional.cross_entropy, "cross_entropy"),
    "mean": (lambda output, target: nn.functional.cross_entropy(output, target), "cross_entropy"),
    "one a sample": (
        lambda output, target: nn.functional.cross_entropy(output, target, reduction="none"),
        "cross_entropy",
    ),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_callable_losses_are_taken_sample_by_sample(kind: str) -> None:
    model = nn.Linear(4, 3)
    given, named = LOSSES[kind]
    subject, plain = Subject(model, given, (x, y)), Subject(model, named, (x, y))
    assert subject.task == "classification"
    assert torch.allclose(subject.losses(), plain.losses(), atol=1e-6)


def test_flat_targets_do_not_broadcast() -> None:
    subject = Subject(nn.Linear(4, 1), "mse", (x, x.sum(1)))
    expected = (subject.model(x).squeeze(1) - x.sum(1)).square()
    assert torch.allclose(subject.losses(), expected)


def change_in_place(model: nn.Linear) -> None:
    with torch.no_grad():
        model.weight.mul_(2)


def change_data(model: nn.Linear) -> None:
    model.weight.data.mul_(2)


def change_step(model: nn.Linear) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x)[:, 0].sum().backward()
    optimizer.step()


def change_parameter(model: nn.Linear) -> None:
    model.weight = nn.Parameter(model.weight.detach() * 2)


def change_state(model: nn.Linear) -> None:
    model.load_state_dict(nn.Linear(4, 3).state_dict())


@pytest.mark.parametrize(
    "change", [change_in_place, change_data, change_step, change_parameter, change_state]
)
def test_cached_passes_notice_a_changed_model(change) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    subject = Subject(model, "cross_entropy", (x, y))
    before = subject.losses()
    assert subject.losses() is before
    change(model)
    assert not torch.allclose(subject.losses(), before)
    assert torch.allclose(subject.outputs(), model(x))


def test_a_value_of_ones_own_is_cached_by_key_until_a_weight_changes() -> None:
    model = nn.Linear(4, 3)
    subject, calls = Subject(model, "cross_entropy", (x, y)), []

    def largest() -> dict[str, float]:
        calls.append(1)
        return {"largest": float(subject.outputs().detach().max())}

    first = subject.cached(("own-measure", 1), largest)
    assert subject.cached(("own-measure", 1), largest) is first
    assert subject.cached(("own-measure", 2), largest) == first
    assert len(calls) == 2
    change_in_place(model)
    assert subject.cached(("own-measure", 1), largest) != first


def test_a_changed_buffer_is_noticed() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    subject = Subject(model, "cross_entropy", (x, y))
    before = subject.outputs().clone()
    model.train()(x * 5)
    assert not torch.allclose(subject.outputs(), before)
    assert model.training


def test_gradient_equals_autograd() -> None:
    subject = mlp_classes(torch.float64)
    gradient = subject.gradient()
    subject.loss(
        subject.forward(subject.train.take(torch.arange(48)).inputs), subject.targets()
    ).mean().backward()
    for name, parameter in subject.model.named_parameters():
        assert torch.allclose(gradient[name], parameter.grad, atol=1e-12)


def test_features_are_what_enters_the_head() -> None:
    subject = mlp_classes(torch.float64)
    head = [module for module in subject.model.modules() if isinstance(module, nn.Linear)][-1]
    assert torch.allclose(head(subject.features("test")), subject.outputs("test"))
    assert not head._forward_pre_hooks


def test_outputs_with_logits_attribute_or_tuple() -> None:
    class Wrapped(nn.Module):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.line, self.kind = nn.Linear(4, 3), kind

        def forward(self, inputs):
            logits = self.line(inputs)
            return (
                (logits, "cache")
                if self.kind == "tuple"
                else type("Output", (), {"logits": logits})()
            )

    for kind in ("tuple", "object"):
        subject = Subject(Wrapped(kind), "cross_entropy", (x, y))
        assert torch.allclose(subject.outputs(), subject.model.line(x))


def test_features_enter_the_layer_called_last_not_the_one_declared_last() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.body = nn.Linear(5, 3), nn.Linear(4, 5)

        def forward(self, inputs):
            return self.head(torch.relu(self.body(inputs)))

    subject = Subject(Backwards(), "cross_entropy", (x, y), batch_size=7)
    assert torch.allclose(subject.model.head(subject.features()), subject.outputs(), atol=1e-6)
    assert not any(module._forward_pre_hooks for module in subject.model.modules())
