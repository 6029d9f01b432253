"""Where the labels of a subject's training data vary, in the features of its last layer; never a reason to fail.

The plane of two features: local variance on a grid, samples on top, and where the model changes its
mind.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import InputError, Inputs, MindgapError, Subject, evaluating, generator
from mindgap.data.splits import stratified_split
from mindgap.ops.images import as_images
from mindgap.ops.models.head import find_head, head_features, layer_of
from mindgap.ops.variance.by_k import grid_over, variance_at
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.ops.variance.local import Task
from mindgap.report.sections.label_variance.summary import Cloud, Plane, Variance, look, weigh
from mindgap.report.sections.samples import MOST_VALUES, class_name, label, row, shown_inputs

CELLS = 41  # lines each way: fine enough for the eye, and a page stays small
MOST_POINTS = 1000  # drawn; more would hide the map below them
MOST_GROUPS = 6  # colors that can be told apart
DIGITS = 4  # that matter in a drawing


def plane_of(
    points: Tensor,
    labels: Tensor,
    weights: Tensor,
    *,
    k: int,
    task: Task,
    say: Callable[[Tensor], str],
    names: tuple[str, ...] = ("first feature", "second feature"),
    outputs: Callable[[Tensor], Tensor] | None = None,
) -> Plane:
    """The map around samples of shape (n, 2); ``outputs`` gives a classifier's logits at any places."""
    grid = grid_over(points, CELLS)
    variance = variance_at(grid.places, points, labels, k=k, task=task)
    margins = [] if outputs is None else _margins(outputs(grid.places))
    shown = torch.randperm(len(points), generator=generator(0))[:MOST_POINTS].sort().values
    targets, groups = _groups(labels[shown], task, say)
    return Plane(
        names=names,
        x=_short(grid.x),
        y=_short(grid.y),
        variance=tuple(map(_short, grid.rows(variance))),
        points=tuple(map(_short, points[shown])),
        targets=_short(targets),
        weights=_short(weights[shown]),
        labels=groups,
        margins=tuple(tuple(map(_short, grid.rows(margin))) for margin in margins),
    )


def _margins(outputs: Tensor) -> list[Tensor]:
    """What is zero where the answer changes: a logit, a difference of two, or each minus the largest other."""
    logits = outputs.detach().double().cpu().reshape(len(outputs), -1)
    if logits.shape[1] <= 2:
        return [logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0)]
    if logits.shape[1] > MOST_GROUPS:
        return []
    others = logits.repeat(logits.shape[1], 1, 1)
    others.diagonal(dim1=0, dim2=2).fill_(-torch.inf)
    return list((logits.T - others.amax(2)).unbind(0))


def _groups(
    labels: Tensor, task: Task, say: Callable[[Tensor], str]
) -> tuple[Tensor, tuple[str, ...]]:
    """The number of every sample's label among all of them and their names; values are their own."""
    if task == "regression":
        return labels.double().reshape(len(labels), -1)[:, 0], ()
    kinds, number = labels.unique(dim=0, return_inverse=True)
    if len(kinds) > MOST_GROUPS:
        return torch.zeros(len(labels)), ("samples",)
    return number, tuple(say(kind) for kind in kinds)


def _short(values: Tensor) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in values.tolist())


NEIGHBORS = 20  # the default of variance weighting
MOST_SAMPLES = 20_000  # seconds, not minutes
MOST_NUMBERS = 1_500_000  # samples times features: about two seconds on one core
FEWEST = 500  # a sample of fewer shows nothing


