"""Where the labels of a subject's train data vary, in the features of its last layer; never a reason to fail."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from mindgap.core.errors import InputError, MindgapError
from mindgap.core.purity import evaluating
from mindgap.core.split import Inputs
from mindgap.core.subject import Subject
from mindgap.data.splits import stratified_split
from mindgap.ops.head import find_head, head_features, layer_of
from mindgap.ops.pictures import as_pictures
from mindgap.ops.variance import Task
from mindgap.ops.variance_weights import VarianceWeights
from mindgap.report.plane import plane_of
from mindgap.report.samples import MOST_VALUES, class_name, label, row, shown_inputs
from mindgap.report.variance import Cloud, look, weigh
from mindgap.report.variance_parts import Plane, Variance

NEIGHBORS = 20  # the default of variance weighting
MOST_SAMPLES = 20_000  # seconds, not minutes
MOST_NUMBERS = 1_500_000  # samples times features: about two seconds on one core
FEWEST = 500  # a sample of fewer shows nothing


def variance_of(subject: Subject, count: int) -> Variance:
    """The weights of the train samples and the ``count`` to look at, or the reason why there are none."""
    try:
        return _measured(subject, count)
    except MindgapError as error:
        return Variance(reason=str(error))
    except KeyboardInterrupt:
        return Variance(reason="interrupted")
    except Exception as error:  # a report must not be lost for one of its sections
        return Variance(reason=f"failed with {type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _measured(subject: Subject, count: int) -> Variance:
    part, index, features, source = _sought(subject)
    labels, task = _labels(part)
    cloud = Cloud(features, labels, lambda value: _say(part, value), lambda places: _shown(part, places))
    weigher = VarianceWeights(min(NEIGHBORS, max(2, len(labels) // 4)), task=task)
    weighed = weigh(weigher, features, labels)
    if not bool((weighed.variance > 0).any()):
        raise InputError(f"The {weigher.k} nearest train samples of every sample carry one label: all weights are 1.")
    found = look(cloud, weigher, weighed, count)
    return dataclasses.replace(
        found,
        of=len(subject.train),
        features=source,
        heaviest=tuple(dataclasses.replace(heavy, index=int(index[heavy.index])) for heavy in found.heaviest),
        doubtful=tuple(dataclasses.replace(heavy, index=int(index[heavy.index])) for heavy in found.doubtful),
        plane=_plane(part, labels, weighed.weights, weigher),
    )


def _sought(subject: Subject) -> tuple[Subject, Tensor, Tensor, str]:
    """The samples, their places, and the features to seek neighbours in: those of the head, else the inputs."""
    try:
        head = find_head(subject)
        index = _sampled(subject, layer_of(subject.model, head).in_features)
        part = _part(subject, index)
        name = f"the last linear layer, {head}" if head else "the model, which is one linear layer"
        return part, index, head_features(part, "train", head).detach().cpu().flatten(1), f"what enters {name}"
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
    return stratified_split(targets if subject.task == "classification" else targets.double(), (most,), seed=0)[0]


def _part(subject: Subject, index: Tensor) -> Subject:
    """The same model with some of its train data."""
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
            "Neighbours must be sought among numbers, got a model without a last linear layer and inputs that are "
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
    pictures = as_pictures(values)
    return [
        {
            "prediction": _predicted(subject, predictions[place]),
            "picture": pictures[k] if pictures else "",
            "values": () if pictures else row(values[k]),
            "more": 0 if pictures else max(values[k].numel() - MOST_VALUES, 0),
        }
        for k, place in enumerate(places.tolist())
    ]


def _predicted(subject: Subject, value: Tensor) -> str:
    single = subject.task == "multilabel" and value.numel() == 1
    return _say(subject, value.reshape(()) if single else value)


def _plane(subject: Subject, labels: Tensor, weights: Tensor, weigher: VarianceWeights) -> Plane | None:
    """The map, if the inputs are points of the plane."""
    few = subject.train.take(torch.arange(1)).inputs
    if len(few) > 1 or tuple(shown_inputs(few).shape[1:]) != (2,) or not shown_inputs(few).is_floating_point():
        return None
    inputs = subject.train.take(torch.arange(len(subject.train))).inputs

    def outputs(places: Tensor) -> Tensor:
        with evaluating(subject.model):
            return subject.forward(dict.fromkeys(inputs, places) if isinstance(inputs, dict) else (places,))

    return plane_of(
        shown_inputs(inputs).detach().cpu(),
        labels,
        weights,
        k=weigher.k,
        task=weigher.task,
        say=lambda value: _say(subject, value),
        outputs=outputs if weigher.task == "classification" else None,
    )
