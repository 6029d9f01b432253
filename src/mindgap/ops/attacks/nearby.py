"""How far samples are from the nearest training sample with another target."""

import dataclasses

import torch
from torch import Tensor

from mindgap.core import InputError, Subject
from mindgap.ops.evidence.reference import reference
from mindgap.ops.evidence.rows import FEW_COLUMNS, components, rows
from mindgap.ops.samples import tensors_of

COMPARED = 4000  # training samples among which the nearest other one is searched
OTHER = 0.5  # standard deviations by which the target of another sample differs, in a regression


@dataclasses.dataclass(frozen=True)
class Nearby:
    """Test samples, and how far it is from each to another target.

    Args:
        places: Where the samples are in the test split.
        inputs: The samples as the model takes them.
        distances: From each to the nearest training sample with another target, in units of ``scale``.
        scale: The standard deviation of every number of an input where there are few, of all
            together otherwise; zero where it never changes. It has the shape of one sample.
    """

    places: Tensor
    inputs: Tensor
    distances: Tensor
    scale: Tensor

    def first(self, count: int) -> "Nearby":
        """Return the first samples only.

        Args:
            count: How many at most.
        """
        places, inputs, distances = (
            part[:count] for part in (self.places, self.inputs, self.distances)
        )
        return Nearby(places, inputs, distances, self.scale)


def nearby(subject: Subject, samples: int) -> Nearby:
    """Draw test samples and find the nearest training sample with another target of each.

    In a regression the target must differ by half a standard deviation. Samples without such a
    neighbor, or on top of it, are left out.

    Args:
        subject: A model with test data, whose inputs are one tensor of real numbers.
        samples: How many to draw at most.

    >>> x, y = torch.tensor([[0.0], [1.0], [4.0], [5.0]]), torch.tensor([0, 0, 1, 1])
    >>> found = nearby(Subject(torch.nn.Linear(1, 2), "cross_entropy", (x, y), (x, y)), 4)
    >>> (found.distances / found.distances.min()).round().sort().values.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    found = rows(subject, "test")
    tensors = tensors_of(subject.split("test").take(found.places[:1]).inputs)
    if len(tensors) != 1 or not tensors[0].is_floating_point():
        raise InputError("Noise needs inputs that are one tensor of numbers, got others.")
    random = torch.Generator().manual_seed(0)
    test = torch.randperm(len(found.places), generator=random)[:samples]
    train = torch.randperm(len(rows(subject, "train").places), generator=random)[:COMPARED]
    distances = _nearest_other(subject, test, train)
    known = torch.isfinite(distances) & (distances > 0)
    places = found.places[test[known]]
    shape = tensors[0].shape[1:]
    inputs = tensors[0][:0]
    if len(places):
        inputs = tensors_of(subject.split("test").take(places).inputs)[0]
    return Nearby(places, inputs.detach().cpu(), distances[known], _scale(subject).view(shape))


def _nearest_other(subject: Subject, test: Tensor, train: Tensor) -> Tensor:
    """Return distances to the nearest training sample whose target is another; infinite if none."""
    near, far = components(subject)[1][test], components(subject)[0][train]
    known = reference(subject)
    ours, theirs = known.test_targets[test], known.train_targets[train]
    if subject.task == "regression":
        spread = known.train_targets.std(0).clamp_min(1e-12)
        alike = torch.cdist(ours / spread, theirs / spread) < OTHER
    else:
        alike = torch.cdist(ours, theirs) < 0.5
    return torch.cdist(near, far).masked_fill(alike, torch.inf).amin(1)


def _scale(subject: Subject) -> Tensor:
    pool = torch.cat([rows(subject, "train").values, rows(subject, "test").values])
    spread = (pool - pool.mean(0)).std(0)
    if pool.shape[1] > FEW_COLUMNS:
        spread = (pool - pool.mean(0)).std().expand(pool.shape[1])
    return torch.where(spread > 1e-12, spread, torch.zeros_like(spread))
