"""Heads retrained on the features of a network: variance-based weights and their controls."""

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
    """The inputs of a network's head with their classes, and the head.

    Args:
        train: To train heads on.
        validation: To choose settings on.
        test: To judge on, once.
        head: The trained head.
    """

    train: Rows
    validation: Rows
    test: Rows
    head: nn.Linear

    @property
    def classes(self) -> int:
        """The number of outputs of the head."""
        return self.head.out_features


def head_parts(
    model: nn.Module, train: Rows, validation: Rows, test: Rows, head: str = ""
) -> HeadParts:
    """Compute the features that enter the last linear layer of a classifier.

    Args:
        model: The trained classifier.
        train: Training inputs and classes.
        validation: Validation inputs and classes.
        test: Test inputs and classes.
        head: Name of the last layer; found automatically if empty.

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
# Weights of mean 1 are no arm: Adam does not see the scale of the loss.
MINIBATCH = ("no weights", "VBSW", "permuted", "step × mean weight")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadWeights:
    """The sample weights of every setting, and the same weights permuted over the samples.

    Args:
        settings: Pairs of largest weight m and number of neighbors k.
        published: Index of the published setting.
        rows: One row of weights per setting.
        mixed: The same rows, permuted.
    """

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
    """Results of the heads at their exact optimum.

    Args:
        accuracy: Test accuracy by arm, in percent.
        chosen: The settings that validation data chose.
        converged: Share of heads whose solver converged.
    """

    accuracy: dict[str, float]
    chosen: dict[str, Setting]
    converged: float


def head_weights(
    train: Rows, settings: Sequence[Setting], published: Setting, seed: int
) -> HeadWeights:
    """Compute variance-based weights of all settings from one neighbor search.

    Args:
        train: Features and classes of the training samples.
        settings: Pairs of largest weight m and number of neighbors k.
        published: The published pair, one of ``settings``.
        seed: For the permutation of the control, the same for all settings.

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
    """Solve for heads at the optimum of the weighted loss and judge the arms ``EXACT``.

    The setting with the lowest validation error is chosen; the validation loss breaks ties.

    Args:
        parts: The features.
        weights: The weights of all settings.
        l2: Penalty on the weights of the head.
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
    """Train new heads by Adam in small batches and return their test accuracies, in percent.

    A seed fixes the initial weights and the order of the samples, for all arms alike.

    Args:
        parts: The features.
        weights: The weights of all settings; the published one is used.
        seeds: One head per arm and seed.
        settings: Epochs, batch size and learning rate.
    """
    own, mixed = weights.own, weights.mixed[weights.published]
    plain, average = torch.ones_like(own), mean(own)
    rows = torch.stack([plain, own, mixed, plain])
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
    """Return which of ``count`` consecutive heads does best on validation data."""
    outputs = heads.outputs(validation[0])[start : start + count]
    accuracy = accuracy_of(outputs, validation[1]).tolist()
    loss = [float(cross_entropy(output, validation[1])) for output in outputs]
    return max(range(count), key=lambda place: (accuracy[place], -loss[place]))


def accuracy_of(outputs: Tensor, target: Tensor) -> Tensor:
    """Return the accuracy of each head, in percent.

    Args:
        outputs: Logits, ``(heads, samples, classes)``.
        target: The classes.

    >>> accuracy_of(torch.tensor([[[0.0, 1.0], [0.0, 1.0]]]), torch.tensor([1, 0])).tolist()
    [50.0]
    """
    return 100 * (outputs.argmax(2) == target).double().mean(1)
