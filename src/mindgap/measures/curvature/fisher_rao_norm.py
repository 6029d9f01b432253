"""The Fisher–Rao norm of the weights."""

import math

import torch
from torch import Tensor
from torch.func import jvp

from mindgap.core import Batch, Estimate, Histogram, Subject, option, standard_error
from mindgap.measures.curvature.curvature_measure import CurvatureMeasure
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import Linearized, differentiating, pulled
from mindgap.ops.evidence.passes import affordable
from mindgap.ops.taylor.metric import load_forward_mode

PASSES = 3  # of a forward derivative


class FisherRaoNorm(CurvatureMeasure):
    r"""Length of the weights, measured by how much the losses change along them.

    Formula: $\lVert w \rVert_{fr} = \sqrt{\frac{1}{n} \sum_i \langle w, \nabla_w \ell_i(w)
    \rangle^2}$

    Reading: Claimed to be small where a network generalizes well. It does not change when ReLU
    layers are rescaled. In a network of d layers without biases it is d times the root mean square
    of ⟨∂ℓ/∂f, f⟩, which Jiang and others print, squared; ``squared`` is the square of the value.
    It vanishes as the training loss does. ``model`` takes the labels from the model's own
    distribution instead of the data, which does not.

    Assumes: The loss is a negative log-likelihood for ``model`` to be a Fisher information.

    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> _ = model.weight.data.fill_(2.0)
    >>> subject = Subject(model, "mse", (torch.tensor([[1.0]]), torch.tensor([[1.0]])))
    >>> float(FisherRaoNorm()(subject))  # the loss (w − 1)² has slope 2; times w = 2
    4.0
    """

    method = ("E10",)
    cites = ("liang2019fisher", "jiang2020fantastic")
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "duplication", "relu-rescaling"})
    cost = "cheap"

    samples: int = option(
        10_000, help="training samples to use, drawn at random if there are more", low=2
    )

    def compute(self, subject: Subject) -> Estimate:
        """Return the norm, its square, and the changes of all losses along the weights."""
        flat = self.flat(subject, affordable(subject, self.samples, passes=PASSES, work=self.work))
        with differentiating(flat):
            pairs = [_changes(flat, batch) for batch in flat.batches()]
        changes, curvatures = (
            torch.cat(parts).double().cpu() for parts in zip(*pairs, strict=True)
        )
        square = float(changes.square().mean())
        whole = flat.samples == len(subject.train)
        error = (
            standard_error(changes.square().tolist()) / (2 * math.sqrt(square)) if square else 0.0
        )
        return Estimate(
            value=math.sqrt(square),
            status="exact" if whole else "estimate",
            standard_error=None if whole else error,
            terms={"squared": square, "model": math.sqrt(max(float(curvatures.mean()), 0.0))},
            details=self.told(flat, subject),
            charts=(
                Histogram.of(
                    {"training samples": changes},
                    title="Change of the losses along the weights",
                    x_label="⟨w, ∇ℓ⟩",
                ),
            ),
        )


def _changes(flat: FlatLoss, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return first and second derivatives of the losses as the outputs move along the weights."""
    outputs, moved = _moved(flat, batch)
    here = outputs.detach().requires_grad_()
    losses = flat.subject.loss(here, batch.target).sum()
    (slope,) = torch.autograd.grad(losses, here, create_graph=True)
    bent = pulled(slope, here, moved[None])[0]
    changes, curvatures = slope * moved, bent * moved
    rows = len(outputs), -1
    return changes.detach().view(rows).sum(1), curvatures.detach().view(rows).sum(1)


def _moved(flat: FlatLoss, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the outputs, and how they change along the weights."""
    point = flat.point
    load_forward_mode()
    try:
        with torch.no_grad():
            found = jvp(lambda at: flat.outputs(at, batch.inputs), (point,), (point,))
        return found[0], found[1]
    except (RuntimeError, NotImplementedError):  # a layer without a forward derivative
        linear = Linearized(flat, point, batch)
        return linear.outputs.detach(), linear.moved(point[None])[0].detach()
