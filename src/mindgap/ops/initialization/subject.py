"""The second moments of a subject's network, with its weights or with those from before training."""

import copy

from torch import nn

from mindgap.core import Subject
from mindgap.ops.evidence.passes import some_places
from mindgap.ops.initialization.propagation import Propagation, propagation

SAMPLES = 256  # of the training data, in one batch


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
        places = some_places(subject, "train", SAMPLES)
        targets = subject.targets("train").cpu()[places]
        return propagation(
            model,
            subject.train.take(places).inputs,
            loss=lambda output: subject.loss(output, targets.to(output.device)).sum(),
        )

    return subject.cached(("initialization: propagation", which), make)


def initial_model(subject: Subject) -> nn.Module | None:
    """Return the network with its weights from before training, or None if they are unknown."""
    if subject.initial is not None:
        model = copy.deepcopy(subject.model)
        model.load_state_dict(subject.initial)
        return model
    return None if subject.recipe is None else subject.recipe.build(subject.seed)