def variance_of(subject: Subject, count: int) -> Variance:
    """The weights of the training samples and the ``count`` to look at, or the reason why there are none."""
    try:
        return _measured(subject, count)
    except MindgapError as error:
        return Variance(reason=str(error))
    except KeyboardInterrupt:
        return Variance(reason="interrupted")
    except Exception as error:  # a report must not be lost for one of its sections
        return Variance(
            reason=f"failed with {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        )


def _measured(subject: Subject, count: int) -> Variance:
    part, index, features, source = _sought(subject)
    labels, task = _labels(part)
    cloud = Cloud(
        features, labels, lambda value: _say(part, value), lambda places: _shown(part, places)
    )
    weigher = VarianceWeights(min(NEIGHBORS, max(2, len(labels) // 4)), task=task)
    weighed = weigh(weigher, features, labels)
    if not bool((weighed.variance > 0).any()):
        raise InputError(
            f"The {weigher.k} nearest training samples of every sample carry one label: all "
            "weights are 1."
        )
    found = look(cloud, weigher, weighed, count)
    return dataclasses.replace(
        found,
        of=len(subject.train),
        features=source,
        heaviest=tuple(
            dataclasses.replace(heavy, index=int(index[heavy.index])) for heavy in found.heaviest
        ),
        doubtful=tuple(
            dataclasses.replace(heavy, index=int(index[heavy.index])) for heavy in found.doubtful
        ),
        plane=_plane(part, labels, weighed.weights, weigher),
    )


def _sought(subject: Subject) -> tuple[Subject, Tensor, Tensor, str]:
    """The samples, their places, and the features to seek neighbors in: those of the head, else the inputs."""
    try:
        head = find_head(subject)
        index = _sampled(subject, layer_of(subject.model, head).in_features)
        part = _part(subject, index)
        name = f"the last linear layer, {head}" if head else "the model, which is one linear layer"
        return (
            part,
            index,
            head_features(part, "train", head).detach().cpu().flatten(1),
            f"what enters {name}",
        )
    except MindgapError:
        index = _sampled(subject, shown_inputs(subject.train.take(torch.arange(1)).inputs).numel())
        part = _part(subject, index)
        return part, index, _inputs(part), "the inputs"


def _sampled(subject: Subject, width: int) -> Tensor:
    """All places, or as many as can be searched in seconds, every class with its share."""
    most = min(MOST_SAMPLES, max(FEWEST, MOST_NUMBERS // max(width, 1)))
    if len(subject.train) <= most:
        return torch.arange(len(subject.train))
    targets = subject.targets("train").cpu()
    return stratified_split(
        targets if subject.task == "classification" else targets.double(), (most,), seed=0
    )[0]


def _part(subject: Subject, index: Tensor) -> Subject:
    """The same model with some of its training data."""
    if len(index) == len(subject.train):
        return subject
    return Subject(
        subject.model,
        subject.loss,
        subject.train.subset(index),
        task=subject.task,
        classes=subject.classes,
        batch_size=subject.batch_size,
        check_determinism=False,
    )


def _inputs(subject: Subject) -> Tensor:
    inputs = subject.train.take(torch.arange(len(subject.train))).inputs
    values = shown_inputs(inputs)
    if len(inputs) > 1 or (values.ndim == 2 and not values.is_floating_point()):
        raise InputError(
            "Neighbors must be sought among numbers, got a model without a last linear layer and "
            "inputs that are "
            "tokens or several tensors. End the model with nn.Linear."
        )
    return values.detach().cpu().double().flatten(1)


def _labels(subject: Subject) -> tuple[Tensor, Task]:
    """Targets and task; one yes-or-no label is a class of two."""
    targets = subject.targets("train").detach().cpu()
    if subject.task == "multilabel" and targets.numel() == len(targets):
        return targets.reshape(-1).round().long(), "classification"
    return targets, subject.task


def _say(subject: Subject, value: Tensor) -> str:
    if subject.task == "multilabel" and value.ndim == 0:
        return class_name(subject.classes if len(subject.classes) == 2 else (), int(value))
    return label(subject, value)


def _shown(subject: Subject, places: Tensor) -> list[dict[str, object]]:
    inputs: Inputs = subject.train.take(places).inputs
    values, predictions = shown_inputs(inputs), subject.predictions("train").cpu()
    images = as_images(values)
    return [
        {
            "prediction": _predicted(subject, predictions[place]),
            "image": images[k] if images else "",
            "values": () if images else row(values[k]),
            "more": 0 if images else max(values[k].numel() - MOST_VALUES, 0),
        }
        for k, place in enumerate(places.tolist())
    ]


def _predicted(subject: Subject, value: Tensor) -> str:
    single = subject.task == "multilabel" and value.numel() == 1
    return _say(subject, value.reshape(()) if single else value)


def _plane(
    subject: Subject, labels: Tensor, weights: Tensor, weigher: VarianceWeights
) -> Plane | None:
    """The map, if the inputs are points of the plane."""
    few = subject.train.take(torch.arange(1)).inputs
    if (
        len(few) > 1
        or tuple(shown_inputs(few).shape[1:]) != (2,)
        or not shown_inputs(few).is_floating_point()
    ):
        return None
    inputs = subject.train.take(torch.arange(len(subject.train))).inputs

    def outputs(places: Tensor) -> Tensor:
        with evaluating(subject.model):
            return subject.forward(
                dict.fromkeys(inputs, places) if isinstance(inputs, dict) else (places,)
            )

    return plane_of(
        shown_inputs(inputs).detach().cpu(),
        labels,
        weights,
        k=weigher.k,
        task=weigher.task,
        say=lambda value: _say(subject, value),
        outputs=outputs if weigher.task == "classification" else None,
    )
