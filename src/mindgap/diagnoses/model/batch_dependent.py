"""A model whose answer for a sample depends on the other samples of the batch."""

import torch
from torch import Tensor, nn

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    MindgapError,
    Recipe,
    Results,
    Series,
    Split,
    Subject,
    Suspects,
    evaluating,
    proportion_interval,
    seeded,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.passes import asked_twice, errors_of, pass_over, unlike, unseen
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.training.fit import fit

SAMPLES = 1_000
SMALL = 7  # batch size to compare with: odd, so that the neighbors of most samples change
# Batches of other sizes round otherwise: up to 1e-5 of the outputs' spread in 32 bits.
ROUNDING = 1e-3
REFUSALS = (ValueError, RuntimeError, MindgapError)  # of a model that cannot take such a batch
CHANGED = 0.01  # of the predictions: a dependence that decides less is a note

CODE = """for name, module in model.named_modules():
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        print(name, module.track_running_stats)  # must be True"""


class BatchDependent(Diagnosis):
    r"""Look for outputs that depend on the other samples of the batch in evaluation mode.

    Formula: $\exists\, i, B, B' \ni i : f(x_i \mid B) \ne f(x_i \mid B')$

    Reading: The model cannot answer one sample alone, and its test error depends on the batch
    size. BatchNorm without running statistics does this, and code that normalizes by
    ``x.mean(0)``.

    Assumes: The outputs are not random. That is tested first.

    >>> net = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4, track_running_stats=False))
    >>> x = torch.randn(60, 1, generator=torch.Generator().manual_seed(0))
    >>> finding = BatchDependent()(Subject(net, "mse", (x, x.expand(60, 4))))
    >>> finding.severity
    'wrong'
    """

    stage = "evaluation"
    voids = True
    symptom = "broken evaluation"
    exact = True
    method = ("S3",)
    cites = ("ioffe2015batch",)
    explains = frozenset(
        {
            "noise-sensitivity",
            "over-confidence",
            "over-fitting",
            "under-confidence",
            "under-trained",
            "too-small",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare large batches with small ones."""
        try:
            places, large, again = asked_twice(subject, SAMPLES)
        except REFUSALS:
            return self._refuses("suspect")
        some = subject.split(unseen(subject)).subset(places)
        with evaluating(subject.model), seeded(0):
            small = _pass(subject, some, SMALL)
            alone = _pass(subject, some.subset(torch.arange(min(SMALL, len(some)))), 1)
        if small is None:
            return self._refuses("suspect")
        if not _alike(large, again):  # random outputs are another diagnosis
            return None
        if not _alike(large, small):
            return self._told(subject, large, small, places)
        # Batches of seven agree, so a failure with one sample is of its shape alone.
        lone = alone is not None and _alike(large[: len(alone)], alone)
        return None if lone else self._refuses("note")

    def _told(self, subject: Subject, large: Tensor, small: Tensor, places: Tensor) -> Finding:
        targets = subject.targets(unseen(subject))[places.to(large.device)]
        changed = unlike(subject, large, small).cpu()
        count, total = int(changed.sum()), len(changed)
        data = "training" if unseen(subject) == "train" else "test"
        errors = [float(errors_of(subject, out, targets).double().mean()) for out in (large, small)]
        names = [f"batches of {min(subject.batch_size, total)}", f"batches of {SMALL}"]
        what = "error" if subject.task != "regression" else "loss, as a share of the baseline's,"
        return self.finding(
            "The output for a sample depends on the other samples of its batch: "
            f"{100 * count / total:.1f} % of the {data} predictions change with the batch size.",
            "wrong" if count > CHANGED * total else "note",
            evidence=(
                Evidence(
                    name="predictions that change with the batch size",
                    value=count / total,
                    interval=proportion_interval(count, total),
                    percent=True,
                ),
                *(
                    Evidence(name=f"{data} {what.rstrip(',')} in {name}", value=error, percent=True)
                    for name, error in zip(names, errors, strict=True)
                ),
            ),
            sentences=(
                f"The {data} {what} is {100 * errors[0]:.1f} % in {names[0]} and {100 * errors[1]:.1f} % in "
                f"{names[1]}.",
            ),
            advice=_advice(),
            charts=(
                Bar(
                    title=f"{data.capitalize()} error by batch size",
                    series=(Series(x=names, y=errors),),
                    percent=True,
                ),
            ),
            suspects=Suspects(split=unseen(subject), index=places[changed].tolist()),
        )

    def _refuses(self, severity: Severity) -> Finding:
        return self.finding(
            "The model does not answer a single sample as it answers a batch.",
            severity,
            evidence=(Evidence(name="samples that the model must see at once", value=2),),
            advice=_advice(),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Use BatchNorm without running statistics in a share of the units."""
        return fit(with_layer(recipe, lambda width: _Mixed(width, strength)), seed=seed).subject()


class _Mixed(nn.Module):
    """BatchNorm of which some channels use the statistics of the batch in every mode."""

    def __init__(self, width: int, share: float) -> None:
        super().__init__()
        self.cut = max(1, round(min(share, 1.0) * width))
        self.batch = nn.BatchNorm1d(self.cut, track_running_stats=False)
        self.running = nn.BatchNorm1d(width - self.cut) if self.cut < width else None

    def forward(self, inputs: Tensor) -> Tensor:
        first = self.batch(inputs[:, : self.cut])
        return (
            first
            if self.running is None
            else torch.cat([first, self.running(inputs[:, self.cut :])], 1)
        )


def _pass(subject: Subject, some: Split, size: int) -> Tensor | None:
    """Return the outputs, or None if the model cannot take batches of this size."""
    try:
        return pass_over(subject.checked_forward, some, size)
    except REFUSALS:
        return None


def _alike(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    spread = float(one.double().std(0, correction=0).max())
    tolerance = ROUNDING * spread + 1e-5 * float(one.abs().max())
    return float((one - other).abs().max()) <= tolerance


def _advice() -> tuple[Advice, ...]:
    return (
        Advice(
            text="Find the layer that uses statistics of the batch in evaluation mode. Give it "
            "running statistics, or use LayerNorm.",
            code=CODE,
        ),
        Advice(text="Look for mean(0), std(0) or softmax(0) over the batch in forward()."),
    )
