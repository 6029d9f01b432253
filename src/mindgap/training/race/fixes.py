"""Fixes of a cause that a diagnosis found, as arms of the race; and how they are applied."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Batch, Finding, Recipe, Split
from mindgap.training.race.arm import Arm

_MOST = 0.5  # share of the training samples that may be dropped or relabeled
DROP, RELABEL, RESCALE, RECOMPUTE, LONGER = (
    "drop suspects",
    "relabel suspects",
    "rescale inputs",
    "recompute BatchNorm",
    "train longer",
)


def fixes_of(findings: Sequence[Finding], recipe: Recipe, samples: int) -> list[Arm]:
    """Make the arms that correct what was found.

    Args:
        findings: What diagnoses found on training and validation data.
        recipe: The recipe as it is.
        samples: Number of all training samples, in which suspects are named by their places.
    """
    told = [f for f in findings if f.severity != "note" and not f.explained_by]
    arms = [arm for finding in told for arm in _fixes(finding, recipe, samples)]
    return list({arm.group: arm for arm in reversed(arms)}.values())[::-1]


def _fixes(finding: Finding, recipe: Recipe, samples: int) -> list[Arm]:
    if finding.symptom == "wrong labels":
        return _cleaned(finding, samples)
    if finding.symptom == "unscaled inputs":
        return [Arm(name=RESCALE, group=RESCALE, fix={"rescale": True})]
    if finding.symptom == "broken evaluation":
        return [Arm(name=RECOMPUTE, group=RECOMPUTE, fix={"recompute": True})]
    if finding.symptom == "under-fitting":
        more = {"epochs": 4 * recipe.epochs}
        return [Arm(name=LONGER, group=LONGER, cost=4.0, settings=more)]
    return []


def _cleaned(finding: Finding, samples: int) -> list[Arm]:
    suspects = finding.suspects
    if suspects is None or suspects.split != "train" or not suspects.index:
        return []
    if len(suspects.index) > _MOST * samples:
        return []
    index = list(suspects.index)
    arms = [Arm(name=DROP, group=DROP, fix={"drop": sorted(index)})]
    labels = suspects.columns.get("suggested number", suspects.columns.get("suggested"))
    if labels is not None and all(isinstance(label, int) for label in labels):
        pairs = sorted(zip(index, labels, strict=True))
        arms.append(Arm(name=RELABEL, group=RELABEL, fix={"relabel": [list(p) for p in pairs]}))
    return arms


class _Relabeled(Split):
    """A split in which some targets are replaced."""

    def __init__(self, whole: Split, index: Tensor, targets: Tensor) -> None:
        self._whole, self._targets = whole, whole.targets.clone()
        self._targets[index] = targets.to(self._targets)

    def __len__(self) -> int:
        return len(self._whole)

    def take(self, index: Tensor) -> Batch:
        """Read the samples, with the new targets."""
        return Batch(self._whole.take(index).inputs, self._targets[index], index)

    @property
    def targets(self) -> Tensor:
        """All targets in order."""
        return self._targets


def cleaned(train: Split, places: Tensor, fix: Mapping[str, Any]) -> tuple[Split, Tensor]:
    """Apply what a fix does to the training samples.

    Args:
        train: All training samples.
        places: Those to train on.
        fix: Its plain data.

    Returns:
        The samples to train on, and their places.
    """
    if "relabel" in fix:
        pairs = torch.tensor(fix["relabel"])
        train = _Relabeled(train, pairs[:, 0], pairs[:, 1])
    if "drop" in fix:
        places = places[~torch.isin(places, torch.tensor(fix["drop"]))]
    return train.subset(places), places


class Standardize(nn.Module):
    """Subtract the mean of every feature and divide by its standard deviation."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the standardized inputs."""
        return (inputs - self.mean) / self.scale


def rescaled(recipe: Recipe) -> Recipe:
    """Put the scaling in front of the model, with the numbers of the training data."""
    train, _ = recipe.splits()
    values = torch.cat([_only(batch) for batch in train.batches(1024)])
    scale = values.std(0)
    layer = Standardize(values.mean(0), torch.where(scale > 0, scale, torch.ones_like(scale)))
    return recipe.replace(model=functools.partial(_in_front, layer, recipe.model))


def _only(batch: Batch) -> Tensor:
    (value,) = batch.inputs.values() if isinstance(batch.inputs, dict) else batch.inputs
    return value.float()


def _in_front(layer: nn.Module, model: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(layer, model())


def recompute(model: nn.Module, train: Split) -> nn.Module:
    """Recompute the statistics of all BatchNorm layers as plain means over the training data.

    Args:
        model: The trained model, which is changed.
        train: The training samples.
    """
    layers = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    kept = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    model.eval()
    for layer in layers:
        layer.train()
    with torch.no_grad():
        for batch in train.batches(512):
            if isinstance(batch.inputs, dict):
                model(**batch.inputs)
            else:
                model(*batch.inputs)
    for layer, momentum in zip(layers, kept, strict=True):
        layer.momentum = momentum
    return model.eval()
