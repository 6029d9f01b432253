"""A model that answers the same sample differently when asked again."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Histogram,
    Interval,
    Recipe,
    Results,
    Split,
    Subject,
    Suspects,
    evaluating,
    proportion_interval,
    seeded,
)
from mindgap.ops.evidence.passes import asked_twice, errors_of, pass_over, unlike, unseen
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.training.fit import fit

PASSES = 5  # over the same samples: the error of each is a draw
SAMPLES = 1_000
# Rounding differs between two passes on some devices; randomness that matters is far larger.
ROUNDING = 1e-4  # of the outputs' standard deviation
CHANGED = 0.01  # of the predictions: noise that decides less is a note

CODE = "x = torch.nn.functional.dropout(x, p, training=self.training)"


class RandomOutputs(Diagnosis):
    r"""Look for outputs that change when the same samples are asked again in evaluation mode.

    Formula: $\exists\, i : f_1(x_i) \ne f_2(x_i) \;\text{in two passes of the same model}$

    Reading: Every number about this model is one draw of many. Often dropout is left on by
    ``F.dropout(x)`` without ``training=self.training``.

    Assumes: Randomness is not wanted. A stochastic (Gibbs) classifier is random by design.

    >>> net = nn.Sequential(nn.Linear(1, 1))
    >>> _ = net.register_forward_hook(lambda _, x, y: y + torch.randn_like(y))
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> RandomOutputs()(Subject(net, "mse", (x, x))).severity
    'wrong'
    """

    stage = "evaluation"
    voids = True
    symptom = "broken evaluation"
    exact = True
    cites = ("srivastava2014dropout",)
    explains = frozenset(
        {
            "ignored-class",
            "noise-sensitivity",
            "oscillating-loss",
            "over-confidence",
            "over-fitting",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Pass over the same samples twice, and several times more if the outputs differ."""
        places, first, second = asked_twice(subject, SAMPLES)
        noise = (first - second).abs().double()
        spread = first.double().std(0, correction=0).max().clamp_min(1e-12)
        if float(noise.max()) <= ROUNDING * float(spread) + 1e-6 * float(first.abs().max()):
            return None
        some = subject.split(unseen(subject)).subset(places)
        with evaluating(subject.model), seeded(0):  # the first two again, and others
            first, *more = [_pass(subject, some) for _ in range(PASSES)]
        changed = torch.stack([unlike(subject, first, other).cpu() for other in more]).any(0)
        errors = [errors_of(subject, out, some.targets).double() for out in (first, *more)]
        return self._told(
            subject, changed, [float(error.mean()) for error in errors], noise, places
        )

    def _told(
        self,
        subject: Subject,
        changed: Tensor,
        errors: list[float],
        noise: Tensor,
        places: Tensor,
    ) -> Finding:
        which, count, total = unseen(subject), int(changed.sum()), len(changed)
        data = "training" if which == "train" else "test"
        what = "error" if subject.task != "regression" else "loss, as a share of the baseline's,"
        low, high = min(errors), max(errors)
        return self.finding(
            f"The same sample gets other outputs when asked again: {100 * count / total:.1f} % of the "
            f"{data} predictions change.",
            "wrong" if count > CHANGED * total else "note",
            evidence=(
                Evidence(
                    name=f"predictions that change within {PASSES} passes",
                    value=count / total,
                    interval=proportion_interval(count, total),
                    percent=True,
                ),
                Evidence(
                    name=f"{data} {what.rstrip(',')} of a pass",
                    value=sum(errors) / len(errors),
                    interval=Interval(low=low, high=high, level=1 - 2 / (len(errors) + 1)),
                    percent=True,
                ),
            ),
            sentences=(
                f"Over {len(errors)} passes the {data} {what} lay between {100 * low:.1f} % and "
                f"{100 * high:.1f} %. All numbers here are of one pass.",
            ),
            advice=(
                Advice(
                    text="Switch dropout and noise off in evaluation mode: pass the flag to "
                    "functions, or use layers such as nn.Dropout.",
                    code=CODE,
                ),
                Advice(text="If randomness is wanted, average the outputs of several passes."),
            ),
            charts=(
                Histogram.of(
                    {f"{data} samples": noise.reshape(total, -1).amax(1)},
                    title="Largest change of a sample's outputs between two passes",
                    x_label="absolute change",
                ),
            ),
            suspects=_suspects(subject, changed, noise, places),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Leave dropout on in evaluation mode, as ``F.dropout(x)`` does."""
        rate = 0.5 * min(strength, 1.5)
        return fit(
            with_layer(recipe, lambda _: _AlwaysDropped(rate), after=True), seed=seed
        ).subject()


class _AlwaysDropped(nn.Module):
    """Dropout that does not know of modes."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, inputs: Tensor) -> Tensor:
        return F.dropout(inputs, self.rate)


def _pass(subject: Subject, some: Split) -> Tensor:
    return pass_over(subject.checked_forward, some, subject.batch_size)


def _suspects(subject: Subject, changed: Tensor, noise: Tensor, places: Tensor) -> Suspects:
    """Return the samples whose predictions change, the least stable first."""
    size = noise.reshape(len(changed), -1).amax(1).cpu()
    found = changed.nonzero().flatten()
    found = found[size[found].argsort(descending=True, stable=True)]
    return Suspects(
        split=unseen(subject),
        index=places[found].tolist(),
        columns={"change": [round(value, 6) for value in size[found].tolist()]},
    )
