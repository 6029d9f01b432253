"""Inputs that are too large, too small, off center or of very different sizes."""

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mindgap.core import Advice, Bar, Diagnosis, Evidence, Finding, Recipe, Results, Subject
from mindgap.ops.evidence.fit import fit_quality, under_fits
from mindgap.ops.evidence.inputs import channel_name, channels, is_single
from mindgap.ops.evidence.rows import Rows, rows
from mindgap.training.fit import fit

# Usual initial weights expect inputs of about unit size around zero. These limits leave a wide
# margin: images in [0, 1], codes from 0 to 20 and counts in the tens pass.
LARGE, SMALL = 30.0, 0.01  # root mean square of all inputs
OFFSET = 10.0  # mean of all inputs, in standard deviations
UNEQUAL = 100.0  # largest deviation of a column, in medians of all columns
SAMPLES = 2_000  # from which sizes are measured
NAMED = 64  # columns whose numbers fit into a line of code
# In names of estimators whose predictions do not change when a column is scaled or moved.
FREE = ("Tree", "Forest", "Boost", "XGB", "LGBM", "GaussianNB", "Discriminant", "Dummy")


class UnscaledInputs(Diagnosis):
    r"""Look for inputs that are too large, too small or too unequal to train on.

    Formula: $\sqrt{\overline{x^2}} \notin [0.01, 30] \;\text{or}\; |\bar x| > 10 \, \mathrm{sd}(x)
    \;\text{or}\; \max_j s_j > 100 \, \mathrm{median}_j \, s_j$

    Reading: Gradient steps that suit one input are far too long or too short for another. If the
    model learned its training data all the same, this is a note. It is the cause if the model is
    clearly worse on them than a simple reference predictor.

    Assumes: Inputs are numbers, not tokens. The model has no layer that scales them. Estimators that
    do not care, such as trees and pipelines that transform their inputs, are left out.

    >>> x = torch.linspace(-1, 1, 200)[:, None] * torch.tensor([1.0, 1.0, 1e4])
    >>> finding = UnscaledInputs()(Subject(torch.nn.Linear(3, 1), "mse", (x, x[:, :1])))
    >>> finding.severity, finding.sentence
    ('note', 'The inputs are of very different sizes: input 2 is 10,000 times wider than most.')
    """

    stage = "collapse"
    symptom = "unscaled inputs"
    exact = True
    cites = ("lecun2012efficient",)
    explains = frozenset(
        {
            "bad-initialization",
            "constant-predictor",
            "dead-units",
            "diverged",
            "exploding-gradients",
            "exploding-weights",
            "ignored-class",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "noise-sensitivity",
            "oscillating-loss",
            "over-confidence",
            "rank-collapse",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
            "vanishing-gradients",
        }
    )

    def missing(self, subject: Subject) -> str:
        """Say so if the model does not depend on the scale of its inputs."""
        free = _scale_free(getattr(subject.model, "estimator", None))
        words = "the model does not depend on the scale of its inputs"
        return words if free else super().missing(subject)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Measure size, offset and spread of the training inputs."""
        split = rows(subject, "train")
        if split.kind == "tokens" or not bool(torch.isfinite(split.values).all()):
            return None
        sizes = _sizes(split)
        sentence = _headline(split, sizes)
        if not sentence:
            return None
        wrong = under_fits(subject)
        return self.finding(
            sentence,
            "wrong" if wrong else "note",
            evidence=(
                Evidence(name="typical size of an input", value=sizes.size),
                Evidence(name="mean of the inputs, in standard deviations", value=sizes.offset),
                Evidence(name="widest column over the median one", value=sizes.unequal),
            ),
            sentences=(_effect(subject, wrong),),
            advice=(_advice(split, sizes),),
            charts=_charts(split, sizes),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Move all inputs far away from zero, without scaling: as years or raw counts are."""
        (inputs, targets), (others, truths) = recipe.train, recipe.test
        far = 1000.0 * strength * inputs.std()
        return fit(
            recipe.replace(train=(inputs + far, targets), test=(others + far, truths)), seed=seed
        ).subject()


