"""How much the loss varies within the cells of a partition."""

import torch
from torch import Tensor

from mindgap.core import Bar, Estimate, Measure, Subject, Undefined, Which, generator, option
from mindgap.ops.concentration import robustness_bound
from mindgap.ops.paths.subject import inputs_of

BLOCK = 2**12  # samples whose inputs are in double precision at once


class LossVariationInCells(Measure):
    r"""Largest difference of losses between a training sample and any sample of its cell.

    Formula: $\hat\epsilon = \max_{s \in S} \max_{z \in S \cup S', \, z \sim s} |\ell(s) - \ell(z)|$

    Reading: A cell holds the inputs on the same sides of random planes, with the same label. The
    variation is that of the samples that are there, so it is a lower estimate of the robustness ε
    of Xu and Mannor. ``plugged_in`` is their bound with this estimate for ε and the largest loss
    for M. It is no guarantee; usually it is above any loss. More planes make ε smaller and the
    number of cells larger.

    Assumes: One input of real numbers per sample. The planes go through the origin and do not depend
    on the data, as the theorem demands.

    >>> x = torch.tensor([[1.0], [2.0], [-1.0], [-2.0]])
    >>> model = torch.nn.Identity()
    >>> subject = Subject(model, "mse", (x, torch.zeros(4, 1)))
    >>> float(LossVariationInCells(planes=1)(subject))
    3.0
    """

    method = ("K3",)
    cites = ("xu2012robustness",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    planes: int = option(4, help="random planes that cut the inputs into cells", low=0, high=20)
    seed: int = option(0, help="seed of the planes", low=0)
    delta: float = option(0.05, help="probability with which the bound may fail", above=0, below=1)

    def compute(self, subject: Subject) -> Estimate:
        """Return the largest variation over cells, and what the theorem would make of it."""
        both: tuple[Which, ...] = ("train",) if subject.test is None else ("train", "test")
        labels = torch.cat([_labels(subject, which) for which in both])
        classes = int(labels.max()) + 1
        cells = torch.cat([self._cells(subject, which) for which in both]) * classes + labels
        losses = torch.cat([subject.losses(which).double().cpu() for which in both])
        count, own = classes * 2**self.planes, len(subject.train)
        found = _variation(losses, cells, own)
        if not torch.isfinite(found).all():
            raise Undefined("needs finite losses")
        largest, empirical = float(losses.max()), float(losses[:own].mean())
        value = float(found.max())
        plugged = robustness_bound(empirical, value, count, own, self.delta, largest)
        terms = {
            "mean_variation": float(found.mean()),
            "cells": float(count),
            "cells_with_training_samples": float(len(found)),
            "largest_loss": largest,
            "plugged_in": plugged,
        }
        worst = found.sort(descending=True).values[:20].tolist()
        chart = Bar.of(
            {f"cell {k + 1}": one for k, one in enumerate(worst)},
            title="Variation of the loss in the cells where it is largest",
            y_label="difference of losses",
            wide=False,
        )
        return Estimate(value=value, status="estimate", terms=terms, charts=(chart,))

    def _cells(self, subject: Subject, which: Which) -> Tensor:
        width = inputs_of(subject, which, torch.arange(1)).numel()
        planes = torch.randn(width, self.planes, generator=generator(self.seed), dtype=torch.double)
        blocks = torch.arange(len(subject.split(which))).split(BLOCK)
        sides = torch.cat([_flat(subject, which, block) @ planes > 0 for block in blocks])
        return (sides.long() * 2 ** torch.arange(self.planes)).sum(1)


def _flat(subject: Subject, which: Which, places: Tensor) -> Tensor:
    return inputs_of(subject, which, places).detach().cpu().double().flatten(1)


def _labels(subject: Subject, which: Which) -> Tensor:
    """Return the label's part of a cell; targets that are no classes do not divide."""
    targets = subject.targets(which).cpu()
    return targets if subject.task == "classification" else torch.zeros(len(targets)).long()


def _variation(losses: Tensor, cells: Tensor, own: int) -> Tensor:
    """Return the variation of every cell with a training sample; these are the first ``own``."""
    _, cells = cells.unique(return_inverse=True)
    count = int(cells.max()) + 1

    def extreme(part: slice, how: str, start: float) -> Tensor:
        empty = torch.full((count,), start, dtype=torch.double)
        return empty.scatter_reduce(0, cells[part], losses[part], how)

    every, training = slice(None), slice(own)
    top, bottom = extreme(every, "amax", -torch.inf), extreme(every, "amin", torch.inf)
    high, low = extreme(training, "amax", -torch.inf), extreme(training, "amin", torch.inf)
    seen = torch.bincount(cells[training], minlength=count) > 0
    return torch.maximum(top - low, high - bottom)[seen]
