"""Subject: every way to hold data gives the same numbers; caches notice every change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import CASES, Rows, mlp_classes
from reference import outputs as reference_outputs, sample_errors, sample_losses
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from mindgap.core.errors import InputError
from mindgap.core.loss import as_loss
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
    "list of pairs": list(zip(x, y, strict=True)),
    "list of array pairs": [(row.numpy(), int(label)) for row, label in zip(x, y, strict=True)],
    "list of dicts": [{"input": row, "label": label} for row, label in zip(x, y, strict=True)],
    "list of triples": [(row[:2], row[2:], label) for row, label in zip(x, y, strict=True)],
    "loader": DataLoader(TensorDataset(x, y), batch_size=4),
    "shuffling loader": DataLoader(Rows(x, y), batch_size=4, shuffle=True, drop_last=True),
    "stream": Stream(),
    "loader of a stream": DataLoader(Stream(), batch_size=7),
    "dict": {"input": x, "labels": y},
    "tuple with dict": ({"input": x}, y),
}


class Joined(nn.Module):
    """Takes two inputs and joins them."""

    def __init__(self, line: nn.Module) -> None:
        super().__init__()
        self.line = line

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.line(torch.cat([left, right], 1))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_hold_data_gives_the_same_losses(way: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    asked = Joined(model) if way == "list of triples" else model
    subject = Subject(asked, "cross_entropy", WAYS[way], WAYS[way])
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


def test_it_is_known_what_cached_values_cost_and_who_used_them() -> None:
    subject = Subject(nn.Linear(2, 1), "mse", (torch.eye(2), torch.ones(2, 1)))
    assert not subject.knows("spread")
    subject.cached("spread", lambda: sum(range(2_000_000)))
    seconds = subject.asked["spread"]
    assert seconds > 0
    subject.asked.clear()
    assert subject.part(torch.arange(1)).asked is subject.asked
    subject.cached("spread", lambda: 0)
    assert subject.asked == {"spread": seconds}
    assert subject.knows("spread")
    with torch.no_grad():
        next(subject.model.parameters()).add_(1)
    assert not subject.knows("spread")


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


def test_inputs_in_a_tuple_of_their_own_are_refused() -> None:
    both = torch.zeros(4, 3), torch.zeros(4, 2)
    with pytest.raises(InputError, match=r"\(first, second, targets\)"):
        Subject(nn.Linear(3, 2), "cross_entropy", (both, torch.zeros(4).long()))


def test_samples_that_do_not_fit_together_are_told() -> None:
    with pytest.raises(InputError, match=r"same keys and shapes.*Pad or resize"):
        Subject(nn.Linear(4, 3), "cross_entropy", [(x[0], 0), (x[1][:3], 1)])


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 2)),
        nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(16, 2)),
    ],
)
def test_bytes_that_the_model_cannot_take_are_told_by_their_type(model: nn.Module) -> None:
    images = torch.randint(0, 256, (6, 1, 4, 4), dtype=torch.uint8)
    subject = Subject(model, "cross_entropy", (images, torch.arange(6) % 2))
    with pytest.raises(InputError, match="Convert the uint8 inputs") as told:
        subject.outputs()
    assert "Reshape" not in str(told.value)


def test_bytes_are_left_to_a_model_that_takes_them() -> None:
    class Scaled(nn.Linear):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return super().forward(images.flatten(1).float() / 255)

    images = torch.randint(0, 256, (6, 1, 2, 2), dtype=torch.uint8)
    model = Scaled(4, 2)
    subject = Subject(model, "cross_entropy", (images, torch.arange(6) % 2))
    assert torch.equal(subject.outputs(), model(images).detach())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_named_with_their_layer(bad: float) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Sequential(nn.Linear(5, 3)))
    model[2][0].bias.data[1] = bad
    with pytest.raises(InputError, match=r"1 of 3 values of '2\.0\.bias' \(Linear\)"):
        Subject(model, "cross_entropy", (x, y)).outputs()


def test_outputs_that_are_no_numbers_do_not_blame_the_data() -> None:
    class Divides(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return super().forward(rows) / 0

    with pytest.raises(InputError, match=r"outputs on the training data.*division by zero"):
        Subject(Divides(4, 3), "cross_entropy", (x, y)).outputs()


ALIASES = {
    "binary_cross_entropy_with_logits": nn.BCEWithLogitsLoss(),
    "bce_with_logits": nn.BCEWithLogitsLoss(),
    "BCEWithLogitsLoss": nn.BCEWithLogitsLoss(),
    "mse_loss": nn.MSELoss(),
    "l1_loss": nn.L1Loss(),
    "mae": nn.L1Loss(),
    "huber": nn.HuberLoss(),
    "HuberLoss": nn.HuberLoss(),
    "smooth_l1": nn.SmoothL1Loss(),
    "smooth_l1_loss": nn.SmoothL1Loss(),
}


@pytest.mark.parametrize("name", ALIASES)
def test_names_of_torch_mean_its_losses(name: str) -> None:
    outputs, targets = x[:, :3], (x[:, 1:] > 0).float()
    found, expected = as_loss(name), as_loss(ALIASES[name])
    assert found.task == expected.task
    assert torch.equal(found(outputs, targets), expected(outputs, targets))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("nll", nn.NLLLoss()), ("NLLLoss", nn.NLLLoss()), ("CrossEntropyLoss", "cross_entropy")],
)
def test_names_of_losses_of_class_numbers(name: str, expected: object) -> None:
    outputs = torch.log_softmax(x, 1)
    assert as_loss(name).task == "classification"
    assert torch.equal(as_loss(name)(outputs, y), as_loss(expected)(outputs, y))


class Noisy(nn.Linear):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return super().forward(rows) + torch.rand(len(rows), self.out_features)


class Centered(nn.Linear):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return super().forward(rows - rows.mean(0))


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (nn.Linear(4, 3), ""),
        (nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)), ""),
        (Noisy(4, 3), "asked again"),
        (Centered(4, 3), "other samples of its batch"),
        (nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)), "single"),
    ],
)
def test_outputs_that_depend_on_more_than_the_sample_are_noticed(model, told: str) -> None:
    before = torch.get_rng_state()
    found = Subject(model, "cross_entropy", (x, y)).instability()
    assert told in found if told else not found
    assert torch.equal(before, torch.get_rng_state())


def test_history_may_hold_nan_but_only_numbers() -> None:
    rows = ({"epoch": 1, "train_loss": 0.5}, {"epoch": 2, "train_loss": float("nan")})
    assert Subject(nn.Linear(4, 3), "cross_entropy", (x, y), history=rows).history == rows
    with pytest.raises(InputError, match="history must hold numbers, got 'low' as 'train_loss'"):
        Subject(nn.Linear(4, 3), "cross_entropy", (x, y), history=[{"train_loss": "low"}])


def test_one_pass_gives_outputs_and_features_and_a_part_keeps_them() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    inputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    subject = Subject(net, "cross_entropy", (inputs, torch.arange(6) % 2))
    calls: list[int] = []
    net.register_forward_hook(lambda *_: calls.append(1))
    outputs, features = subject.outputs(), subject.features()
    assert len(calls) == 1
    with torch.no_grad():
        assert torch.equal(features, net[1](net[0](inputs)))
    places, seen = torch.tensor([4, 1, 0]), len(calls)
    part = subject.part(places)
    assert torch.equal(part.outputs(), outputs[places])
    assert torch.equal(part.features(), features[places])
    assert len(calls) == seen
    net[2].weight.data.mul_(2)
    assert not torch.equal(part.outputs(), outputs[places])
