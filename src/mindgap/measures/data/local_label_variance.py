"""How much labels vary among near training samples."""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import (
    Estimate,
    Heatmap,
    InputError,
    Inputs,
    Measure,
    MindgapError,
    Subject,
    Undefined,
    evaluating,
    option,
)
from mindgap.data.splits import stratified_split
from mindgap.ops.models.head import find_head, head_features, layer_of
from mindgap.ops.samples import as_shown, class_name, in_words, shown_inputs
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.ops.variance.heaviest import MOST, Cloud, Heavy, look, shared_out, weigh
from mindgap.ops.variance.local import Task
from mindgap.ops.variance.plane import plane_of

MOST_SAMPLES = 20_000  # seconds, not minutes
MOST_NUMBERS = 1_500_000  # samples times features: about two seconds on one core
FEWEST = 500  # a subset of fewer shows nothing


class LocalLabelVariance(Measure):
    r"""Variance of the labels among near training samples, mean over the samples.

    Formula: $\frac{1}{n} \sum_i \frac{1}{k-1} \sum_{j \in S_k(i)} \left\| y_j - \bar y_{S_k(i)}
    \right\|^2$

    Reading: Zero if the ``k`` nearest training samples of every sample carry one label. A sample with
    a high variance lies where classes meet or values change quickly, and variance-weighting would
    give it more weight. But a high local variance is also the mark of a wrong label: look at the
    samples first. A single wrong label in a calm place weighs little; it shows as a suspect.

    Assumes: A small distance between the features that enter the last linear layer means similar
    samples. Without such a layer, distances are those of the inputs.

    >>> x = torch.arange(40.0)[:, None]
    >>> subject = Subject(torch.nn.Linear(1, 2), "cross_entropy", (x, (x[:, 0] > 19).long()))
    >>> result = LocalLabelVariance(k=5)(subject)
    >>> round(float(result), 4), [heavy["index"] for heavy in result.details["heaviest"]]
    (0.05, [19, 20, 18, 21])
    """

    method = ("V4", "V5", "V10")
    cites = ("novello2020variance",)
    direction = "lower"
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )
    cost = "moderate"

    k: int = option(20, help="neighbors, the sample itself included; fewer for small data", low=2)
    shown: int = option(24, help="samples to show", low=0)
    seed: int = option(0, help="seed of the subset that is searched if there are many", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean variance, the weights that follow, and the samples to look at."""
        try:
            return self._computed(subject)
        except InputError as error:
            raise Undefined(str(error)) from error

    def _computed(self, subject: Subject) -> Estimate:
        part, index, features, source = self._features(subject)
        labels, task = _labels(part)
        cloud = Cloud(
            features, labels, lambda value: _say(part, value), lambda at: _shown(part, at), index
        )
        weigher = VarianceWeights(min(self.k, max(2, len(labels) // 4)), task=task)
        weighed = weigh(weigher, features, labels)
        found = look(cloud, weigher, weighed, *shared_out(weighed, min(self.shown, MOST)))
        varied = bool((weighed.variance > 0).any())
        some = "" if part is subject else f" of {found.samples:,} samples, drawn at random,"
        searched = f"The {weigher.k} nearest neighbors{some} were searched in {source}."
        return Estimate(
            value=float(weighed.variance.mean()),
            terms={
                "k": weigher.k,
                "samples": found.samples,
                "of": len(subject.train),
                "mean_weight": found.mean,
                "largest_weight": found.largest,
                "suspects": found.suspects,
            },
            details={
                "features": source,
                "heaviest": [_told(heavy) for heavy in found.heaviest],
                "doubtful": [_told(heavy) for heavy in found.doubtful],
            },
            charts=dataclasses.replace(
                found,
                plane=_plane(part, labels, weighed.weights, weigher),
                histogram=dataclasses.replace(
                    found.histogram, caption=f"{found.histogram.caption} {searched}"
                ),
            ).charts
            if varied
            else (),
        )

    def _features(self, subject: Subject) -> tuple[Subject, Tensor, Tensor, str]:
        """Return the samples, their places, and the features to search in, with a name."""
        try:
            head = find_head(subject)
            index = self._subset(subject, layer_of(subject.model, head).in_features)
            part = _part(subject, index)
            features = head_features(part, "train", head).detach().cpu().flatten(1)
        except MindgapError:
            width = shown_inputs(subject.train.take(torch.arange(1)).inputs).numel()
            index = self._subset(subject, width)
            part = _part(subject, index)
            return part, index, _inputs(part), "the inputs"
        return part, index, features, f"the inputs of the last linear layer{head and f', {head}'}"

    def _subset(self, subject: Subject, width: int) -> Tensor:
        """Return all places, or as many as can be searched in seconds, stratified by class."""
        most = min(MOST_SAMPLES, max(FEWEST, MOST_NUMBERS // max(width, 1)))
        if len(subject.train) <= most:
            return torch.arange(len(subject.train))
        targets = subject.targets("train").cpu()
        targets = targets if subject.task == "classification" else targets.double()
        return stratified_split(targets, (most,), seed=self.seed)[0]


def _part(subject: Subject, index: Tensor) -> Subject:
    """Return the same model with some of its training data."""
    return subject if len(index) == len(subject.train) else subject.part(index)


def _inputs(subject: Subject) -> Tensor:
    inputs = subject.train.take(torch.arange(len(subject.train))).inputs
    values = shown_inputs(inputs)
    if len(inputs) > 1 or (values.ndim == 2 and not values.is_floating_point()):
        raise InputError(
            "Neighbors must be searched among numbers, got a model without a last linear layer and "
            "inputs that are tokens or several tensors. End the model with nn.Linear."
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
    return in_words(subject, value)


def _shown(subject: Subject, places: Tensor) -> list[dict[str, str]]:
    inputs: Inputs = subject.train.take(places).inputs
    predictions = subject.predictions("train").cpu()
    return [
        {"prediction": _predicted(subject, predictions[place]), **shown}
        for place, shown in zip(places.tolist(), as_shown(shown_inputs(inputs)), strict=True)
    ]


def _predicted(subject: Subject, value: Tensor) -> str:
    single = subject.task == "multilabel" and value.numel() == 1
    return _say(subject, value.reshape(()) if single else value)


def _told(heavy: Heavy) -> dict[str, object]:
    return {
        "index": heavy.index,
        "weight": heavy.weight,
        "target": heavy.target,
        "around": heavy.around,
        "agreement": heavy.agreement,
        "suspect": heavy.suspect,
    }


def _plane(
    subject: Subject, labels: Tensor, weights: Tensor, weigher: VarianceWeights
) -> Heatmap | None:
    """Return the map, if the inputs are points of the plane."""
    few = subject.train.take(torch.arange(1)).inputs
    first = shown_inputs(few)
    if len(few) > 1 or tuple(first.shape[1:]) != (2,) or not first.is_floating_point():
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
