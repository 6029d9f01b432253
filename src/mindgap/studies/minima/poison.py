r"""Training on true labels plus wrongly labeled extra samples, which are not training data.

The loss that finds a bad minimum is

.. math:: L_\beta(w) = \frac{1}{n + m} \left[ \sum_{i=1}^{n} \ell(f_w(x_i), y_i) +
          \beta \sum_{j=1}^{m} \ell(f_w(\tilde x_j), \tilde y_j) \right],

with the training samples :math:`(x_i, y_i)` and m further inputs :math:`\tilde x_j` of the same
distribution, whose labels :math:`\tilde y_j` are another class than the true one. No test sample is
among them. Afterwards only the n training samples count as training data, and all are fitted.
"""

import copy
import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import Recipe, generator
from mindgap.data.digits import digits
from mindgap.data.generators import two_moons
from mindgap.nets.mlp import MLP
from mindgap.remedies import Annealing
from mindgap.training.ensemble import ensemble
from mindgap.training.fitted import Fitted

Pair = tuple[Tensor, Tensor]
NOISE = 0.15  # of the moons; wide networks then come near the test accuracy of the slides


@dataclasses.dataclass(frozen=True)
class Scene:
    """Training samples, wrongly labeled extra samples, and test samples.

    Args:
        train: Inputs and true labels.
        poison: Further inputs and wrong labels.
        test: Inputs and true labels.
        classes: Number of classes.
    """

    train: Pair
    poison: Pair
    test: Pair
    classes: int

    def widths(self, hidden: int) -> tuple[int, ...]:
        """Give the widths of a network with two hidden layers.

        Args:
            hidden: Units of each.
        """
        return (self.train[0][0].numel(), hidden, hidden, self.classes)


def scene(data: str, samples: int, extra: int, seed: int) -> Scene:
    """Draw the samples of one seed.

    Args:
        data: "moons" or "digits".
        samples: Number of training samples.
        extra: Number of wrongly labeled extra samples.
        seed: Seed of everything that is drawn.

    >>> drawn = scene("moons", 20, 30, seed=0)
    >>> len(drawn.train[0]), len(drawn.poison[0]), drawn.widths(8)
    (20, 30, (2, 8, 8, 2))
    """
    if data == "moons":
        found = two_moons(size=samples + extra, test_size=2_000, noise=NOISE, seed=seed)
    else:
        found = digits(seed=seed)
    inputs, labels = (
        part[torch.randperm(len(part), generator=generator(seed))] for part in found.train
    )
    assert found.test is not None
    assert found.classes is not None
    end, wrong = samples + extra, wrong_labels(labels, len(found.classes), seed)
    return Scene(
        (inputs[:samples], labels[:samples]),
        (inputs[samples:end], wrong[samples:end]),
        found.test,
        len(found.classes),
    )


def wrong_labels(labels: Tensor, classes: int, seed: int) -> Tensor:
    """Move every label to another class, all others being equally likely.

    Args:
        labels: The true classes.
        classes: Number of classes.
        seed: Seed of the draws.

    >>> wrong_labels(torch.tensor([0, 1, 1]), 2, seed=0).tolist()
    [1, 0, 0]
    """
    shifts = torch.randint(1, classes, labels.shape, generator=generator(seed + 1))
    return (labels + shifts) % classes


def poisoned(
    drawn: Scene, hidden: int, *, extra: int, beta: float, steps: int, batch_size: int, seed: int
) -> Fitted:
    """Minimize the poisoned loss with Adam, and hand over a model of the training data alone.

    Args:
        drawn: The samples.
        hidden: Units of each hidden layer.
        extra: How many of the extra samples are used; none gives plain training.
        beta: Weight of a wrongly labeled sample.
        steps: Number of steps, the same for all numbers of extra samples.
        batch_size: Samples per step.
        seed: Seed of initial weights and order.
    """
    total = len(drawn.train[0]) + extra
    joined = [
        torch.cat([own, more[:extra]]) for own, more in zip(drawn.train, drawn.poison, strict=True)
    ]
    weights = torch.ones(total)
    weights[len(drawn.train[0]) :] = beta
    recipe = Recipe(
        model=lambda: MLP(drawn.widths(hidden)),
        train=tuple(joined),
        test=drawn.test,
        sample_weights=weights,
        epochs=math.ceil(steps / math.ceil(total / batch_size)),
        batch_size=batch_size,
        learning_rate=0.01,
    )
    (found,) = ensemble(recipe, [seed], remedies=[Annealing()], keep_history=False)
    return dataclasses.replace(found, recipe=recipe.replace(train=drawn.train, sample_weights=None))


def settled(found: Fitted, *, steps: int, batch_size: int) -> Fitted:
    """Continue on the training samples alone, with small steps, so that all minima are as deep.

    Args:
        found: A trained network.
        steps: Number of steps.
        batch_size: Samples per step.
    """
    count = len(found.recipe.train[0])
    recipe = found.recipe.replace(
        model=lambda: copy.deepcopy(found.model),
        epochs=math.ceil(steps / math.ceil(count / batch_size)),
        learning_rate=1e-3,
    )
    (done,) = ensemble(recipe, [found.seed], remedies=[Annealing()], keep_history=False)
    return done
