"""The runs behind a decomposition: the best of the class, the empirical minimizers, the run."""

import copy
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mindgap.core import InputError, Recipe, Remedy, Subject, mean_interval
from mindgap.core.result import Interval
from mindgap.core.spec import check, implements, option
from mindgap.data.sources import Data, Source
from mindgap.remedies.schedules.annealing import Annealing
from mindgap.training.decomposition.terms import Losses
from mindgap.training.ensemble import ensemble
from mindgap.training.fit import fit
from mindgap.training.fitted import Fitted

BATCH = 500  # samples per step on a large sample
POINTS = 25  # points of a curve over training time, at most
LOOKS = 200  # looks at a run, of which the points are chosen
_FIRST, _MORE = 10_000, 20_000  # seeds of minimizers and references, apart from those of runs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is spent on a decomposition.

    Args:
        draws: Training sets of every size.
        restarts: Starts of every search for a minimum.
        references: Large samples, each of which gives one best member of the class.
        large: Samples in each of them.
        pool: Samples on which the risk is estimated.
        steps: Steps of Adam with a decaying rate in every search.
        polish: Iterations of L-BFGS after them.
        rate: The learning rate with which a search begins.
        seed: Seed of all of it.

    >>> Plan(draws=4).draws
    4
    """

    draws: int = option(10, help="training sets of every size", low=2, high=1000)
    restarts: int = option(4, help="starts of every search for a minimum", low=1, high=1000)
    references: int = option(
        3, help="large samples, one best member of the class each", low=1, high=100
    )
    large: int = option(5000, help="samples in each of them", low=2, high=10000000)
    pool: int = option(5000, help="samples on which the risk is estimated", low=2, high=10000000)
    steps: int = option(2000, help="steps of Adam in every search", low=1, high=10000000)
    polish: int = option(100, help="iterations of L-BFGS after them", low=0, high=100000)
    rate: float = option(0.01, help="learning rate with which a search begins", above=0)
    seed: int = option(0, help="seed of all of it", low=0, high=2147483648)

    def __post_init__(self) -> None:
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Curve:
    """The actual runs over training time, averaged over training sets.

    Args:
        epochs: Where they were looked at.
        risk: Loss on the pool, of shape (draws, epochs).
        train: Loss on the training set, of the same shape.
    """

    epochs: tuple[int, ...]
    risk: Tensor
    train: Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decomposed:
    """All losses at one number of training samples.

    Args:
        size: Training samples.
        losses: The losses of runs, minimizers and references.
        curve: The runs over training time.
        restarts: Lowest and highest training loss over the restarts of a search, averaged.
    """

    size: int
    losses: Losses
    curve: _Curve
    restarts: tuple[float, float]

    def over_time(self) -> list[tuple[int, dict[str, tuple[float, Interval]]]]:
        """Return the generalization and the two optimization errors at every epoch looked at."""
        erm, erm_train = self.losses.minimizer.mean(1), self.losses.minimizer_train
        parts = {
            "generalization": self.curve.risk - self.curve.train,
            "optimization": self.curve.risk - erm[:, None],
            "tolerance": self.curve.train - erm_train[:, None],
        }
        return [
            (epoch, {name: _mean(table[:, k]) for name, table in parts.items()})
            for k, epoch in enumerate(self.curve.epochs)
        ]

    def at_tolerance(self, tolerance: float) -> tuple[float, float, Interval] | None:
        """Stop every run when its training loss is within a tolerance of the minimizer's.

        Args:
            tolerance: ρ, above the training loss of the empirical minimizer.

        Returns:
            The mean epoch, and the mean optimization error in the risk with its interval; None if
            a run never gets there.
        """
        near = self.curve.train - self.losses.minimizer_train[:, None] <= tolerance
        if not bool(near.any(1).all()):
            return None
        first = near.double().argmax(1)
        risk = self.curve.risk.gather(1, first[:, None])[:, 0]
        value, interval = _mean(risk - self.losses.minimizer.mean(1))
        return float(torch.tensor(self.curve.epochs)[first].double().mean()), value, interval


def _mean(values: Tensor) -> tuple[float, Interval]:
    return float(values.mean()), mean_interval(values.numpy())


@implements("E1", "S7", cites=("bottou2008tradeoffs",))
def decomposed(
    recipe: Recipe,
    source: Source,
    sizes: Sequence[int],
    plan: Plan,
    *,
    remedies: Sequence[Remedy] = (),
    risk: str = "loss",
    done: Callable[[], None] = lambda: None,
) -> list[Decomposed]:
    r"""Train all that a decomposition of the risk needs, and return the losses.

    Formula: $R(\tilde f_n) - R(f^*) = [R(f_F) - R(f^*)] + [R(f_n) - R(f_F)] + [R(\tilde f_n) -
    R(f_n)]$

    Reading: The terms are approximation, estimation and optimization error. ``losses.excess`` holds
    them, ``losses.whole`` the four terms that add up to the risk itself.

    Assumes: The best of the class and the empirical minimizers are those that restarts of Adam and
    L-BFGS find: the approximation error is an upper estimate.

    Args:
        recipe: The actual run; its data are replaced by samples of the source.
        source: Where samples come from.
        sizes: Numbers of training samples.
        plan: How much to spend.
        remedies: Remedies of the actual run.
        risk: "loss", or "error" for the share of wrong answers. Minima are always those of the
            loss.
        done: Called after every search: ``plan.references + len(sizes) · plan.draws`` times.

    >>> data = torch.zeros(4, 1), torch.zeros(4, 1)
    >>> recipe = Recipe(model=lambda: nn.Linear(1, 1), train=data, loss="mse", epochs=2)
    >>> few = Plan(draws=2, restarts=1, references=1, large=50, pool=50, steps=5, polish=5)
    >>> from mindgap.data.sources import source
    >>> (row,) = decomposed(recipe, source("heteroscedastic"), [10], few)
    >>> [term.name for term in row.losses.excess]
    ['approximation', 'estimation', 'optimization']
    """
    counts = [plan.pool, *[plan.large] * plan.references]
    counts += [size for size in sizes for _ in range(plan.draws)]
    pool, *rest = source.samples(counts, plan.seed)
    scene = _Scene(recipe, tuple(remedies), plan, risk, pool)
    best = list[nn.Module]()
    for place, data in enumerate(rest[: plan.references]):
        best.append(scene.minimized(data, _MORE + place * plan.restarts)[0])
        done()
    floor = _floor(source, scene)
    sets = rest[plan.references :]
    rows = list[Decomposed]()
    for place, size in enumerate(sizes):
        own = sets[place * plan.draws : (place + 1) * plan.draws]
        rows.append(scene.row(size, own, best, floor, done))
    return rows


def _floor(source: Source, scene: "_Scene") -> Tensor | None:
    if source.best is not None:
        best = source.best
        return scene.losses(_Known(best), scene.pool)
    known = source.floors.get(scene.risk)
    return None if known is None else torch.tensor(known, dtype=torch.float64)


class _Known(nn.Module):
    """The best predictor as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.like = function, nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(inputs)


