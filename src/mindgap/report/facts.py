"""The plain facts about a subject."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.core.loss import align
from mindgap.core.subject import Subject
from mindgap.ops.overlap import overlap
from mindgap.ops.parameters import count
from mindgap.report.parts import Facts


def facts_of(subject: Subject, stopped: str = "") -> Facts:
    """Sizes, errors, the best constant answer's error and the overlap of test and train data."""
    tested = subject.test is not None
    return Facts(
        name=subject.name,
        task=subject.task,
        loss=subject.loss.name,
        train_samples=len(subject.train),
        test_samples=len(subject.test) if subject.test is not None else 0,
        parameters=sum(count(subject.model).values()),
        train_loss=subject.mean_loss("train"),
        train_error=subject.mean_error("train"),
        baseline=baseline(subject),
        test_loss=subject.mean_loss("test") if tested else None,
        test_error=subject.mean_error("test") if tested else None,
        overlap=overlap(subject.test, subject.train) if subject.test is not None else 0.0,
        initial=subject.initial is not None,
        stopped=stopped,
    )


def baseline(subject: Subject) -> float:
    """The train error of the best constant answer: commonest class, commonest labels, or mean target."""
    targets = subject.targets("train")
    if subject.task == "classification":
        return 1 - int(torch.bincount(targets.cpu()).max()) / len(targets)
    if subject.task == "multilabel":
        share = targets.double().flatten(1).mean(0) if targets.ndim > 1 else targets.double().mean()
        return float(torch.minimum(share, 1 - share).mean())
    return float(_constant_losses(subject, targets).double().mean())


def _constant_losses(subject: Subject, targets: Tensor) -> Tensor:
    mean = targets.mean(0, keepdim=True).expand_as(targets)
    outputs = subject.outputs("train")
    return subject.loss(mean.reshape(align(outputs, targets).shape), targets)
