"""Heads trained with many settings on one part of the training data, scored on another."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import InputError, Subject, align, as_loss, as_split, number
from mindgap.data.splits import stratified_split
from mindgap.ops.convex.heads import Kind, solve_heads
from mindgap.ops.convex.minibatch import LOSSES, kind_of
from mindgap.ops.models.head import find_head, head_features, layer_of
from mindgap.ops.variance.by_k import VarianceByK
from mindgap.ops.variance.weights import scale_weights

AT_ONCE = 2**27  # bytes of sample weights that are held at once


@dataclasses.dataclass(frozen=True)
class Score:
    """Mean loss and error per head on held-out samples, with standard errors."""

    loss: Tensor
    loss_error: Tensor
    error: Tensor
    error_error: Tensor
    converged: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Join the scores of several groups of heads."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


@dataclasses.dataclass(frozen=True)
class HeadTrials:
    """Features and targets to train heads on and to score them with, and the local variance."""

    kind: Kind
    features: Tensor
    target: Tensor
    held_features: Tensor
    held_target: Tensor
    variance: VarianceByK
    layer: torch.nn.Linear
    l2: float

    def score(self, settings: Sequence[tuple[float, int]], progress: bool = False) -> Score:
        """Score pairs of a largest weight and a number of neighbors."""
        size = max(1, AT_ONCE // (8 * len(self.features)))
        chunks = [settings[first : first + size] for first in range(0, len(settings), size)]
        return Score.joined([self._score(chunk, progress) for chunk in chunks])

    def _score(self, settings: Sequence[tuple[float, int]], progress: bool) -> Score:
        weights = torch.stack([scale_weights(self.variance(k), m) for m, k in settings])
        heads = solve_heads(
            self.kind,
            self.features,
            self.target,
            weights,
            outputs=self.layer.out_features,
            l2=self.l2,
            bias=self.layer.bias is not None,
            start=(self.layer.weight, self.layer.bias),
            progress=progress,
        )
        columns = [self._judged(outputs) for outputs in heads.outputs(self.held_features)]
        loss, error = (torch.stack(column) for column in zip(*columns, strict=True))
        return Score(
            loss.mean(1),
            _standard_error(loss),
            error.mean(1),
            _standard_error(error),
            heads.converged,
        )

    def _judged(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Compute loss and error of every held-out sample."""
        target = self.held_target if self.kind == "softmax" else self.held_target.double()
        loss = as_loss(LOSSES[self.kind])(outputs, target)
        if self.kind == "squares":
            return loss, loss
        if self.kind == "softmax":
            return loss, (outputs.argmax(1) != target).double()
        return loss, ((outputs > 0).double() != align(outputs, target)).double().flatten(1).mean(1)


def head_trials(
    subject: Subject,
    validation: Any,
    largest: int,
    *,
    l2: float = 1e-6,
    standardize: bool = False,
    head: str = "",
    seed: int = 0,
    progress: bool = False,
) -> HeadTrials:
    """Hold samples out, or use given ones, and search the neighbors of the others.

    Args:
        subject: The model and its training data.
        validation: Share of the training data to hold out, or data of its own.
        largest: Largest number of neighbors that will be tried.
        l2: Penalty on the head.
        standardize: Whether to divide each feature by its standard deviation first.
        head: Dotted name of the last linear layer; found if empty.
        seed: Seed of the held-out split.
        progress: Whether to show a progress bar.
    """
    name = find_head(subject, head)
    features, target = head_features(subject, "train", name), subject.targets("train")
    kind = kind_of(subject, features, name)
    if isinstance(validation, int | float):
        stays, held = _parted(target, number("validation", validation, 0, 1), seed)
        fit, judge = (features[stays], target[stays]), (features[held], target[held])
    else:
        other = _on(subject, validation)
        fit, judge = (
            (features, target),
            (head_features(other, "train", name), other.targets("train")),
        )
    variance = VarianceByK(
        *fit, largest, task=subject.task, standardize=standardize, progress=progress
    )
    return HeadTrials(kind, *fit, *judge, variance, layer_of(subject.model, name), l2)


def _on(subject: Subject, data: Any) -> Subject:
    split = as_split(data, what="validation data")
    return Subject(subject.model, subject.loss, split, task=subject.task, check_determinism=False)


def _parted(target: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    (held,) = stratified_split(target, (round(share * len(target)),), seed)
    stays = torch.ones(len(target), dtype=torch.bool).scatter(0, held, False).nonzero().flatten()
    if not len(held) or len(stays) < 2:
        raise InputError(
            f"validation must leave samples on both sides, got {share} of {len(target)}. Pass "
            "more data or another share."
        )
    return stays, held


def _standard_error(values: Tensor) -> Tensor:
    return (
        values.std(1) / values.shape[1] ** 0.5
        if values.shape[1] > 1
        else torch.full_like(values[:, 0], torch.nan)
    )
