"""decompose: split the risk of a recipe into approximation, estimation and optimization error."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch

from mindgap.core import InputError, Progress, Recipe, Remedy, generator, integer, validated
from mindgap.data.sources import Data, Draw, Source, cut, drawn, source as named
from mindgap.jobs.decompose.answer import Decomposition, told
from mindgap.training.decomposition.runs import Plan, decomposed

SHARE = 10  # the recipe's own samples per sample of a training set, where there is no other source


@validated
def decompose(
    recipe: Recipe,
    source: Source | str | Draw | None = None,
    *,
    sizes: Sequence[int] | None = None,
    remedies: Sequence[Remedy] = (),
    risk: Literal["loss", "error"] = "loss",
    draws: int = 10,
    restarts: int = 4,
    references: int = 3,
    large: int = 5000,
    pool: int = 5000,
    steps: int = 2000,
    polish: int = 100,
    rate: float = 0.01,
    seed: int = 0,
    progress: bool = False,
) -> Decomposition:
    """Split the risk of a training run into its terms, with intervals.

    Three terms add up to the excess risk: approximation (best of the class above the best
    predictor), estimation (empirical minimizer above the best of the class) and optimization (the
    run above the empirical minimizer). Four terms add up to the risk: generalization,
    optimization, statistical and approximation error.

    The best of the class is the best network found on large samples, so its risk is an upper
    estimate. The optimization error is negative where the run is better than the minimizer.

    Args:
        recipe: The run. Its training data are replaced by samples of the source.
        source: The name of a generator (see :func:`mindgap.data.sources.source`), a source, or a
            function that takes a size and a seed and returns inputs and targets. None cuts small
            training sets out of the recipe's own data; the best predictor is then unknown.
        sizes: Numbers of training samples; the size of the recipe's training data if None, or a
            twentieth of it without a source.
        remedies: Remedies of the run.
        risk: ``"loss"``, or ``"error"`` for the share of wrong answers. Minima are always those of
            the loss.
        draws: Training sets of every size.
        restarts: Starts of every search for a minimum.
        references: Large samples, each of which gives one best network.
        large: Samples in each of them.
        pool: Samples on which the risk is estimated.
        steps: Steps of Adam with a decaying rate in every search.
        polish: Iterations of L-BFGS after them.
        rate: Learning rate with which a search begins.
        seed: Seed of all of it.
        progress: Whether to show a progress bar.

    >>> from mindgap.nets import MLP
    >>> data = torch.zeros(20, 1), torch.zeros(20, 1)
    >>> recipe = Recipe(model=lambda: MLP((1, 4, 1)), train=data, loss="mse", epochs=10)
    >>> few = {"draws": 2, "references": 1, "large": 100, "pool": 100, "steps": 20, "polish": 2}
    >>> found = decompose(recipe, "heteroscedastic", **few)
    >>> [term.name for term in found.rows[0].excess]
    ['approximation', 'estimation', 'optimization']
    """
    plan = Plan(
        draws=draws,
        restarts=restarts,
        references=references,
        large=large,
        pool=pool,
        steps=steps,
        polish=polish,
        rate=rate,
        seed=seed,
    )
    train, _ = recipe.splits()
    whole = len(train) if source is not None else max(2, len(train) // (2 * SHARE))
    counts = _sizes(sizes, whole)
    if source is None:
        origin, plan = _own(recipe, counts, plan)
    else:
        origin = _origin(source)
    if risk == "error" and recipe.task == "regression":
        raise InputError("risk must be 'loss' for a regression, got 'error'. Leave it out.")
    with Progress(
        plan.references + len(counts) * plan.draws, unit="search", title="decompose", shown=progress
    ) as bar:
        found = decomposed(
            recipe, origin, counts, plan, remedies=remedies, risk=risk, done=bar.advance
        )
    return told(recipe, origin, found, plan, risk, finite=source is None)


def _sizes(sizes: Sequence[int] | None, whole: int) -> tuple[int, ...]:
    if sizes is None:
        return (whole,)
    if not len(sizes):
        raise InputError("sizes must hold at least one number, got none. Leave it out.")
    return tuple(sorted({integer("sizes", size, 2) for size in sizes}))


def _origin(source: Source | str | Draw) -> Source:
    if isinstance(source, Source):
        return source
    return named(source) if isinstance(source, str) else drawn(source)


def _own(recipe: Recipe, sizes: Sequence[int], plan: Plan) -> tuple[Source, Plan]:
    """Cut training sets and one large sample out of the training data; the test data judge."""
    train, test = recipe.splits()
    if test is None:
        raise InputError(
            "Without a source, the recipe must have test data, which estimate the risk, got none. "
            "Pass test= to the recipe, or a source."
        )
    taken = plan.draws * sum(sizes)
    left = len(train) - taken
    if left < SHARE * max(sizes):
        raise InputError(
            f"Without a source, {plan.draws} training sets of {max(sizes)} samples must leave "
            f"{SHARE} times as many for the best of the class, got {len(train)} samples in all. "
            "Ask for smaller sizes or fewer draws, or pass a source."
        )
    parts = [_tensors(split.take(torch.arange(len(split)))) for split in (train, test)]

    def samples(counts: Sequence[int], seed: int) -> list[Data]:
        order = torch.randperm(len(train), generator=generator(seed))
        return [parts[1], *cut(parts[0], order, counts[1:])]

    plan = dataclasses.replace(plan, references=1, large=left, pool=len(test))
    return Source(name="the recipe's own data", samples=samples), plan


def _tensors(batch: object) -> Data:
    inputs = batch.inputs  # type: ignore[attr-defined]
    if isinstance(inputs, dict) or len(inputs) != 1:
        raise InputError(
            "decompose must get inputs that are one tensor, got several. Join them into one."
        )
    return inputs[0], batch.target  # type: ignore[attr-defined]
