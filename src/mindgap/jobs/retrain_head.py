"""retrain_head: give a trained model a head that minds the samples whose neighbours disagree."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from mindgap.core.errors import InputError, unknown_name
from mindgap.core.loss import Loss
from mindgap.core.subject import Subject
from mindgap.remedies.variance_weighting import RetrainedHead, VarianceWeighting
from mindgap.training.fitted import Fitted


def retrain_head(
    model: nn.Module | Subject | Fitted,
    train: Any = None,
    *,
    loss: str | Loss | Callable[..., Tensor] = "cross_entropy",
    k: int = 20,
    max_weight: float = 40.0,
    control: str = "none",
    seed: int = 0,
    **settings: Any,
) -> RetrainedHead:
    """A copy of a trained model whose last linear layer was trained again by Variance Based Samples Weighting.

    The model given stays as it is; the new one has its class, and its state dict loads back into it. A module needs
    ``train`` (inputs, targets) and ``loss``; a :class:`Subject` or what :func:`mindgap.fit` returns has them. Further
    settings are those of :class:`mindgap.remedies.VarianceWeighting`: ``solver``, ``normalize``, ``l2``, ``head`` …

    >>> import torch
    >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    >>> found = retrain_head(nn.Linear(4, 2), (x, (x[:, 0] > 0).long()), k=5, max_weight=10)
    >>> found.weights.shape, float(found.weights.max()), found.converged
    (torch.Size([60]), 10.0, True)
    """
    known = [field.name for field in dataclasses.fields(VarianceWeighting)]
    for name in settings:
        if name not in known:
            raise unknown_name("setting", name, known)
    remedy = VarianceWeighting(k=k, max_weight=max_weight, control=control, **settings)
    if not remedy.on:
        raise InputError("max_weight must be at least 1 to train the head again, got 0. Use 1 for no weights.")
    return remedy.retrain(_copied(model, train, loss), seed)


def _copied(model: Any, train: Any, loss: Any) -> Subject:
    """The model's copy with its train data alone."""
    whole = model.subject() if isinstance(model, Fitted) else model
    if isinstance(whole, Subject):
        own = whole.train if train is None else train
        twin = copy.deepcopy(whole.model)
        return Subject(twin, whole.loss, own, task=whole.task, batch_size=whole.batch_size, check_determinism=False)
    if not isinstance(whole, nn.Module) or train is None:
        raise InputError(
            f"model must be a Subject, what fit returns, or a module with train=(inputs, targets), got "
            f"{type(whole).__name__} without data. Pass the data the model was trained on."
        )
    return Subject(copy.deepcopy(whole), loss, train)
