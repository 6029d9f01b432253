"""Heads on fixed features: weights by local variance beside the controls that tell what they are worth.

The features of a trained network's head on train, validation and test data.
"""

import dataclasses
import functools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mindgap.core import InputError, Recipe, Subject, generator
from mindgap.ops.convex.heads import Heads, solve_heads
from mindgap.ops.convex.minibatch import Minibatch
from mindgap.ops.models.head import find_head, head_features, layer_of
from mindgap.ops.variance.by_k import VarianceByK
from mindgap.ops.variance.weights import mean, permuted, scale_weights
from mindgap.training.ensemble import ensemble

Rows = tuple[Tensor, Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadParts:
    """Features and classes: to train heads on, to choose settings on, and to judge on once; and the trained head."""

    train: Rows
    validation: Rows
    test: Rows
    head: nn.Linear

    @property
    def classes(self) -> int:
        """Number of outputs of the head."""
        return self.head.out_features


def head_parts(
    model: nn.Module, train: Rows, validation: Rows, test: Rows, head: str = ""
) -> HeadParts:
    """Pass the data of a classification through a network once, up to its last linear layer.

    >>> import torch
    >>> square = torch.eye(2), torch.tensor([0, 1])
    >>> head_parts(nn.Sequential(nn.ReLU(), nn.Linear(2, 3)), square, square, square).classes
    3
    """
    subjects = [
        Subject(model, "cross_entropy", rows, check_determinism=False)
        for rows in (train, validation, test)
    ]
    name = find_head(subjects[0], head)
    first, second, third = (
        (head_features(subject, name=name), subject.targets("train")) for subject in subjects
    )
    return HeadParts(train=first, validation=second, test=third, head=layer_of(model, name))


Setting = tuple[float, int]
EXACT = ("no weights", "VBSW", "permuted", "VBSW, chosen", "permuted, chosen")
MINIBATCH = ("no weights", "VBSW", "permuted", "VBSW, mean 1", "step × mean weight")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadWeights:
    """One row of weights a setting (largest weight, neighbors), and the same weights on other samples."""

    settings: tuple[Setting, ...]
    published: int
    rows: Tensor
    mixed: Tensor

    @property
    def own(self) -> Tensor:
        """The weights of the published setting."""
        return self.rows[self.published]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactArms:
    """Test accuracies in percent, the settings that validation data chose, and how many heads reached the optimum."""

    accuracy: dict[str, float]
    chosen: dict[str, Setting]
    converged: float


def head_weights(
    train: Rows, settings: Sequence[Setting], published: Setting, seed: int
) -> HeadWeights:
    """Weights by local variance for all settings from one search; the control moves all of them by one permutation.

    >>> square, classes = (
    ...     torch.tensor([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]]),
    ...     torch.tensor([0, 1, 1, 1]),
    ... )
    >>> found = head_weights((square, classes), [(3.0, 2), (5.0, 2)], (5.0, 2), seed=0)
    >>> found.own.tolist(), sorted(found.mixed[1].tolist())
    ([5.0, 5.0, 1.0, 1.0], [1.0, 1.0, 5.0, 5.0])
    """
    if published not in settings:
        raise InputError(
            f"settings must hold the published one, got none equal to {published}. Add it to the "
            "grid."
        )
    by_k = VarianceByK(*train, max(k for _, k in settings), task="classification")
    rows = torch.stack([scale_weights(by_k(k), largest) for largest, k in settings])
    mixed = permuted(rows.T, generator(seed)).T
    return HeadWeights(
        settings=tuple(settings), published=settings.index(published), rows=rows, mixed=mixed
    )


def exact_arms(parts: HeadParts, weights: HeadWeights, l2: float = 1e-6) -> ExactArms:
    """Heads at the optimum of the weighted loss: published setting and setting chosen on validation, and controls.

    The lowest validation error chooses, and the lower validation loss where errors are equal.
    """
    every = torch.cat([torch.ones_like(weights.rows[:1]), weights.rows, weights.mixed])
    heads = solve_heads("softmax", *parts.train, every, outputs=parts.classes, l2=l2)
    test = accuracy_of(heads.outputs(parts.test[0]), parts.test[1])
    count, first = len(weights.settings), weights.published
    best, best_mixed = (
        _chosen(heads, parts.validation, 1, count),
        _chosen(heads, parts.validation, 1 + count, count),
    )
    places = (0, 1 + first, 1 + count + first, 1 + best, 1 + count + best_mixed)
    return ExactArms(
        accuracy=dict(zip(EXACT, (float(test[place]) for place in places), strict=True)),
        chosen={"VBSW": weights.settings[best], "permuted": weights.settings[best_mixed]},
        converged=float(heads.converged.double().mean()),
    )


def minibatch_arms(
    parts: HeadParts, weights: HeadWeights, seeds: Sequence[int], settings: Minibatch
) -> dict[str, list[float]]:
    """Test accuracies of new heads trained by Adam in small batches, a number a seed, in percent.

    A seed fixes the first weights of the head and the order of the samples, the same in all arms.
    """
    own, mixed = weights.own, weights.mixed[weights.published]
    plain, average = torch.ones_like(own), mean(own)
    rows = torch.stack([plain, own, mixed, own / average, plain])
    factors = torch.tensor([average if "step" in arm else 1.0 for arm in MINIBATCH])
    recipe = Recipe(
        model=functools.partial(nn.Linear, parts.train[0].shape[1], parts.classes),
        train=parts.train,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
    )
    members = ensemble(
        recipe,
        list(seeds) * len(MINIBATCH),
        sample_weights=rows.repeat_interleave(len(seeds), 0),
        learning_rates=(settings.learning_rate * factors).repeat_interleave(len(seeds)),
        keep_history=False,
    )
    with torch.no_grad():
        outputs = torch.stack([member.model(parts.test[0]) for member in members])
    found = accuracy_of(outputs, parts.test[1]).view(len(MINIBATCH), -1).tolist()
    return dict(zip(MINIBATCH, found, strict=True))


def _chosen(heads: Heads, validation: Rows, start: int, count: int) -> int:
    """Which of some heads following one another does best on validation data."""
    outputs = heads.outputs(validation[0])[start : start + count]
    accuracy = accuracy_of(outputs, validation[1]).tolist()
    loss = [float(cross_entropy(output, validation[1])) for output in outputs]
    return max(range(count), key=lambda place: (accuracy[place], -loss[place]))


def accuracy_of(outputs: Tensor, target: Tensor) -> Tensor:
    """Percent right of each head, from outputs (heads, samples, classes).

    >>> accuracy_of(torch.tensor([[[0.0, 1.0], [0.0, 1.0]]]), torch.tensor([1, 0])).tolist()
    [50.0]
    """
    return 100 * (outputs.argmax(2) == target).double().mean(1)