@dataclasses.dataclass(frozen=True)
class _Scene:
    """A recipe with the samples on which the risk is estimated."""

    recipe: Recipe
    remedies: tuple[Remedy, ...]
    plan: Plan
    risk: str
    pool: Data

    def losses(self, model: nn.Module, data: Data, kind: str = "") -> Tensor:
        """Compute what every sample costs, in double precision."""
        subject = self._subject(model, data)
        found = subject.errors() if (kind or self.risk) == "error" else subject.losses()
        return found.double()

    def _subject(self, model: nn.Module, data: Data) -> Subject:
        recipe = self.recipe
        return Subject(
            model, recipe.loss, data, task=recipe.task, batch_size=5000, check_determinism=False
        )

    def minimized(
        self, data: Data, seed: int, start: nn.Module | None = None
    ) -> tuple[nn.Module, tuple[float, float]]:
        """Search for the member of the class with the lowest loss on some data.

        Args:
            data: Inputs and targets.
            seed: Of the first restart.
            start: A further model to begin with.

        Returns:
            The best model, and the lowest and highest loss of the restarts.
        """
        plan, size = self.plan, len(data[1])
        batch = size if size <= BATCH else BATCH
        plain = self.recipe.replace(
            train=data,
            test=None,
            optimizer="adam",
            learning_rate=plan.rate,
            weight_decay=0.0,
            schedule=None,
            validation=0.0,
            sample_weights=None,
            batch_size=batch,
            epochs=max(1, plan.steps * batch // size),
        )
        seeds = range(plan.seed + seed, plan.seed + seed + plan.restarts)
        found = ensemble(plain, seeds, remedies=[Annealing()], keep_history=False)
        models = [member.model for member in found]
        ends = [self._training_loss(model, data) for model in models]
        first = models[int(np.argmin(ends))]
        rivals = [self._polished(model, data) for model in (first, start) if model is not None]
        candidates = [first, *([] if start is None else [start]), *rivals]
        return min(candidates, key=lambda model: self._training_loss(model, data)), (
            min(ends),
            max(ends),
        )

    def _training_loss(self, model: nn.Module, data: Data) -> float:
        value = float(self.losses(model, data, "loss").mean())
        return value if np.isfinite(value) else np.inf

    def _polished(self, model: nn.Module, data: Data) -> nn.Module:
        """Go on with L-BFGS on all samples, in double precision and evaluation mode."""
        model = copy.deepcopy(model).double().eval()
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        if not self.plan.polish or not weights:
            return model
        subject = self._subject(model, data)
        inputs, targets = (data[0],), subject.targets()
        optimizer = torch.optim.LBFGS(
            weights,
            max_iter=self.plan.polish,
            history_size=20,
            tolerance_grad=1e-9,
            tolerance_change=1e-14,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = subject.loss(subject.forward(inputs), targets).mean()
            loss.backward()
            return loss

        with torch.enable_grad():
            optimizer.step(closure)
        return model.requires_grad_(False)

    def row(
        self,
        size: int,
        sets: Sequence[Data],
        best: Sequence[nn.Module],
        floor: Tensor | None,
        done: Callable[[], None],
    ) -> Decomposed:
        """Train on every training set of one size."""
        runs, minimizers, spreads = list[Fitted](), list[nn.Module](), list[tuple[float, float]]()
        for place, data in enumerate(sets):
            run = self._run(data, self.plan.seed + place)
            runs.append(run)
            # A remedy may hand over what is no member of the class, such as an average of several.
            member = None if "forward" in vars(run.model) else run.model
            found, spread = self.minimized(data, _FIRST + place * self.plan.restarts, member)
            minimizers.append(found)
            spreads.append(spread)
            done()
        models = [run.model for run in runs]
        return Decomposed(
            size=size,
            losses=Losses(
                run=torch.stack([self.losses(model, self.pool) for model in models]),
                minimizer=torch.stack([self.losses(model, self.pool) for model in minimizers]),
                best=torch.stack([self.losses(model, self.pool) for model in best]),
                run_train=self._own(models, sets),
                minimizer_train=self._own(minimizers, sets),
                best_train=torch.stack([self._own([one] * len(sets), sets) for one in best]),
                floor=floor,
            ),
            curve=self._curve(runs),
            restarts=tuple(np.mean(spreads, axis=0).tolist()),
        )

    def _own(self, models: Sequence[nn.Module], sets: Sequence[Data]) -> Tensor:
        pairs = zip(models, sets, strict=True)
        return torch.stack([self.losses(model, data).mean() for model, data in pairs])

    def _run(self, data: Data, seed: int) -> Fitted:
        recipe = self.recipe.replace(train=data, test=self.pool)
        every = max(1, recipe.epochs // LOOKS)
        if any(remedy.on and remedy.sequential_hook() for remedy in self.remedies):
            run = fit(recipe, self.remedies, seed=seed, evaluate_every=every)
        else:
            (run,) = ensemble(recipe, [seed], remedies=self.remedies, evaluate_every=every)
        if run.diverged:
            raise InputError(
                f"The recipe must train without divergence, got: {run.stopped}. Lower its "
                "learning rate."
            )
        return run

    def _curve(self, runs: Sequence[Fitted]) -> _Curve:
        """Join the curves of all runs; one that stopped early stays where it stopped."""
        rows = [[row for row in run.history if "test_loss" in row] for run in runs]
        longest = max(rows, key=len)
        kept = _spread(len(longest))
        full = [[row[min(k, len(row) - 1)] for k in kept] for row in rows]
        kind = self.risk if longest and f"test_{self.risk}" in longest[0] else "loss"

        def table(which: str) -> Tensor:
            found = [[point[f"{which}_{kind}"] for point in row] for row in full]
            return torch.tensor(found, dtype=torch.float64)

        epochs = tuple(int(longest[k]["epoch"]) for k in kept)
        return _Curve(epochs=epochs, risk=table("test"), train=table("train"))


def _spread(count: int) -> list[int]:
    """Choose places that are evenly spread on a logarithmic axis, the last one among them.

    >>> _spread(3), len(_spread(200))
    ([0, 1, 2], 22)
    """
    if not count:
        return []
    wanted = np.geomspace(1, count, POINTS).round().astype(int)
    return sorted({int(place) - 1 for place in wanted})
