"""The head: found by watching, whatever the model is made of, and the model stays as it was."""

from __future__ import annotations

import copy
import types

import pytest
import torch
from cases import CASES, Convolutional, TwoInputs, inputs, labels
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.subject import Subject
from mindgap.nets import MLP, LeNet5, ResNet20
from mindgap.ops.models.head import find_head, head_features, head_outputs, layer_of

IDS = torch.tensor([[5, 6, 0, 0], [7, 8, 9, 0], [1, 2, 3, 4], [3, 0, 0, 0], [2, 2, 0, 0]])
WORDS = {
    "input_ids": IDS,
    "attention_mask": (IDS > 0).long(),
    "labels": torch.tensor([0, 1, 0, 1, 1]),
}


class Encoder(nn.Module):
    """Shaped as the encoders of Hugging Face: attention, a pooler, dropout and a classifier; returns .logits."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(8, 2)  # declared before the layers that feed it
        self.embeddings = nn.Embedding(10, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.pooler = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.5)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> types.SimpleNamespace:
        hidden = self.embeddings(input_ids)
        hidden, _ = self.attention(hidden, hidden, hidden, key_padding_mask=attention_mask == 0)
        return types.SimpleNamespace(
            logits=self.classifier(self.dropout(torch.tanh(self.pooler(hidden[:, 0]))))
        )


class Decoder(nn.Module):
    """Shaped as a decoder for classification: every token is scored, the last that is not padding counts."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 2, bias=False)
        self.embeddings = nn.Embedding(10, 8)
        self.mix = nn.Linear(8, 8)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> types.SimpleNamespace:
        scores = self.score(self.mix(self.embeddings(input_ids)).cumsum(1).tanh())
        return types.SimpleNamespace(
            logits=scores[torch.arange(len(scores)), attention_mask.sum(1) - 1]
        )


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def on(model: nn.Module, x: Tensor, classes: int = 3) -> Subject:
    return Subject(model, "cross_entropy", (x, torch.arange(len(x)) % classes))


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (on(LeNet5(), torch.randn(5, 1, 28, 28)), "11"),
        (on(ResNet20(), torch.randn(4, 3, 8, 8)), "head"),
        (on(Convolutional(), torch.randn(5, 1, 6, 6)), "head.2"),
        (Subject(Encoder(), "cross_entropy", WORDS), "classifier"),
        (Subject(Decoder(), "cross_entropy", WORDS), "score"),
    ],
)
def test_finds_the_head_and_its_features_make_the_outputs(subject: Subject, name: str) -> None:
    assert find_head(subject) == name
    features = head_features(subject)
    assert features.ndim == 2
    torch.testing.assert_close(
        head_outputs(subject, features, name), subject.outputs(), rtol=1e-5, atol=1e-6
    )
    if name == "score":
        assert subject.model.mix.out_features == features.shape[1]


def test_is_the_layer_that_makes_the_output_not_the_one_declared_or_called_last() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.side = nn.Linear(4, 3), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.head(x), self.side(x)

    assert find_head(on(Auxiliary(), torch.randn(6, 4))) == "head"


def test_is_the_last_called_where_something_follows() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), nn.LogSoftmax(1))
    assert find_head(on(model, torch.randn(6, 4))) == "2"


def test_one_layer_is_a_head_whose_features_are_the_inputs() -> None:
    x = torch.randn(6, 4)
    assert torch.equal(head_features(on(nn.Linear(4, 3), x)), x)


def test_takes_the_users_word() -> None:
    subject = on(MLP(widths=(4, 6, 3)), torch.randn(6, 4))
    first = next(
        name for name, module in subject.model.named_modules() if isinstance(module, nn.Linear)
    )
    assert torch.equal(head_features(subject, name=first), subject.train.inputs[0])


def test_is_computed_once_until_the_model_changes() -> None:
    subject = on(MLP(widths=(4, 6, 3)), torch.randn(6, 4))
    kept = head_features(subject)
    assert head_features(subject) is kept
    with torch.no_grad():
        next(subject.model.parameters()).add_(1)
    assert not torch.equal(head_features(subject), kept)


@pytest.mark.parametrize("case", CASES)
def test_leaves_no_trace(case: str) -> None:
    subject = CASES[case](torch.float32)
    subject.model.train()
    before = copy.deepcopy(subject.model.state_dict())
    head_features(subject)
    assert all(
        torch.equal(before[name], value) for name, value in subject.model.state_dict().items()
    )
    assert all(module.training and not module._forward_hooks for module in subject.model.modules())


def test_leaves_no_trace_after_an_exception() -> None:
    class Bomb(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ArithmeticError("the bomb went off")

    subject = on(nn.Sequential(nn.Linear(4, 3), Bomb()), torch.randn(6, 4))
    with pytest.raises(ArithmeticError):
        find_head(subject)
    assert subject.model.training
    assert not any(module._forward_hooks for module in subject.model.modules())


@pytest.mark.parametrize(
    ("model", "name", "words"),
    [
        (nn.Sequential(nn.Flatten(), nn.Softmax(1)), "", "must call a linear layer"),
        (
            nn.Sequential(nn.Linear(4, 3)),
            "head",
            "got 'head', which is no layer. The last linear layers are: 0",
        ),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU()), "1", "which is ReLU"),
        (Tied(), "", "must not share its weight"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), "", "whose weight is computed"),
    ],
)
def test_says_what_is_wrong(model: nn.Module, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        head_features(on(model, torch.randn(6, 4)), name=name)


def test_refuses_a_head_that_is_called_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.only = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.only(self.only(x))

    with pytest.raises(InputError, match="called once per forward pass, got 2"):
        head_features(on(Twice(), torch.randn(6, 4)))


def test_layer_of_two_inputs_is_the_one_called_last() -> None:
    x = inputs(torch.float32)
    data = {"first": x, "second": x[:, :2], "labels": labels(x)}
    subject = Subject(TwoInputs(), "cross_entropy", data)
    assert find_head(subject) == "right"
    assert layer_of(subject.model, "right").in_features == 2
