"""Too few test samples to tell a gap from none."""

import dataclasses
import math

import torch

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    Interval,
    Mark,
    Recipe,
    Results,
    Series,
    Subject,
    mean_interval,
    proportion_interval,
)
from mindgap.ops.evidence.passes import unit
from mindgap.training.fit import fit

# A gap is settled if it is surely more than half a point, or surely less than two points.
CLEAR, NOTABLE = 0.005, 0.02
# By how much the true error may exceed the measured one. At five points a model in use may feel
# unlike the one that was tested. Ten points can hide the difference between two methods: with
# them, any claim about generalization is void. A rate of 50 % has five points at 400 samples and
# ten at 100; a rate of 0 % at 72 and 36.
WIDE, VOID = 0.05, 0.10
ENOUGH = 400  # samples of any error rate
FEWEST = 30  # samples of which a mean loss has an interval that can be trusted


@dataclasses.dataclass(frozen=True)
class _Gap:
    """The test error with its interval, and the training error, in units of the baseline."""

    train: float
    test: float
    interval: Interval

    @property
    def value(self) -> float:
        return self.test - self.train

    @property
    def reach(self) -> float:
        """By how much the true error may exceed the measured one."""
        return self.interval.high - self.test

    @property
    def settled(self) -> bool:
        low, high = (end - self.train for end in (self.interval.low, self.interval.high))
        return low > CLEAR or high <= NOTABLE


class FewTestSamples(Diagnosis):
    r"""Look for test data that are too few to tell a gap worth acting on from none.

    Formula: $\hat R_{\text{test}}^{+} - \hat R_{\text{test}} > 0.05 \;\text{and}\;
    \hat R_{\text{test}}^{-} - \hat R_{\text{train}} \le 0.005 < 0.02 < \hat R_{\text{test}}^{+} -
    \hat R_{\text{train}}$

    Reading: The ends of the interval (95 %, exact for error rates) allow both a serious gap and
    none. A clear gap in few samples is no such case. Beyond ten points every claim is void.

    Assumes: Test samples are independent.

    >>> net = torch.nn.Linear(1, 2)
    >>> x = torch.linspace(-1, 1, 60)[:, None]
    >>> with torch.no_grad():
    ...     _ = net.weight.copy_(torch.tensor([[-1.0], [1.0]])), net.bias.zero_()
    >>> y = (x[:, 0] > 0).long()
    >>> subject = Subject(net, "cross_entropy", (x, y), (x[::3] + 0.01, y[::3]))
    >>> FewTestSamples()(subject).sentence
    'With 20 test samples the true error may be 17 points above the measured 0.0 %.'
    """

    stage = "test size"
    symptom = "too few test samples"
    needs = frozenset({"test"})
    exact = True
    method = ("K2",)
    cites = ("langford2005tutorial",)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare the interval of the gap with what matters."""
        count = len(subject.split("test"))
        if count >= ENOUGH:
            return None
        gap = _gap(subject)
        # The interval of a rate is exact. That of a mean needs some samples to know the spread.
        vague = subject.task != "classification" and count < FEWEST
        if not vague and (gap.settled or gap.reach <= WIDE):
            return None
        return self._told(subject, gap, count)

    def _told(self, subject: Subject, gap: _Gap, count: int) -> Finding:
        needed = _needed(gap, count)
        what = "error" if subject.task != "regression" else "loss, in percent of the baseline's,"
        # An upper end rounds up, never in favor.
        points = math.ceil(100 * gap.reach) if math.isfinite(gap.reach) else 0
        sentence = (
            f"With {count} test samples the true {what} may be {points} points above the measured "
            f"{100 * gap.test:.1f} %."
            if points
            else f"{count} test sample is too little to know the {what.rstrip(',')}."
        )
        finite = math.isfinite(gap.reach)
        return self.finding(
            sentence,
            "wrong" if gap.reach > VOID else "suspect",
            evidence=(
                Evidence(
                    name=f"test {what.rstrip(',')}",
                    value=gap.test,
                    interval=gap.interval if finite else None,
                    percent=True,
                ),
                Evidence(name=f"training {what.rstrip(',')}", value=gap.train, percent=True),
                Evidence(name="test samples", value=count),
                *([Evidence(name="test samples that would settle it", value=needed)] * finite),
            ),
            sentences=(
                f"If the errors stay as they are, about {needed:,} test samples tell a gap worth acting "
                "on from none."
                if finite
                else f"About {needed:,} test samples give an interval that can be trusted.",
            ),
            advice=(
                Advice(
                    text=f"Test on about {needed:,} samples, or average the test "
                    "errors of several splits (cross-validation) where there are no more.",
                    code="folds = torch.randperm(len(data)).chunk(5)\n"
                    "for test in folds:\n"
                    "    train = torch.cat([fold for fold in folds if fold is not test])",
                ),
            ),
            charts=_chart(gap) if finite else (),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Keep 30 test samples, or five of a regression, whose losses say more each."""
        inputs, targets = recipe.test
        random = torch.Generator().manual_seed(seed)
        kept = round((5 if targets.is_floating_point() else 30) / strength)
        few = torch.randperm(len(targets), generator=random)[:kept]
        return fit(recipe.replace(test=(inputs[few], targets[few])), seed=seed).subject()


def _gap(subject: Subject) -> _Gap:
    errors, scale = subject.errors("test").double() / unit(subject), unit(subject)
    train = subject.mean_error("train") / scale
    if subject.task == "classification":
        interval = proportion_interval(int(errors.sum()), len(errors))
    else:
        wide = mean_interval(errors.tolist())
        interval = dataclasses.replace(wide, low=max(0.0, wide.low))
    return _Gap(train, float(errors.mean()), interval)


def _needed(gap: _Gap, count: int) -> int:
    """Return the samples at which the interval would settle the gap, if the gap stays the same.

    A half width shrinks with the square root of the number of samples. The estimate deserves
    two digits, rounded up.
    """
    if not math.isfinite(gap.reach):
        return ENOUGH
    half = (gap.interval.high - gap.interval.low) / 2
    target = max(gap.value - CLEAR, NOTABLE - gap.value)
    least = max(math.ceil(count * (half / target) ** 2), count + 1, FEWEST)
    step = int(10 ** max(0, len(str(least)) - 2))
    return -(-least // step) * step


def _chart(gap: _Gap) -> tuple[Bar, ...]:
    ends = gap.interval
    return (
        Bar(
            title="Test error with its interval",
            series=(Series(x=["test"], y=[gap.test], low=[ends.low], high=[ends.high]),),
            percent=True,
            marks=(Mark(name="training error", y=gap.train),),
        ),
    )
