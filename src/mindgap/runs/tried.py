"""How many models were compared on the same held-out data, counted from a store of runs."""

import dataclasses
import math
import os
from typing import Any

from mindgap.core import (
    InputError,
    binomial_tail_inverse,
    expanded,
    implements,
    integer,
    number,
    validated,
)
from mindgap.ops.concentration import adaptive_guarantee
from mindgap.runs.store import Store


@dataclasses.dataclass(frozen=True)
class Tried:
    """A family of models that were compared on the same held-out data.

    Args:
        trials: Trials that gave a result.
        models: Models that were evaluated: one per trial, or one per evaluated epoch of it.

    >>> print(Tried(trials=312, models=312).guarantee(errors=200, samples=10_000))
    You tried 312 models on these 10,000 held-out samples, 2.00 % of which the chosen one gets wrong. \
With 95 % confidence its true error is below 2.56 % if all models were fixed before, and below \
6.43 % if each was chosen after it was known whether the last one was better.
    """

    trials: int
    models: int

    def guarantee(self, errors: int, samples: int, delta: float = 0.05) -> "Guarantee":
        """Bound the true error of the model that was chosen.

        Args:
            errors: Its number of errors on the held-out samples.
            samples: The number of held-out samples.
            delta: The probability with which the bound may fail.
        """
        count = integer("samples", samples)
        wrong = integer("errors", errors, 0, count, "the number of samples")
        number("delta", delta, 0, 1)
        return Guarantee(
            models=self.models,
            samples=count,
            rate=wrong / count,
            delta=delta,
            fixed=binomial_tail_inverse(wrong, count, delta / self.models),
            adaptive=adaptive_guarantee(wrong / count, count, self.models, delta),
        )


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What held-out samples guarantee for the model that was chosen on them.

    Args:
        models: The number of models that were compared.
        samples: The number of held-out samples.
        rate: The chosen model's error on them.
        delta: The probability with which a bound may fail.
        fixed: The bound, if no model depended on the results of others.
        adaptive: The bound, if each could depend on which was best so far.
    """

    models: int
    samples: int
    rate: float
    delta: float
    fixed: float
    adaptive: float

    def __str__(self) -> str:
        fixed, adaptive = (_percent(value) for value in (self.fixed, self.adaptive))
        several = "1 model" if self.models == 1 else f"{self.models:,} models"
        return (
            f"You tried {several} on these {self.samples:,} held-out samples, "
            f"{100 * self.rate:.2f} % of which the chosen one gets wrong. With "
            f"{100 * (1 - self.delta):g} % confidence its true error is below {fixed} if all "
            f"models were fixed before, and below {adaptive} if each was chosen after it was known "
            "whether the last one was better."
        )


@implements("K2", cites=("kawaguchi2017generalization", "langford2005tutorial"))
@validated
def tried(store: Store | str | os.PathLike[str], study: str | None = None) -> Tried:
    r"""Count the models that a store of runs holds, for the guarantee of a validation set.

    Formula: $|F| = \sum_{trials} \max(1, \text{evaluated epochs})$

    Reading: The best of many models owes a part of its lead to the samples it was chosen on. Each
    finished trial is a model. Early stopping compares epochs: a record with a ``history`` counts
    once per entry, one with ``evaluations`` as often as it says. Failed trials were judged by
    nobody.

    Assumes: All models of the store were compared on the same held-out data. A search in which a
    result decides what to try next could have reached more than it tried; ``guarantee`` says what
    is left then.

    Args:
        store: The store, or its file.
        study: The name of a study, whose trials alone are counted.

    >>> with Store(":memory:") as store:
    ...     tried(store)
    Traceback (most recent call last):
    mindgap.core.errors.InputError: The store must hold a finished trial, got none. Run the study first.
    """
    if not isinstance(store, Store):
        if not _is_there(store):
            raise InputError(f"store must be a file of runs, got {store}. Correct the path.")
        with Store(store) as opened:
            return tried(opened, study)
    counts = [_models(row.record) for row in store.records(study) if row.status == "done"]
    if not counts:
        raise InputError("The store must hold a finished trial, got none. Run the study first.")
    return Tried(trials=len(counts), models=sum(counts))


def _is_there(path: str | os.PathLike[str]) -> bool:
    try:
        return expanded(path).exists()
    except OSError:  # such as a name that is too long for the file system
        return False


def _models(record: Any) -> int:
    """Return how many models of a trial were judged."""
    told = record.get("evaluations") if record else None
    if isinstance(told, int) and told > 0:
        return told
    history = record.get("history") if record else None
    return max(1, len(history)) if isinstance(history, list | tuple) else 1


def _percent(value: float) -> str:
    """Write a share in percent, rounded up: a guarantee is never rounded in its favor."""
    return f"{math.ceil(1e4 * min(value, 1.0) - 1e-9) / 100:.2f} %"
