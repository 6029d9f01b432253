"""choose_head: search for a weighting of the head on held-out training data, then judge it once on test data.

retrain_head: give a trained model a head that minds the samples whose neighbors disagree.
"""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from mindgap.core import InputError, Loss, Paired, Subject, Table, holm, paired, unknown_name
from mindgap.jobs.head.search import KS, MAX_WEIGHTS, HeadSearch, Method, search_head
from mindgap.remedies.variance_weighting import RetrainedHead, VarianceWeighting
from mindgap.training.fitted import Fitted


def retrain_head(
    model: nn.Module | Subject | Fitted,
    train: Any = None,
    *,
    loss: str | Loss | Callable[..., Tensor] = "cross_entropy",
    k: int = 20,
    max_weight: float = 40.0,
    control: str = "none",
    seed: int = 0,
    **settings: Any,
) -> RetrainedHead:
    """A copy of a trained model whose last linear layer was trained again by Variance Based Samples Weighting.

    The model given stays as it is; the new one has its class, and its state dict loads back into
    it. A module needs ``train`` (inputs, targets) and ``loss``; a :class:`Subject` or what
    :func:`mindgap.fit` returns has them. Further settings are those of
    :class:`mindgap.remedies.VarianceWeighting`: ``solver``, ``normalize``, ``l2``, ``head`` …

    >>> import torch
    >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    >>> found = retrain_head(nn.Linear(4, 2), (x, (x[:, 0] > 0).long()), k=5, max_weight=10)
    >>> found.weights.shape, float(found.weights.max()), found.converged
    (torch.Size([60]), 10.0, True)
    """
    known = [field.name for field in dataclasses.fields(VarianceWeighting)]
    for name in settings:
        if name not in known:
            raise unknown_name("setting", name, known)
    remedy = VarianceWeighting(k=k, max_weight=max_weight, control=control, **settings)
    if not remedy.on:
        raise InputError(
            "max_weight must be at least 1 to train the head again, got 0. Use 1 for no weights."
        )
    return remedy.retrain(_copied(model, train, loss), seed)


def _copied(model: Any, train: Any, loss: Any) -> Subject:
    """The model's copy with its training data alone."""
    whole = model.subject() if isinstance(model, Fitted) else model
    if isinstance(whole, Subject):
        own = whole.train if train is None else train
        twin = copy.deepcopy(whole.model)
        return Subject(
            twin,
            whole.loss,
            own,
            task=whole.task,
            batch_size=whole.batch_size,
            check_determinism=False,
        )
    if not isinstance(whole, nn.Module) or train is None:
        raise InputError(
            "model must be a Subject, what fit returns, or a module with train=(inputs, "
            "targets), got "
            f"{type(whole).__name__} without data. Pass the data the model was trained on."
        )
    return Subject(copy.deepcopy(whole), loss, train)


ARMS = {
    "as given": "the network as given",
    "uniform": "head trained again without weights",
    "permuted": "the same weights on other samples",
    "weighted": "weighted by local variance",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """A search, the model with the chosen head, and what all heads do on test data.

    ``errors`` holds the error of every test sample by head (empty without test data): squared
    errors of values, 0 or 1 for classes. ``against`` compares each head with the one trained again
    without weights, paired over test samples.
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
            return f"Chosen on held-out training data: {setting}. Pass test data to see whether it helps."
        weighted, permuted = self.against["weighted"], self.against["permuted"]
        p_value = self._corrected()["weighted"]
        if p_value >= 0.05:
            return f"Weighting by local variance ({setting}) did not change the test error (p = {p_value:.2g})."
        if weighted.difference > 0:
            return f"Weighting by local variance ({setting}) raised the test error (p = {p_value:.2g}). Do not use it."
        if weighted.difference >= permuted.difference:
            return f"The test error fell, but no more than with the same weights on other samples ({setting})."
        return (
            f"Weighting by local variance ({setting}) lowered the test error (p = {p_value:.2g})."
        )

    def table(self) -> Table:
        """One row per head, and the map of the search."""
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
                f"{self.search.samples} held-out training samples; test data judged once, paired "
                "over samples.",
            ),
            charts=(self._map(),),
        )

    def _corrected(self) -> dict[str, float]:
        return dict(
            zip(self.against, holm([test.p_value for test in self.against.values()]), strict=True)
        )

    def _map(self) -> dict[str, Any]:
        columns, lines, scores = self.search.map(self.search.by)
        change = scores - float(getattr(self.search.uniform, self.search.by)[0])
        return {
            "kind": "heat",
            "title": f"Change of the {self.search.by} on held-out training samples against no weights: blue is better",
            "x_label": "largest weight m",
            "y_label": "neighbors k",
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
    """Choose m and k on held-out training data, train the head again on all of them, and judge it with its controls.

    The settings are those of :func:`mindgap.jobs.head.search.search_head`. The subject stays as it
    is.
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
    settings: dict[str, Any] = {
        "k": k,
        "max_weight": m,
        "l2": l2,
        "standardize": standardize,
        "head": head,
    }
    models = {"as given": ready.model}
    for arm, control in (("uniform", "uniform"), ("permuted", "permuted"), ("weighted", "none")):
        models[arm] = retrain_head(ready, control=control, seed=seed, **settings).model
    errors = (
        {} if ready.test is None else {arm: _errors(ready, model) for arm, model in models.items()}
    )
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
