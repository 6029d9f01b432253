"""Subjects of every kind that the contracts run over: models × losses × ways to hold data."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from mindgap.core.recipe import Recipe
from mindgap.core.subject import Subject
from mindgap.nets import MLP

SAMPLES = 48
EPOCHS = 4  # of the small recipe
Case = Callable[[torch.dtype], Subject]
# A run that ends at the loss of the models below, for measures that read the curve.
HISTORY = tuple({"epoch": float(k), "train_loss": 1.2 * 0.5**k} for k in range(1, 9))


class Convolutional(nn.Module):
    """A convolution, batch normalization, dropout and a head: everything with a mode."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 9, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))


class TwoInputs(nn.Module):
    """Takes two tensors by name, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.tanh(self.left(first)) + self.right(second)


class Scaled(nn.Module):
    """A layer of the user's own, with bare parameters."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.mix = nn.Parameter(torch.eye(size))

    def forward(self, values: Tensor) -> Tensor:
        return (values * self.gain) @ self.mix


class Mixed(nn.Module):
    """Layers of every kind: convolution, normalizations, embedding, attention, recurrent, own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.words, self.norm = nn.Embedding(10, 8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.recurrent, self.own = nn.GRU(8, 6, batch_first=True), Scaled(6)
        self.head = nn.Linear(4 * 16 + 6, 3)

    def forward(self, image: Tensor, words: Tensor) -> Tensor:
        left = self.bn(self.conv(image)).relu().flatten(1)
        read = self.words(words)
        read = self.norm(read + self.attention(read, read, read)[0])
        return self.head(torch.cat([left, self.own(self.recurrent(read)[1][0])], 1))


class Rows(Dataset):
    """A plain map-style data set."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        return self.inputs[place], self.targets[place]


