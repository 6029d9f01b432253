"""Search the largest weight m and the number of neighbors k on held-out training data."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mindgap.core import InputError, Subject, Table, choice, generator, integer, number, require
from mindgap.jobs.head.trials import HeadTrials, Score, head_trials
from mindgap.remedies.weighting.variance_weighting import VarianceWeighting
from mindgap.training.fitted import Fitted

Setting = tuple[float, int]
Method = Literal["grid", "random", "optuna"]
METHODS = ("grid", "random", "optuna")
MAX_WEIGHTS = (2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0, 200.0)
KS = (5, 10, 20, 40, 60)
AT_ONCE = 8  # settings that a sampler proposes before it is told their scores


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadSearch:
    """The scores of all settings on held-out training samples, and the setting that was chosen.

    Args:
        settings: Pairs of a largest weight and a number of neighbors.
        loss: Mean loss of each setting.
        loss_error: Its standard error.
        error: Mean error of each setting; the loss in a regression.
        error_error: Its standard error.
        converged: Whether the head of each setting reached its optimum.
        uniform: Score of the head retrained without weights, which a useful setting beats.
        chosen: Index of the chosen setting.
        by: The score that chose: ``"error"`` or ``"loss"``.
        samples: Number of held-out samples.
    """

    settings: tuple[Setting, ...]
    loss: Tensor
    loss_error: Tensor
    error: Tensor
    error_error: Tensor
    converged: Tensor
    uniform: Score
    chosen: int
    by: str
    samples: int

    @property
    def best(self) -> Setting:
        """The chosen largest weight and number of neighbors."""
        return self.settings[self.chosen]

    @property
    def remedy(self) -> VarianceWeighting:
        """The remedy with the chosen setting."""
        chosen: dict[str, Any] = {"max_weight": self.best[0], "k": self.best[1]}
        return VarianceWeighting(**chosen)

    def map(self, of: str = "error") -> tuple[list[float], list[int], Tensor]:
        """Arrange a score as a map: all m, all k, one row per k, NaN where nothing was tried."""
        scores: Tensor = getattr(self, choice("of", of, ("error", "loss")))
        columns, lines = (
            sorted({m for m, _ in self.settings}),
            sorted({k for _, k in self.settings}),
        )
        table = torch.full((len(lines), len(columns)), math.nan, dtype=torch.float64)
        for (m, k), score in zip(self.settings, scores, strict=True):
            table[lines.index(k), columns.index(m)] = score
        return columns, lines, table

    def table(self) -> Table:
        """List the head without weights, then all settings, the best first."""
        plain = self.uniform
        first = (
            1.0,
            None,
            float(plain.loss[0]),
            float(plain.loss_error[0]),
            float(plain.error[0]),
            "no weights",
        )
        rows = [
            (
                *self.settings[i],
                float(self.loss[i]),
                float(self.loss_error[i]),
                float(self.error[i]),
                "",
            )
            for i in _order(self.error if self.by == "error" else self.loss, self.loss)
        ]
        columns = ("max_weight", "k", "loss", "standard error", "error", "")
        note = (
            f"scores on {self.samples} held-out training samples; the best of many looks better "
            "than it is"
        )
        return Table(
            title="largest weight and neighbors",
            columns=columns,
            rows=(first, *rows),
            notes=(note,),
        )


def search_head(
    subject: Subject | Fitted,
    *,
    max_weights: Sequence[float] = MAX_WEIGHTS,
    ks: Sequence[int] = KS,
    method: Method = "grid",
    trials: int = 50,
    validation: Any = 0.2,
    by: Literal["error", "loss"] = "error",
    l2: float = 1e-6,
    standardize: bool = False,
    head: str = "",
    study: Any = None,
    seed: int = 0,
    progress: bool = False,
) -> HeadSearch:
    """Retrain the head with every setting and score it on held-out training data.

    Neighbors are searched once, and heads are solved to their optimum many at a time.

    Args:
        subject: A :class:`Subject` or what :func:`mindgap.fit` returns.
        max_weights: Largest weights m to try.
        ks: Numbers of neighbors k to try; by default as many of these as there are samples for.
        method: ``"grid"`` tries all pairs; ``"random"`` and ``"optuna"`` try ``trials`` pairs
            between the smallest and the largest values.
        trials: Number of pairs for ``"random"`` and ``"optuna"``.
        validation: Share of the training data to hold out, or data of its own. The layers below
            the head have seen the former, so the latter judges better.
        by: The score that chooses, ``"error"`` or ``"loss"``; equal errors are ordered by the loss.
        l2: Penalty on the head.
        standardize: Whether to divide each feature by its standard deviation before neighbors are
            searched.
        head: Dotted name of the last linear layer; found if empty.
        study: An Optuna study to continue; a new one if None.
        seed: Seed of the held-out split and of the random settings.
        progress: Whether to show a progress bar.

    >>> x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    >>> subject = Subject(torch.nn.Linear(4, 2), "cross_entropy", (x, (x[:, 0] > 0).long()))
    >>> found = search_head(subject, max_weights=(2, 10), ks=(5, 8), validation=0.25)
    >>> len(found.settings), found.samples, found.best in found.settings
    (4, 15, True)
    """
    ready = subject.subject() if isinstance(subject, Fitted) else subject
    _check(max_weights, ks, method, by)
    if method == "optuna" and study is None:
        study = _new_study(seed)  # before the work, because Optuna may be missing
    integer("trials", trials)
    if tuple(ks) == KS and isinstance(validation, int | float):  # few samples have no 60 neighbors
        most = len(ready.train) - round(validation * len(ready.train))
        ks = [k for k in KS if k <= most] or KS[:1]
    trial = head_trials(
        ready,
        validation,
        max(ks),
        l2=l2,
        standardize=standardize,
        head=head,
        seed=seed,
        progress=progress,
    )
    if method == "optuna":
        settings, score = _asked(trial, max_weights, ks, trials, by, study, progress)
    else:
        pairs = [(float(m), int(k)) for k in ks for m in max_weights]
        settings = pairs if method == "grid" else _drawn(max_weights, ks, trials, seed)
        score = trial.score(settings, progress)
    order = _order(score.error if by == "error" else score.loss, score.loss)
    return HeadSearch(
        settings=tuple(settings),
        **dataclasses.asdict(score),
        uniform=trial.score([(1.0, min(ks))], progress),
        chosen=order[0],
        by=by,
        samples=len(trial.held_features),
    )


def _drawn(
    max_weights: Sequence[float], ks: Sequence[int], trials: int, seed: int
) -> list[Setting]:
    """Draw weights uniformly in the logarithm and neighbors uniformly."""
    random = generator(seed)
    low, high = math.log(min(max_weights)), math.log(max(max_weights))
    weights = (low + (high - low) * torch.rand(trials, generator=random, dtype=torch.float64)).exp()
    neighbors = torch.randint(min(ks), max(ks) + 1, (trials,), generator=random)
    return [(float(m), int(k)) for m, k in zip(weights, neighbors, strict=True)]


def _new_study(seed: int) -> Any:
    optuna = require("optuna", "search")
    return optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=seed))


def _asked(
    trial: HeadTrials,
    max_weights: Sequence[float],
    ks: Sequence[int],
    trials: int,
    by: str,
    study: Any,
    progress: bool,
) -> tuple[list[Setting], Score]:
    """Ask a study for some settings at a time and tell it their scores."""
    settings: list[Setting] = []
    scores: list[Score] = []
    while len(settings) < trials:
        asked = [study.ask() for _ in range(min(AT_ONCE, trials - len(settings)))]
        new = [_suggested(one, max_weights, ks) for one in asked]
        scores.append(trial.score(new, progress))
        for one, value in zip(asked, getattr(scores[-1], by).tolist(), strict=True):
            study.tell(one, value)
        settings += new
    return settings, Score.joined(scores)


def _suggested(one: Any, max_weights: Sequence[float], ks: Sequence[int]) -> Setting:
    weight = one.suggest_float("max_weight", min(max_weights), max(max_weights), log=True)
    return float(weight), int(one.suggest_int("k", min(ks), max(ks)))


def _order(first: Tensor, second: Tensor) -> list[int]:
    """Return indices, the best first; equal entries of ``first`` are ordered by ``second``."""
    order: list[int] = np.lexsort((second.numpy(), first.numpy())).tolist()
    return order


def _check(max_weights: Sequence[float], ks: Sequence[int], method: str, by: str) -> None:
    choice("method", method, METHODS)
    choice("by", by, ("error", "loss"))
    if not len(max_weights) or not len(ks):
        raise InputError(
            "max_weights and ks must each have an entry, got none. Pass the settings to try."
        )
    for weight in max_weights:
        number("max_weights", weight, 1)
    for k in ks:
        integer("ks", k, 2)
