"""Choose the largest weight and the number of neighbors for a head, on a share of the training data."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mindgap.core import InputError, Subject, Table, choice, generator, integer, number, require
from mindgap.jobs.head.trials import HeadTrials, Score, head_trials
from mindgap.remedies.variance_weighting import VarianceWeighting
from mindgap.training.fitted import Fitted

Setting = tuple[float, int]
Method = Literal["grid", "random", "optuna"]
METHODS = ("grid", "random", "optuna")
MAX_WEIGHTS = (2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0, 200.0)
KS = (5, 10, 20, 40, 60)
AT_ONCE = 8  # settings that a sampler proposes before it hears of their scores


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadSearch:
    """The scores of all settings on held-out training samples, and the setting that was chosen.

    ``loss``, ``error`` and their standard errors have one entry per setting; ``uniform`` is the
    score of the head that was trained again without weights: a setting that does not beat it is not
    worth its name. ``error`` is the loss in a regression.
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
        """Largest weights, numbers of neighbors and the score (neighbors, weights), NaN where none was tried."""
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
        """All settings, the best first, after the head without weights."""
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
        note = f"scores on {self.samples} held-out training samples; the best of many is better by luck than it is"
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
    """Train the head again with every setting on one part of the training data and score it on the rest, never on test.

    ``method`` is ``"grid"`` (all pairs of ``max_weights`` and ``ks``), or ``"random"`` or
    ``"optuna"``: ``trials`` pairs between the smallest and the largest of each. ``validation`` is
    the share to hold out, or data of its own; the layers below the head have seen a share, so data
    that they have not seen judge better. ``by`` says which score chooses; equal errors are parted
    by the loss. Neighbors are sought once, and heads are solved to their optimum many at a time.
    ``study`` is an Optuna study to go on with. Ctrl-C is not caught.
    """
    ready = subject.subject() if isinstance(subject, Fitted) else subject
    _check(max_weights, ks, method, by)
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
        settings, score = _asked(trial, max_weights, ks, trials, by, study, seed, progress)
    else:
        pairs = [(float(m), int(k)) for k in ks for m in max_weights]
        settings = (
            pairs if method == "grid" else _drawn(max_weights, ks, integer("trials", trials), seed)
        )
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
    """Weights uniform in the logarithm, neighbors uniform."""
    random = generator(seed)
    low, high = math.log(min(max_weights)), math.log(max(max_weights))
    weights = (low + (high - low) * torch.rand(trials, generator=random, dtype=torch.float64)).exp()
    neighbors = torch.randint(min(ks), max(ks) + 1, (trials,), generator=random)
    return [(float(m), int(k)) for m, k in zip(weights, neighbors, strict=True)]


def _asked(
    trial: HeadTrials,
    max_weights: Sequence[float],
    ks: Sequence[int],
    trials: int,
    by: str,
    study: Any,
    seed: int,
    progress: bool,
) -> tuple[list[Setting], Score]:
    """Ask a study for some settings, tell it their scores, and so on."""
    if study is None:
        optuna = require("optuna", "search")
        study = optuna.create_study(
            direction="minimize", sampler=optuna.samplers.TPESampler(seed=seed)
        )
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
    """Best first; where ``first`` is equal, by ``second``."""
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