def _scale_free(estimator: Any) -> bool:
    """Tell whether an estimator of scikit-learn predicts the same if all columns are scaled."""
    estimator = getattr(estimator, "best_estimator_", estimator)  # of a search
    steps = getattr(estimator, "steps", ())
    if steps:  # what a pipeline transforms is not seen here
        return len(steps) > 1 or _scale_free(steps[0][1])
    if any(word in type(estimator).__name__ for word in FREE):
        return True
    members = np.ravel(np.asarray(getattr(estimator, "estimators_", ()), dtype=object))
    return len(members) > 0 and all(map(_scale_free, members))


@dataclasses.dataclass(frozen=True)
class _Sizes:
    means: Tensor
    spreads: Tensor
    size: float
    offset: float
    unequal: float


def _sizes(split: Rows) -> _Sizes:
    random = torch.Generator().manual_seed(0)
    some = torch.randperm(len(split.values), generator=random)[:SAMPLES]
    values = channels(dataclasses.replace(split, values=split.values[some])).double()
    by_channel = values.transpose(0, 1).flatten(1)
    means, spreads = by_channel.mean(1), by_channel.std(1)
    whole = float(values.std()) if values.numel() > 1 else 0.0
    live = spreads > 1e-6 * spreads.max()
    table = split.kind == "table" and int(live.sum()) > 1
    middle = float(spreads[live].median()) if table else 1.0
    return _Sizes(
        means,
        spreads,
        float(values.square().mean().sqrt()),
        abs(float(values.mean())) / whole if whole > 0 else 0.0,
        float(spreads.max()) / middle if table else 1.0,
    )


def _headline(split: Rows, sizes: _Sizes) -> str:
    if sizes.unequal > UNEQUAL:
        widest = channel_name(split, int(sizes.spreads.argmax()))
        return (
            f"The inputs are of very different sizes: {widest} is {sizes.unequal:,.0f} times wider "
            "than most."
        )
    if sizes.offset > OFFSET:
        return (
            f"The inputs are far from zero: their mean is {sizes.offset:,.0f} times their standard "
            "deviation."
        )
    if sizes.size > LARGE:
        return f"The inputs are not scaled: their typical size is {sizes.size:,.0f}, not about 1."
    if 0 < sizes.size < SMALL:
        return f"The inputs are not scaled: their typical size is {sizes.size:.1g}, not about 1."
    return ""


def _effect(subject: Subject, wrong: bool) -> str:
    if not wrong:
        return "This model learned its training data all the same."
    found = fit_quality(subject)
    return (
        f"On its training data the model errs by {100 * found.model:.1f} %; a simple reference predictor "
        f"that scales its inputs errs by {100 * found.reference:.1f} % on samples left out."
    )


def _advice(split: Rows, sizes: _Sizes) -> Advice:
    text = "Standardize the inputs by the numbers of the training data, test inputs alike."
    if len(sizes.means) > NAMED:
        return Advice(
            text=text,
            code="mean, spread = train_inputs.mean(0), train_inputs.std(0).clamp_min(1e-6)\n"
            "train_inputs = (train_inputs - mean) / spread\n"
            "test_inputs = (test_inputs - mean) / spread",
        )
    spreads = torch.where(sizes.spreads > 0, sizes.spreads, torch.ones_like(sizes.spreads))
    view = ".view(-1, 1, 1)" if split.kind == "image" and is_single(split) else ""
    mean, spread = (
        f"torch.tensor([{', '.join(f'{value:.6g}' for value in numbers.tolist())}]){view}"
        for numbers in (sizes.means, spreads)
    )
    return Advice(
        text=text,
        code=f"mean = {mean}\nspread = {spread}\n"
        "train_inputs = (train_inputs - mean) / spread\n"
        "test_inputs = (test_inputs - mean) / spread",
    )


def _charts(split: Rows, sizes: _Sizes) -> tuple[Bar, ...]:
    if len(sizes.spreads) < 2:
        return ()
    bars = {channel_name(split, k): float(value) for k, value in enumerate(sizes.spreads)}
    logs = min(bars.values()) > 0 and max(bars.values()) > 10 * min(bars.values())
    return (
        Bar.of(
            bars,
            most=24,
            title="Standard deviation of every input",
            y_scale="log" if logs else "",
        ),
    )
