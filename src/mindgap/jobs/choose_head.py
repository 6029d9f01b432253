"""choose_head: search for a weighting of the head on held-out train data, then judge it once on test data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import nn

from mindgap.core.stats import Paired, holm, paired
from mindgap.core.subject import Subject
from mindgap.core.table import Table
from mindgap.jobs.retrain_head import retrain_head
from mindgap.runs.head_search import KS, MAX_WEIGHTS, HeadSearch, Method, search_head
from mindgap.training.fitted import Fitted

ARMS = {
    "as given": "the network as given",
    "uniform": "head trained again without weights",
    "permuted": "the same weights on other samples",
    "weighted": "weighted by local variance",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """A search, the model with the chosen head, and what all heads do on test data.

    ``errors`` holds the error of every test sample by head (empty without test data): squared errors of values, 0 or 1
    for classes. ``against`` compares each head with the one trained again without weights, paired over test samples.
    """

    search: HeadSearch
    model: nn.Module
    errors: dict[str, list[float]]
    against: dict[str, Paired]

    @property
    def verdict(self) -> str:
        """Whether the weights helped, in a sentence."""
        m, k = self.search.best
        setting = f"m = {m:g}, k = {k}"
        if not self.against:
            return f"Chosen on held-out train data: {setting}. Pass test data to see whether it helps."
        weighted, permuted = self.against["weighted"], self.against["permuted"]
        p_value = self._corrected()["weighted"]
        if p_value >= 0.05:
            return f"Weighting by local variance ({setting}) did not change the test error (p = {p_value:.2g})."
        if weighted.difference > 0:
            return f"Weighting by local variance ({setting}) raised the test error (p = {p_value:.2g}). Do not use it."
        if weighted.difference >= permuted.difference:
            return f"The test error fell, but no more than with the same weights on other samples ({setting})."
        return f"Weighting by local variance ({setting}) lowered the test error (p = {p_value:.2g})."

    def table(self) -> Table:
        """One row a head, and the map of the search."""
        corrected = self._corrected()
        rows: list[tuple[Any, ...]] = []
        for arm, words in ARMS.items():
            found = self.errors.get(arm)
            test = self.against.get(arm)
            tail = (None,) * 4 if test is None else (*_change(test), corrected[arm])
            rows.append((words, None if found is None else sum(found) / len(found), *tail))
        m, k = self.search.best
        return Table(
            title="What weighting the head by local variance does",
            columns=("head", "test error", "minus no weights", "low", "high", "p (Holm)"),
            rows=tuple(rows),
            notes=(
                self.verdict,
                f"m = {m:g} and k = {k} were the best of {len(self.search.settings)} settings on "
                f"{self.search.samples} held-out train samples; test data judged once, paired over samples.",
            ),
            charts=(self._map(),),
        )

    def _corrected(self) -> dict[str, float]:
        return dict(zip(self.against, holm([test.p_value for test in self.against.values()]), strict=True))

    def _map(self) -> dict[str, Any]:
        columns, lines, scores = self.search.map(self.search.by)
        change = scores - float(getattr(self.search.uniform, self.search.by)[0])
        return {
            "kind": "heat",
            "title": f"Change of the {self.search.by} on held-out train samples against no weights: blue is better",
            "x_label": "largest weight m",
            "y_label": "neighbours k",
            "x_scale": "category",
            "y_scale": "category",
            "x": [f"{value:g}" for value in columns],
            "y": [str(value) for value in lines],
            "z": [[None if value != value else value for value in row] for row in change.tolist()],
        }


def choose_head(
    subject: Subject | Fitted,
    *,
    max_weights: Sequence[float] = MAX_WEIGHTS,
    ks: Sequence[int] = KS,
    method: Method = "grid",
    trials: int = 50,
    validation: Any = 0.2,
    l2: float = 1e-6,
    standardize: bool = False,
    head: str = "",
    seed: int = 0,
    progress: bool = False,
) -> HeadChoice:
    """Choose m and k on held-out train data, train the head again on all of them, and judge it with its controls.

    The settings are those of :func:`mindgap.runs.head_search.search_head`. The subject stays as it is.
    """
    ready = subject.subject() if isinstance(subject, Fitted) else subject
    found = search_head(
        ready,
        max_weights=max_weights,
        ks=ks,
        method=method,
        trials=trials,
        validation=validation,
        l2=l2,
        standardize=standardize,
        head=head,
        seed=seed,
        progress=progress,
    )
    m, k = found.best
    settings: dict[str, Any] = {"k": k, "max_weight": m, "l2": l2, "standardize": standardize, "head": head}
    models = {"as given": ready.model}
    for arm, control in (("uniform", "uniform"), ("permuted", "permuted"), ("weighted", "none")):
        models[arm] = retrain_head(ready, control=control, seed=seed, **settings).model
    errors = {} if ready.test is None else {arm: _errors(ready, model) for arm, model in models.items()}
    against = {arm: paired(errors[arm], errors["uniform"]) for arm in errors if arm != "uniform"}
    return HeadChoice(search=found, model=models["weighted"], errors=errors, against=against)


def _errors(subject: Subject, model: nn.Module) -> list[float]:
    """The error of every test sample: its loss in a regression."""
    other = Subject(
        model,
        subject.loss,
        subject.train,
        subject.test,
        task=subject.task,
        batch_size=subject.batch_size,
        check_determinism=False,
    )
    found: list[float] = other.errors("test").double().tolist()
    return found


def _change(test: Paired) -> tuple[float, float, float]:
    return test.difference, test.interval.low, test.interval.high