def inputs(dtype: torch.dtype, width: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(
        SAMPLES, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def labels(x: Tensor, classes: int = 3) -> Tensor:
    return (x.double().sum(1) * 2).round().long() % classes


def trained(model: nn.Module, dtype: torch.dtype) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model in this precision with weights moved away from the initial ones."""
    model = model.to(dtype)
    initial = copy.deepcopy(model.state_dict())
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.1 * noise.to(dtype))
    return model, initial


def seeded(factory: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return factory()


def repeatable(subject: Subject, widths: tuple[int, ...], dtype: torch.dtype) -> Subject:
    """The subject with a recipe of its kind, for measures that train again."""
    subject.recipe = Recipe(
        model=lambda: MLP(widths=widths, activation="relu").to(dtype),
        train=subject.train,
        loss=subject.loss,
        task=subject.task,
        optimizer="sgd",
        learning_rate=0.1,
        epochs=3,
        batch_size=4 * SAMPLES,
    )
    return subject


def mlp_classes(dtype: torch.dtype) -> Subject:
    x, t = inputs(dtype), inputs(dtype, seed=1)
    model, initial = trained(seeded(lambda: MLP(widths=(4, 6, 3), activation="relu")), dtype)
    subject = Subject(
        model, "cross_entropy", (x, labels(x)), (t, labels(t)), initial=initial, history=HISTORY
    )
    return repeatable(subject, (4, 6, 3), dtype)


def deep_classes(dtype: torch.dtype) -> Subject:
    x, t = inputs(dtype), inputs(dtype, seed=1)
    model, initial = trained(seeded(lambda: MLP(widths=(4, 6, 5, 3), activation="relu")), dtype)
    return Subject(
        model,
        nn.CrossEntropyLoss(),
        (x.numpy(), labels(x).numpy()),
        (t, labels(t)),
        initial=initial,
    )


def fitted_classes(dtype: torch.dtype) -> Subject:
    """Every training sample has the label that the model gives it, so that all margins are positive."""
    x, t = inputs(dtype, seed=4), inputs(dtype, seed=5)
    model, initial = trained(seeded(lambda: MLP(widths=(4, 6, 3), activation="relu")), dtype)
    with torch.no_grad():
        train, test = model(x).argmax(1), model(t).argmax(1)
    return Subject(model, "cross_entropy", (x, train), (t, test), initial=initial)


def mlp_regression(dtype: torch.dtype) -> Subject:
    x, t = inputs(dtype), inputs(dtype, seed=1)
    model, initial = trained(seeded(lambda: MLP(widths=(4, 6, 1), activation="relu")), dtype)
    subject = Subject(model, "mse", (x, x.sum(1)), (t, t.sum(1)), initial=initial)
    return repeatable(subject, (4, 6, 1), dtype)


def one_input(dtype: torch.dtype) -> Subject:
    x, t = inputs(dtype, width=1), inputs(dtype, width=1, seed=1)
    model, initial = trained(seeded(lambda: MLP(widths=(1, 6, 1), activation="relu")), dtype)
    return Subject(model, "mse", (x, x.sin()), (t, t.sin()), initial=initial)


def many_outputs(dtype: torch.dtype) -> Subject:
    x, t = inputs(dtype), inputs(dtype, seed=1)
    model, initial = trained(seeded(lambda: MLP(widths=(4, 5, 2), activation="tanh")), dtype)
    return Subject(model, nn.HuberLoss(), (x, x[:, :2].sin()), (t, t[:, :2].sin()), initial=initial)


def multilabel(dtype: torch.dtype) -> Subject:
    x, t = inputs(dtype), inputs(dtype, seed=1)
    model, initial = trained(seeded(lambda: MLP(widths=(4, 5, 2), activation="relu")), dtype)
    subject = Subject(
        model, "bce", (x, (x[:, :2] > 0).to(dtype)), (t, (t[:, :2] > 0).to(dtype)), initial=initial
    )
    return repeatable(subject, (4, 5, 2), dtype)


def convolution(dtype: torch.dtype) -> Subject:
    x = inputs(dtype, width=36).view(-1, 1, 6, 6)
    model, initial = trained(seeded(Convolutional), dtype)
    y = labels(x.flatten(1))
    return Subject(
        model,
        "cross_entropy",
        TensorDataset(x, y),
        TensorDataset(x[:20].flip(2), y[:20]),
        initial=initial,
    )


def image_classes(dtype: torch.dtype) -> Subject:
    """A ReLU chain on images, so that what needs images has invariances to show."""
    x, t = (inputs(dtype, width=16, seed=seed).view(-1, 1, 4, 4) for seed in (0, 1))
    model, initial = trained(seeded(lambda: MLP(widths=(16, 8, 3), activation="relu")), dtype)
    return Subject(
        model,
        "cross_entropy",
        (x, labels(x.flatten(1))),
        (t, labels(t.flatten(1))),
        initial=initial,
    )


def dict_batches(dtype: torch.dtype) -> Subject:
    x, z = inputs(dtype), inputs(dtype, width=2, seed=2)
    model, initial = trained(seeded(TwoInputs), dtype)
    data = {"first": x, "second": z, "labels": labels(x)}
    test = {name: value[:20] for name, value in data.items()}
    return Subject(
        model, "cross_entropy", data, {**test, "first": test["first"] + 0.1}, initial=initial
    )


def loaders(dtype: torch.dtype) -> Subject:
    x, t = inputs(dtype), inputs(dtype, seed=1)
    model, initial = trained(seeded(lambda: MLP(widths=(4, 6, 3), activation="tanh")), dtype)
    train = DataLoader(Rows(x, labels(x)), batch_size=7, shuffle=True, drop_last=True)
    return Subject(model, "cross_entropy", train, Rows(t, labels(t)), initial=initial)


CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        mlp_classes,
        deep_classes,
        fitted_classes,
        mlp_regression,
        one_input,
        many_outputs,
        multilabel,
        convolution,
        image_classes,
        dict_batches,
        loaders,
    )
}
LAYERED = (
    "mlp_classes",
    "deep_classes",
    "fitted_classes",
    "mlp_regression",
    "one_input",
    "multilabel",
    "image_classes",
)  # ReLU chains


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def changed(subject: Subject, change: str) -> Subject:
    """A new subject, transformed in a way that a measure may claim not to see."""
    model = copy.deepcopy(subject.model)
    train, test = subject.train, subject.test
    layers, generator = linear_layers(model), torch.Generator().manual_seed(5)
    with torch.no_grad():
        if change == "sample-order":
            train = train.subset(torch.randperm(len(train), generator=generator))
        elif change == "duplication":
            train = train.subset(torch.arange(len(train)).repeat(2))
            test = None if test is None else test.subset(torch.arange(len(test)).repeat(2))
        elif change == "output-scaling":
            layers[-1].weight.mul_(1.7)
            layers[-1].bias.mul_(1.7)
        elif change == "relu-rescaling":
            layers[0].weight.mul_(3.0)
            layers[0].bias.mul_(3.0)
            layers[1].weight.div_(3.0)
        elif change == "unit-permutation":
            order = torch.randperm(layers[0].out_features, generator=generator)
            layers[0].weight.copy_(layers[0].weight[order])
            layers[0].bias.copy_(layers[0].bias[order])
            layers[1].weight.copy_(layers[1].weight[:, order])
        else:
            raise AssertionError(change)
    return Subject(
        model,
        subject.loss,
        train,
        test,
        initial=subject.initial,
        task=subject.task,
        recipe=subject.recipe,
        history=subject.history,
    )


def mixed() -> Subject:
    """A classification by a model of every kind of layer, which no contract needs to run over."""
    source = torch.Generator().manual_seed(0)

    def drawn() -> tuple[dict[str, Tensor], Tensor]:
        image = torch.randn(SAMPLES, 1, 4, 4, generator=source)
        words = torch.randint(10, (SAMPLES, 5), generator=source)
        return {"image": image, "words": words}, words[:, 0] % 3

    model, initial = trained(seeded(Mixed), torch.float32)
    return Subject(model, "cross_entropy", drawn(), drawn(), initial=initial, history=HISTORY)


def recipe(**changes: object) -> Recipe:
    """A small recipe that every remedy can treat."""
    x, t = inputs(torch.float32), inputs(torch.float32, seed=1)
    settings: dict[str, object] = {
        "model": lambda: MLP(widths=(4, 8, 3), activation="relu"),
        "train": (x, labels(x)),
        "test": (t, labels(t)),
        "epochs": EPOCHS,
        "batch_size": 10,
        "learning_rate": 0.05,
    }
    return Recipe(**{**settings, **changes})
