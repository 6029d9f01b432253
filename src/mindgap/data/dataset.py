"""DataSet, which every reader and generator returns, and ``@dataset``, which registers one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mindgap.core import InputError, choice, integer, validated
from mindgap.data.splits import moments, standardize, stratified_split

TASKS = ("classification", "regression")
Texts = tuple[tuple[str, ...], ...]


@validated
@dataclass(frozen=True, eq=False, repr=False)
class DataSet:
    """Training and test data with what is known about them.

    Args:
        name: Its name for ``mindgap.data.load``.
        inputs: Training inputs, the first dimension over samples; token numbers for text.
        targets: int64 of shape (n,) for classification, float32 of shape (n, outputs) for
            regression.
        test_inputs: Like ``inputs``, or None where there is no test part.
        test_targets: Like ``targets``, or None.
        task: ``"classification"`` or ``"regression"``.
        classes: Names of the classes in the order of their numbers.
        feature_names: Names of the columns of ``inputs``.
        source: Whom to cite, and the license where it is known.
        texts: The sentences of every training sample, for text.
        test_texts: The sentences of every test sample.
        facts: Numbers that are known exactly, such as the ``"bayes_error"`` of a generator.

    >>> DataSet("dots", torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]), classes=("left", "right"))
    DataSet('dots': classification, 4 train, 0 test, inputs (2,) float32, 2 classes)
    """

    name: str
    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor | None = None
    test_targets: Tensor | None = None
    task: str = "classification"
    classes: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    source: str = ""
    texts: Texts | None = None
    test_texts: Texts | None = None
    facts: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        choice("task", self.task, TASKS)
        _check_lengths("inputs", self.inputs, self.targets, self.texts)
        if (self.test_inputs is None) != (self.test_targets is None):
            raise InputError(
                "test_inputs and test_targets must come together, got only one. Pass both or none."
            )
        if self.test_inputs is not None:
            _check_lengths("test_inputs", self.test_inputs, self.test_targets, self.test_texts)

    def __repr__(self) -> str:
        shape, kind = tuple(self.inputs.shape[1:]), str(self.inputs.dtype).removeprefix("torch.")
        test = 0 if self.test_inputs is None else len(self.test_inputs)
        classes = f", {len(self.classes)} classes" if self.classes else ""
        return (
            f"DataSet({self.name!r}: {self.task}, {len(self)} train, {test} test, "
            f"inputs {shape} {kind}{classes})"
        )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def train(self) -> tuple[Tensor, Tensor]:
        """Training inputs and targets."""
        return self.inputs, self.targets

    @property
    def test(self) -> tuple[Tensor, Tensor] | None:
        """Test inputs and targets, or None."""
        if self.test_inputs is None or self.test_targets is None:
            return None
        return self.test_inputs, self.test_targets

    def subset(self, size: int, seed: int = 0) -> "DataSet":
        """Keep some training samples, every class with its share; the test part stays whole.

        Args:
            size: Number of training samples to keep.
            seed: Seed of the choice.
        """
        integer("size", size, 1, len(self), "the number of training samples")
        return self.select(stratified_split(self.targets, (size,), seed)[0])

    def select(self, indices: Tensor) -> "DataSet":
        """Keep the training samples at some indices; the test part stays whole.

        Args:
            indices: Indices, or a mask.
        """
        places = torch.arange(len(self))[indices]
        texts = (
            None if self.texts is None else tuple(self.texts[place] for place in places.tolist())
        )
        return replace(self, inputs=self.inputs[places], targets=self.targets[places], texts=texts)

    def standardized(self) -> "DataSet":
        """Scale inputs, and targets of a regression, to mean 0 and variance 1 on the training part.

        The ``facts`` of a regression then hold ``target_mean`` and ``target_scale``: y = mean +
        scale · standardized y.
        """
        inputs, test_inputs = _together(self.inputs, self.test_inputs)
        scaled = replace(self, inputs=inputs, test_inputs=test_inputs)
        return scaled if self.task == "classification" else scaled._standardized_targets()

    def _standardized_targets(self) -> "DataSet":
        if self.targets.shape[1:] != (1,):
            raise InputError(
                f"targets must have shape (n, 1), got {tuple(self.targets.shape)}. Use "
                "standardize()."
            )
        mean, scale = moments(self.targets)
        targets, test_targets = _together(self.targets, self.test_targets)
        facts = {**self.facts, "target_mean": float(mean), "target_scale": float(scale)}
        return replace(self, targets=targets, test_targets=test_targets, facts=facts)


def _together(train: Tensor, test: Tensor | None) -> tuple[Tensor, Tensor | None]:
    if test is None:
        return standardize(train)[0], None
    scaled = standardize(train, test)
    return scaled[0], scaled[1]


def _check_lengths(name: str, inputs: Tensor, targets: Tensor | None, texts: Texts | None) -> None:
    for what, values in (("targets", targets), ("texts", texts)):
        if values is not None and len(values) != len(inputs):
            raise InputError(
                f"{name} and their {what} must have the same length, got {len(inputs)} and "
                f"{len(values)}. Drop the samples that miss one."
            )


Loader = Callable[..., DataSet]
LOADERS: dict[str, Loader] = {}


@validated
def dataset(name: str) -> Callable[[Loader], Loader]:
    """Register the function below as a data set, in this package or in a plug-in.

    The first line of its docstring says what the data are; ``mindgap list`` and the docs show it.

    Args:
        name: Name for ``mindgap.data.load``; the name of the data set that the function returns.

    >>> @dataset("two-dots")
    ... def two_dots() -> DataSet:
    ...     "Two dots on a line, one per class."
    ...     return DataSet("two-dots", torch.zeros(2, 1), torch.tensor([0, 1]))
    >>> LOADERS.pop("two-dots")()
    DataSet('two-dots': classification, 2 train, 0 test, inputs (1,) float32)
    """

    def register(loader: Loader) -> Loader:
        known = LOADERS.setdefault(name, loader)
        if (known.__module__, known.__qualname__) != (loader.__module__, loader.__qualname__):
            raise TypeError(
                f"Two data sets are called {name!r}: {known.__module__} and {loader.__module__}."
            )
        return loader

    return register
