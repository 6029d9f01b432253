"""Test inputs in other units than the training inputs: one factor and offset would mend it."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Histogram,
    Line,
    Recipe,
    Results,
    Series,
    Subject,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.inputs import channel_name, channels, is_single, outputs_on
from mindgap.ops.evidence.passes import errors_of
from mindgap.ops.evidence.permutation import sign_flip_tail
from mindgap.ops.evidence.rows import Rows, rows
from mindgap.ops.evidence.two_sample import kolmogorov
from mindgap.ops.evidence.units import (
    FACTOR,
    LEVELS,
    SAMPLES,
    Maps,
    mapped_back,
    quantiles,
    unit_maps,
)
from mindgap.training.fit import fit

LEVEL = 1e-3  # raw p-value of Kolmogorov and Smirnov, times the number of tests
LEAST = 0.01  # of the error rate, or of the loss of equal probabilities, that must be gained
MENDED = 0.5  # share of the gap between training and test error that the correction must remove
NAMED = 64  # numbers that fit into a line of code


class OtherUnits(Diagnosis):
    r"""Look for test inputs in other units: another factor, offset or sign than in training.

    Formula: $x_{test} \approx f \, x_{train} + o$ in distribution, with $f \notin [1/1.5, 1.5]$,
    $f < 0$ or $|o| > 3 \, \mathrm{sd}$

    Reading: The quantiles of the test inputs are those of the training inputs after one factor and
    offset per column or channel, as after a forgotten division by 255. The cause is sure if the
    model errs less on inputs that are mapped back.

    Assumes: Most test samples are concerned. If only some are, see the diagnosis of input shift.

    >>> x = torch.rand(800, 3, generator=torch.Generator().manual_seed(0))
    >>> y = x.sum(1, keepdim=True)
    >>> net = torch.nn.Linear(3, 1)
    >>> with torch.no_grad():
    ...     _ = net.weight.fill_(1.0), net.bias.zero_()
    >>> finding = OtherUnits()(Subject(net, "mse", (x[:500], y[:500]), (255 * x[500:], y[500:])))
    >>> finding.severity, finding.sentence
    ('wrong', 'The test inputs are in other units: about 255 times the training inputs.')
    """

    stage = "split"
    symptom = "shifted inputs"
    needs = frozenset({"test"})
    cites = ("rabanser2019failing", "lecun2012efficient")
    explains = frozenset(
        {
            "gradient-masking",
            "ignored-class",
            "input-shift",
            "lagged-test-labels",
            "late-over-fitting",
            "near-copies",
            "noise-sensitivity",
            "over-confidence",
            "over-fitting",
            "permuted-test-classes",
            "rare-class",
            "shortcut",
            "shuffled-test-labels",
            "under-confidence",
            "wrong-test-labels",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Fit factor and offset to the quantiles, and try the model on inputs mapped back."""
        train, test = rows(subject, "train"), rows(subject, "test")
        if train.kind == "tokens" or train.values.shape[1] != test.values.shape[1]:
            return None
        if not (torch.isfinite(train.values).all() and torch.isfinite(test.values).all()):
            return None
        maps = unit_maps(train, test)
        if maps is None:
            return None
        p_value = _p_value(train, test, maps.changed)
        if p_value > LEVEL:
            return None
        tried = _tried(subject, maps) if is_single(train) and is_single(test) else None
        severity: Severity = "suspect"
        if tried is not None:
            severity = "wrong" if tried.mended else "note"
        return self.finding(
            _headline(train, maps),
            severity,
            p_value=p_value,
            evidence=_evidence(maps, tried),
            sentences=() if tried is None else (_effect(subject, tried),),
            advice=(_advice(train, maps),),
            charts=_charts(train, test, maps),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Multiply the test inputs by 255, or by less if the strength is less than one."""
        inputs, targets = recipe.test
        return fit(recipe.replace(test=(inputs * 255.0**strength, targets)), seed=seed).subject()


@dataclasses.dataclass(frozen=True)
class _Tried:
    """Mean errors, or losses, of the model: training, test as it is, test mapped back."""

    name: str
    train: float
    before: float
    after: float
    mended: bool


@dataclasses.dataclass(frozen=True)
class _Rule:
    """What must be gained, and whether the units are so different that a mean gain is enough."""

    least: float
    plain: bool


def _p_value(train: Rows, test: Rows, changed: Tensor) -> float:
    """Compare means and deviations of samples by channel; pixels of an image are no samples.

    Only the channels in other units are looked at, but all that were searched count.
    """
    values = [channels(split)[:SAMPLES, changed] for split in (train, test)]
    sides = [side.mean(2) for side in values]
    tests = 1
    if values[0].shape[2] > 1:
        sides = [torch.cat([side.mean(2), side.std(2)], 1) for side in values]
        tests = 2
    return min(1.0, float(kolmogorov(*sides)[1].min()) * len(changed) * tests)


def _tried(subject: Subject, maps: Maps) -> _Tried:
    """Compare test inputs as they are and mapped back, by errors or else by losses.

    A net may predict the same classes from inputs of any size, but not the same probabilities.
    """
    test = rows(subject, "test")
    random = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(test.values), generator=random)[:SAMPLES].sort().values
    back = outputs_on(subject, "test", chosen, mapped_back(test, test.values[chosen], maps))
    places = test.places[chosen].to(back.device)
    targets = subject.targets("test")[places]
    errors = _judged(
        "error",
        errors_of(subject, subject.outputs("train"), subject.targets("train")),
        errors_of(subject, subject.outputs("test")[places], targets),
        errors_of(subject, back, targets),
        _Rule(LEAST, maps.plain),
    )
    if errors.mended or subject.task == "regression":
        return errors
    losses = _judged(
        "loss",
        subject.losses("train"),
        subject.losses("test")[places],
        subject.loss(back, targets).detach(),
        _Rule(LEAST * math.log(back.shape[-1] + 1), maps.plain),
    )
    return losses if losses.mended else errors


def _judged(name: str, train: Tensor, before: Tensor, after: Tensor, rule: _Rule) -> _Tried:
    own, first, second = (float(side.double().mean()) for side in (train, before, after))
    sure = rule.plain or sign_flip_tail((before - after).cpu()) < LEVEL
    mended = first - second > max(MENDED * (first - own), rule.least) and sure
    return _Tried(name, own, first, second, mended)


def _headline(split: Rows, maps: Maps) -> str:
    k = maps.first
    factor, offset = float(maps.factors[k]), float(maps.offsets[k])
    count = int(maps.changed.sum())
    if factor < 0:
        return "The test images look inverted: dark and bright are swapped."
    equal = float(maps.factors.max() / maps.factors.min()) < FACTOR
    all_of = count == len(maps.changed) and equal
    what = "inputs" if all_of else f"values of {channel_name(split, k)}"
    also = "" if all_of or count == 1 else f" (and {count - 1} more)"
    if abs(math.log(factor)) < math.log(FACTOR):
        return f"The test {what}{also} have another zero: about {offset:+.3g} is added to them."
    plus = f", plus {offset:.3g}" if offset else ""
    return (
        f"The test {what}{also} are in other units: about {factor:.3g} times the training "
        f"{'inputs' if all_of else 'values'}{plus}."
    )


def _evidence(maps: Maps, tried: _Tried | None) -> tuple[Evidence, ...]:
    k = maps.first
    found = [
        Evidence(name="factor", value=float(maps.factors[k])),
        Evidence(name="offset", value=float(maps.offsets[k])),
        Evidence(name="columns or channels in other units", value=int(maps.changed.sum())),
    ]
    if tried is not None:
        found += [
            Evidence(name=f"test {tried.name} as it is", value=tried.before),
            Evidence(name=f"test {tried.name} of inputs mapped back", value=tried.after),
            Evidence(name=f"training {tried.name}", value=tried.train),
        ]
    return tuple(found)


def _effect(subject: Subject, tried: _Tried) -> str:
    rate = tried.name == "error" and subject.task != "regression"
    before, after = (
        f"{100 * v:.1f} %" if rate else f"{v:.3g}" for v in (tried.before, tried.after)
    )
    if not tried.mended:
        return (
            f"Mapped back, the test {tried.name} is {after} instead of {before}: the units are "
            "not what this model fails on."
        )
    return f"Mapped back, the test {tried.name} falls from {before} to {after}."


def _advice(split: Rows, maps: Maps) -> Advice:
    """Write the correction with its numbers; equal numbers of all channels become one."""
    columns = []
    for numbers in (maps.offsets, maps.factors):
        alike = split.kind != "table" and float(numbers.max() - numbers.min()) <= 0.02 * float(
            numbers.abs().max()
        )
        if alike or len(numbers) == 1:
            columns.append(f"{float(numbers.mean()):.6g}")
            continue
        view = ".view(-1, 1, 1)" if split.kind == "image" else ""
        columns.append(f"torch.tensor([{', '.join(f'{v:.6g}' for v in numbers.tolist())}]){view}")
    text = "Prepare the test inputs as the training inputs. This brings their values together:"
    if len(maps.factors) > NAMED and split.kind == "table":
        places = maps.changed.nonzero().flatten().tolist()[:NAMED]
        factors, offsets = (
            ", ".join(f"{float(v):.6g}" for v in numbers[places])
            for numbers in (maps.factors, maps.offsets)
        )
        code = (
            f"columns = {places}\n"
            f"test_inputs[:, columns] -= torch.tensor([{offsets}])\n"
            f"test_inputs[:, columns] /= torch.tensor([{factors}])"
        )
        return Advice(text=text, code=code)
    return Advice(text=text, code=f"test_inputs = (test_inputs - {columns[0]}) / {columns[1]}")


def _charts(train: Rows, test: Rows, maps: Maps) -> tuple[Histogram | Line, ...]:
    k = maps.first
    own, other = quantiles(train)[k], quantiles(test)[k]
    back = ((other - maps.offsets[k]) / maps.factors[k]).sort().values
    levels = [round(100 * level, 2) for level in LEVELS.tolist()]
    return (
        Line(
            title=f"Quantiles of {channel_name(train, k)}",
            x_label="percent of the values below",
            y_label="value",
            series=[
                Series(name="training", x=levels, y=own.tolist(), mode="lines"),
                Series(name="test", x=levels, y=other.tolist(), mode="lines"),
                Series(name="test, mapped back", x=levels, y=back.tolist(), mode="lines"),
            ],
        ),
    )
