"""Test data on which several models were compared."""

import copy
import math

import torch

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Line,
    Mark,
    Recipe,
    Results,
    Series,
    Subject,
    binomial_tail_inverse,
    standard_error,
)
from mindgap.ops.concentration import adaptive_guarantee
from mindgap.ops.evidence.passes import unit
from mindgap.training.fit import fit

POINT = 0.01  # of error: what the choice may cost before anybody should care
DELTA = 0.05  # probability with which a guarantee may fail


class ReusedTestData(Diagnosis):
    r"""Look for test data on which several models were compared, and correct the guarantee.

    Formula: $\mathbb{E}\left[\max_{j \le m} (R_j - \hat R_j)\right] \lesssim \sqrt{2 \ln m} \,
    \mathrm{se}(\hat R), \qquad R \le \mathrm{Bin}^{-1}(n \hat R, n, \delta / m)$

    Reading: The best of several models owes a part of its lead to the test samples. The first
    expression is how much of the error may hide, the second a guarantee for all models at once. If
    what was tried next depended on the results so far, more models could have been reached than
    were tried; the last guarantee counts these.

    Assumes: The number of models is known, as ``Subject(…, judged=20)`` or from a store of runs
    (``examine(…, store=…)``); every epoch that was evaluated is a model. Test samples are
    independent.

    >>> x = torch.linspace(-1, 1, 100)[:, None]
    >>> data = (x, (x[:, 0] > 0).long())
    >>> subject = Subject(torch.nn.Linear(1, 2), "cross_entropy", data, data, judged=20)
    >>> ReusedTestData()(subject).severity
    'suspect'
    """

    stage = "test size"
    symptom = "too few test samples"
    needs = frozenset({"test"})
    exact = True
    method = ("K2",)
    cites = ("langford2005tutorial", "recht2019imagenet")

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compute what choosing the best of the models may have hidden."""
        models = subject.judged
        if models < 2:
            return None
        errors = subject.errors("test").double() / unit(subject)
        count, rate = len(errors), float(errors.mean())
        hidden = math.sqrt(2 * math.log(models)) * _error(subject, errors.tolist(), rate)
        what = "error" if subject.task != "regression" else "loss, in percent of the baseline's,"
        guarantees = _guarantees(subject, int(errors.round().sum()), count, models)
        return self.finding(
            f"{models} models were compared on these test data: the true {what} may be "
            f"{math.ceil(1000 * hidden) / 10:.1f} points higher than measured.",
            "suspect" if hidden > POINT else "note",
            evidence=(
                Evidence(name=f"test {what.rstrip(',')}", value=rate, percent=True),
                Evidence(name="what the choice may hide", value=hidden, percent=True),
                Evidence(name="models compared", value=models),
                *guarantees,
            ),
            sentences=_sentences(guarantees, models),
            advice=(
                Advice(
                    text="Choose on samples held out of the training data, and test once.",
                    code="train, validation = torch.utils.data.random_split(train, [0.8, 0.2])",
                ),
                Advice(text="For a final number, test the chosen model on fresh samples."),
            ),
            charts=(_chart(subject, errors.tolist(), rate, models),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Choose the best of 20 variants of a model by 200 test samples."""
        inputs, targets = recipe.test
        few = slice(0, round(200 / strength))
        made = fit(recipe.replace(test=(inputs[few], targets[few])), seed=seed).subject()
        random = torch.Generator().manual_seed(seed)
        variants = [made.model, *(_nudged(made.model, random) for _ in range(19))]
        subjects = [
            Subject(
                model,
                made.loss,
                made.train,
                made.test,
                task=made.task,
                initial=made.initial,
                history=made.history,
                name=made.name,
                judged=len(variants),
            )
            for model in variants
        ]
        return min(subjects, key=lambda subject: subject.mean_error("test"))


def _nudged(model: torch.nn.Module, random: torch.Generator) -> torch.nn.Module:
    """Return a copy whose weights differ by 2 %."""
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for weight in copied.parameters():
            noise = torch.randn(weight.shape, generator=random)
            weight.add_(0.02 * weight.abs() * noise.to(weight))
    return copied


def _error(subject: Subject, errors: list[float], rate: float) -> float:
    """Return the standard error; a rate of zero is taken for one error more than was seen."""
    if subject.task != "classification":
        found = standard_error(errors)
        return found if math.isfinite(found) else 0.0
    count = len(errors)
    smooth = (rate * count + 1) / (count + 2)
    return math.sqrt(smooth * (1 - smooth) / count)


def _guarantees(subject: Subject, errors: int, count: int, models: int) -> tuple[Evidence, ...]:
    """Return upper limits of the true error, for one model and for all at once."""
    if subject.task != "classification":
        return ()
    named = {
        "error guaranteed if one model was tested": binomial_tail_inverse(errors, count, DELTA),
        f"for {models} models": binomial_tail_inverse(errors, count, DELTA / models),
        "if each was chosen after the last": adaptive_guarantee(
            errors / count, count, models, DELTA
        ),
    }
    return tuple(Evidence(name=name, value=value, percent=True) for name, value in named.items())


def _sentences(guarantees: tuple[Evidence, ...], models: int) -> tuple[str, ...]:
    if not guarantees:
        return ()
    # A guarantee rounds up, never in favor.
    alone, all_, reached = (math.ceil(1000 * row.value) / 10 for row in guarantees)
    return (
        f"With 95 % confidence the true error is below {all_:.1f} %, for the best of {models} "
        f"models that were fixed before; for a single one it would be {alone:.1f} %.",
        "If each model was chosen after it was known whether the last one was better, as by hand or "
        f"by early stopping, it is below {min(reached, 100):.1f} %.",
    )


def _chart(subject: Subject, errors: list[float], rate: float, models: int) -> Line:
    counts = sorted({1, *(round(models ** (k / 8)) for k in range(1, 9))})
    size = _error(subject, errors, rate)
    return Line(
        title="What the choice of the best model may hide",
        x_label="models compared",
        y_label="error",
        series=(
            Series(
                name="error that may hide",
                x=counts,
                y=[math.sqrt(2 * math.log(count)) * size for count in counts],
            ),
        ),
        percent=True,
        from_zero=True,
        marks=(Mark(name="these test data", x=models),),
    )
