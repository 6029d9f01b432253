"""A subject before training: its network, its second moments, and what measures say of it."""

from collections.abc import Callable, Iterator

from torch import Tensor, nn

from mindgap.core import Batch, Inputs, Subject, Undefined, Which, copied
from mindgap.ops.evidence.passes import operations, some_places
from mindgap.ops.initialization.propagation import Propagation, propagation

SAMPLES, FEWEST = 256, 8  # of the training data, in one batch
OPERATIONS = 2**34  # of that batch: the moments of large networks would fill the memory
WORK = 2**30  # samples times weights of one pass: some seconds


def propagation_of(subject: Subject, which: str = "final") -> Propagation:
    """Follow training samples and the gradient of their losses through a subject's network.

    Args:
        subject: Its model is not changed.
        which: ``"final"``, or ``"initial"`` for the weights from before training, which must be
            given or follow from the recipe.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> found = propagation_of(Subject(net, "mse", (torch.eye(2), torch.ones(2, 1))))
    >>> [layer.name for layer in found.layers]
    ['0', '2']
    """

    def make() -> Propagation:
        model = subject.model if which == "final" else initial_model(subject)
        assert model is not None
        inputs, loss = batch_of(subject)
        return propagation(model, inputs, loss=loss)

    return subject.cached(("initialization: propagation", which), make)


def batch_of(
    subject: Subject, samples: int | None = None
) -> tuple[Inputs, Callable[[Tensor], Tensor]]:
    """Take training samples, and the function that makes the sum of their losses of outputs.

    Args:
        subject: Brings data and loss.
        samples: How many at most; None for ``SAMPLES``, or fewer of a large network.

    >>> import torch
    >>> data = (torch.eye(3), torch.ones(3, 1))
    >>> inputs, loss = batch_of(Subject(nn.Linear(3, 1), "mse", data), samples=2)
    >>> len(inputs[0]), float(loss(torch.zeros(2, 1)))
    (2, 2.0)
    """
    if samples is None:
        samples = min(SAMPLES, max(FEWEST, OPERATIONS // operations(subject)))
    places = some_places(subject, "train", samples)
    targets = subject.targets("train").cpu()[places]
    return (
        subject.train.take(places).inputs,
        lambda output: subject.loss(output, targets.to(output.device)).sum(),
    )


def initial_model(subject: Subject) -> nn.Module | None:
    """Return the network with its weights from before training, or None if they are unknown."""
    if subject.initial is not None:
        model = copied(subject.model)
        model.load_state_dict(subject.initial)
        return model
    return None if subject.recipe is None else subject.recipe.build(subject.seed)


class _Untrained(Subject):
    """A subject as it was before training; passes over many samples are refused.

    Measures that look at the weights alone still have a value then.
    """

    def batches(self, which: Which = "train") -> Iterator[Batch]:
        """Read all samples in their fixed order, if a pass takes seconds only."""
        weights = sum(weight.numel() for weight in self.model.parameters())
        if len(self.split(which)) * weights > WORK:
            raise Undefined("a pass over all samples with the initial weights takes too long")
        return super().batches(which)


def untrained(subject: Subject) -> Subject | None:
    """Return the subject with its initial weights, or None if they are unknown.

    Args:
        subject: Its model is not changed, and its history is left out.

    >>> import torch
    >>> model, data = nn.Linear(1, 1, bias=False), (torch.ones(2, 1), torch.ones(2, 1))
    >>> before = {"weight": torch.zeros(1, 1)}
    >>> float(untrained(Subject(model, "mse", data, initial=before)).outputs().sum())
    0.0
    """
    if subject.initial is None:
        return None
    model = initial_model(subject)
    assert model is not None
    return _Untrained(
        model,
        subject.loss,
        subject.train,
        subject.test,
        initial=subject.initial,
        task=subject.task,
        name=subject.name,
        classes=subject.classes,
        seed=subject.seed,
        batch_size=subject.batch_size,
        check_determinism=False,
    )
