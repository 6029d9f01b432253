"""retrain_head and choose_head: retrain a head with given weights, or with the best ones."""

import copy
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mindgap.core import (
    Heatmap,
    InputError,
    Loss,
    Paired,
    Subject,
    Table,
    holm,
    implements,
    paired,
    unknown_name,
    validated,
    write_whole,
)
from mindgap.jobs.head.search import KS, MAX_WEIGHTS, HeadSearch, Method, search_head
from mindgap.remedies.weighting.variance_weighting import RetrainedHead, VarianceWeighting
from mindgap.training.fitted import Fitted


@implements("V7", cites=("novello2020variance",))
@validated
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
    r"""Retrain the last linear layer of a copy of a model with variance-based weights.

    Formula: $\hat W = \arg\min_W \frac{1}{n} \sum_{i=1}^n w_i\, \ell(W h(x_i), y_i) +
    \frac{\lambda}{2} \lVert W \rVert^2$

    Reading: h are the features that enter the last layer, and w the weights that grow with the
    variance of the labels around a sample. Compare the new model with heads that are retrained with
    the controls ``"uniform"`` and ``"permuted"``: to bring a head to its optimum changes the error
    by itself.

    Assumes: A linear layer makes the model's output, and the labels are mostly correct.

    Args:
        model: A trained module, a :class:`Subject` or what :func:`mindgap.fit` returns. It stays as
            it is; the state dict of the new model loads back into its class.
        train: Inputs and targets that the model was trained on; only a module needs them.
        loss: Name of the training loss or a callable; only a module needs it.
        k: Number of neighbors, the sample itself included.
        max_weight: Largest weight of a sample; 1 means no weights.
        control: ``"none"`` uses the weights, ``"uniform"`` none, ``"permuted"`` the same weights on
            other samples.
        seed: Seed of the permutation and of small batches.
        **settings: Further settings of :class:`mindgap.remedies.VarianceWeighting`, such as
            ``solver``, ``normalize``, ``l2`` or ``head``.

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
            "max_weight must be at least 1 to retrain the head, got 0. Use 1 for no weights."
        )
    return remedy.retrain(_copied(model, train, loss), seed)


def _copied(model: Any, train: Any, loss: Any) -> Subject:
    """Copy the model, with its training data alone."""
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
            "model must be a Subject, what fit returns, or a module with train=(inputs, targets), "
            f"got {type(whole).__name__} without data. Pass the data the model was trained on."
        )
    return Subject(copy.deepcopy(whole), loss, train)


Kind = Literal["untested", "no effect", "worse", "control", "better"]
LEVEL = 0.05  # of the corrected p-value
SAID: dict[Kind, str] = {
    "untested": "Chosen on held-out training data: {setting}. Pass test data to see whether it "
    "helps.",
    "no effect": "Weighting by local variance ({setting}) shows no effect on the test error "
    "(p = {p}).",
    "worse": "Weighting by local variance ({setting}) raised the test error (p = {p}). Do not use "
    "it.",
    "control": "The test error fell, but no more than with the same weights on other samples "
    "({setting}).",
    "better": "Weighting by local variance ({setting}) lowered the test error (p = {p}).",
}
ARMS = {
    "as given": "the network as given",
    "uniform": "head retrained without weights",
    "permuted": "the same weights on other samples",
    "weighted": "weighted by local variance",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """A search, the model with the chosen head, and the test errors of all heads.

    Args:
        search: Scores of all settings on held-out training data.
        model: The model with the chosen head.
        errors: Error of every test sample by head, empty without test data: 0 or 1 for classes,
            the loss for values.
        against: Comparison of each head with the one retrained without weights, paired over test
            samples.
        settings: What :func:`choose_head` was called with.
    """

    search: HeadSearch
    model: nn.Module
    errors: dict[str, list[float]]
    against: dict[str, Paired]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """What the weights did to the test error, next to both controls."""
        if not self.against:
            return "untested"
        weighted, permuted = self.against["weighted"], self.against["permuted"]
        if self.corrected()["weighted"] >= LEVEL:
            return "no effect"
        if weighted.difference > 0:
            return "worse"
        return "control" if weighted.difference >= permuted.difference else "better"

    @property
    def verdict(self) -> str:
        """One sentence that says whether the weights helped."""
        m, k = self.search.best
        p_value = f"{self.corrected().get('weighted', 1.0):.2g}"
        return SAID[self.kind].format(setting=f"m = {m:g}, k = {k}", p=p_value)

    def table(self) -> Table:
        """Compare the heads, one row each, with the map of the search."""
        corrected = self.corrected()
        rows: list[tuple[Any, ...]] = []
        for arm, words in ARMS.items():
            found = self.errors.get(arm)
            test = self.against.get(arm)
            tail = (None,) * 4 if test is None else (*_change(test), corrected[arm])
            rows.append((words, None if found is None else sum(found) / len(found), *tail))
        m, k = self.search.best
        judged = "; test data judged once, paired over samples" if self.errors else ""
        return Table(
            title="What weighting the head by local variance does",
            columns=("head", "test error", "minus no weights", "low", "high", "p (Holm)"),
            rows=tuple(rows),
            notes=(
                self.verdict,
                f"m = {m:g} and k = {k} were the best of {len(self.search.settings)} settings on "
                f"{self.search.samples} held-out training samples{judged}.",
            ),
            charts=(self._map(),),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the chosen setting and the table as plain data."""
        m, k = self.search.best
        return {"chosen": {"max_weight": m, "k": k}, **self.table().to_dict()}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a page if the path ends in .html, else the new state dict.

        Args:
            path: The file to write.
        """
        if Path(path).suffix.lower() not in (".html", ".htm"):
            return write_whole(path, lambda file: torch.save(self.model.state_dict(), file))
        from mindgap.jobs.head.verdict import judge_head
        from mindgap.report.pages.study import study_page
        from mindgap.report.report import versions
        from mindgap.runs.work import now

        results = {
            "study": "head",
            "fields": {**self.settings, "head": self.settings.get("head") or "found by itself"},
            "table": self.table().to_dict(),
            "versions": versions(),
            "date": now(),
        }
        return study_page(results, path, judge_head(self), kind="last layer")

    def corrected(self) -> dict[str, float]:
        """Return the p-value of every comparison, corrected by Holm."""
        return dict(
            zip(self.against, holm([test.p_value for test in self.against.values()]), strict=True)
        )

    def _map(self) -> Heatmap:
        columns, lines, scores = self.search.map(self.search.by)
        change = scores - float(getattr(self.search.uniform, self.search.by)[0])
        return Heatmap(
            title=f"Change of the {self.search.by} on held-out training samples against no weights",
            caption="Blue is better than no weights.",
            x_label="largest weight m",
            y_label="neighbors k",
            x=[f"{value:g}" for value in columns],
            y=[str(value) for value in lines],
            z=[[None if value != value else value for value in row] for row in change.tolist()],
            diverging=True,
        )


@implements("V8", cites=("novello2020variance",))
@validated
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
    r"""Choose m and k on held-out training data, retrain the head, and judge it on test data.

    Formula: $(m, k) = \arg\min_{m, k} \hat R_{\mathrm{validation}}(\hat W_{m, k})$

    Reading: The chosen head is retrained on all training data. Test data judge it once, next to the
    model as given and to heads retrained without weights and with permuted weights. "Did not help"
    is a result.

    Assumes: The layers below the head have seen the held-out training data, so its scores are
    optimistic. Test data were not used for any choice.

    Args:
        subject: A :class:`Subject` or what :func:`mindgap.fit` returns; it stays as it is.
        max_weights: Largest weights m to try.
        ks: Numbers of neighbors k to try; by default as many of these as there are samples for.
        method: ``"grid"`` tries all pairs; ``"random"`` and ``"optuna"`` try ``trials`` pairs
            between the smallest and the largest values.
        trials: Number of pairs for ``"random"`` and ``"optuna"``.
        validation: Share of the training data to hold out, or data of its own.
        l2: Penalty on the head, as in :func:`retrain_head`.
        standardize: Whether to divide each feature by its standard deviation before neighbors are
            searched.
        head: Dotted name of the last linear layer; found if empty.
        seed: Seed of the held-out split, the random settings and the permutation.
        progress: Whether to show a progress bar.

    >>> x = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > 0).long()
    >>> subject = Subject(nn.Linear(4, 2), "cross_entropy", (x[:60], y[:60]), (x[60:], y[60:]))
    >>> found = choose_head(subject, max_weights=(2, 10), ks=(5,))
    >>> len(found.search.settings), list(found.errors)
    (2, ['as given', 'uniform', 'permuted', 'weighted'])
    """
    ready = subject.subject() if isinstance(subject, Fitted) else subject
    shared: dict[str, Any] = {"l2": l2, "standardize": standardize, "head": head, "seed": seed}
    searched: dict[str, Any] = {
        "max_weights": tuple(max_weights),
        "ks": tuple(ks),
        "method": method,
        "trials": trials,
        "validation": validation,
    }
    found = search_head(ready, **searched, **shared, progress=progress)
    m, k = found.best
    models = {"as given": ready.model}
    for arm, control in (("uniform", "uniform"), ("permuted", "permuted"), ("weighted", "none")):
        models[arm] = retrain_head(ready, k=k, max_weight=m, control=control, **shared).model
    errors = (
        {} if ready.test is None else {arm: _errors(ready, model) for arm, model in models.items()}
    )
    against = {arm: paired(errors[arm], errors["uniform"]) for arm in errors if arm != "uniform"}
    if not isinstance(validation, int | float):
        searched["validation"] = "data of its own"
    return HeadChoice(
        search=found,
        model=models["weighted"],
        errors=errors,
        against=against,
        settings={**searched, **shared},
    )


def _errors(subject: Subject, model: nn.Module) -> list[float]:
    """Compute the error of every test sample, which is its loss in a regression."""
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
