"""ensemble: train many seeds and hyper-parameters at once."""

import dataclasses
import warnings
from collections.abc import Sequence

from torch import Tensor

from mindgap.core import Progress, Recipe, Remedy, same_environment, validated
from mindgap.training.fit import fit
from mindgap.training.fitted import Fitted
from mindgap.training.vectorized.block import Block, Settings, members_at_once
from mindgap.training.vectorized.members import Group, Member, build_all, groups_of, members_of
from mindgap.training.vectorized.problem import Unsupported


class SequentialNotice(UserWarning):
    """Warns that members are trained one after the other, and says why."""


@validated
@same_environment()
def ensemble(
    recipe: Recipe,
    seeds: Sequence[int],
    *,
    remedies: Sequence[Remedy] | Sequence[Sequence[Remedy]] = (),
    learning_rates: Sequence[float] | Tensor | None = None,
    weight_decays: Sequence[float] | Tensor | None = None,
    sample_weights: Tensor | None = None,
    evaluate_every: int = 0,
    keep_history: bool = True,
    block: int | None = None,
    progress: bool = False,
) -> tuple[Fitted, ...]:
    """Train one member per seed, all at once.

    Member i equals ``fit(recipe, remedies, seed=seeds[i])`` up to rounding. Dropout draws masks of
    its own: they have the right distribution, but are not those of ``fit``. Members that cannot
    share tensors (other data, other layers) are trained in groups. Members that cannot be
    vectorized are trained by :func:`fit` one after the other, with a :class:`SequentialNotice`
    that says why. Ctrl-C keeps the epochs that are complete.

    Args:
        recipe: What all members have in common.
        seeds: One seed per member.
        remedies: One list for all members, or one list per member.
        learning_rates: One number per member, in place of the recipe's.
        weight_decays: One number per member, in place of the recipe's.
        sample_weights: One row per member, one column per training sample.
        evaluate_every: How often, in epochs, the curves get losses and errors in evaluation mode;
            0 is never.
        keep_history: Whether members keep their curves.
        block: The most members to hold in memory at once; chosen by their size if None.
        progress: Whether to show a progress bar.

    Returns:
        The trained members, in the order of ``seeds``.

    >>> from mindgap.nets import MLP
    >>> import torch
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    >>> members = ensemble(recipe, seeds=range(3), learning_rates=[1e-5, 1e-3, 1e-1])
    >>> losses = [member.subject().mean_loss() for member in members]
    >>> min(losses) == losses[2]
    True
    """
    settings = Settings(evaluate_every, keep_history, block)
    hyper = {"learning_rate": learning_rates, "weight_decay": weight_decays}
    members = members_of(recipe, seeds, remedies, hyper, sample_weights)
    found: dict[int, Fitted] = {}
    for group in groups_of(members):
        found |= _train(group, settings, progress)
        # Ctrl-C ends one group. The others must not start, but still need a model to return.
        settings = dataclasses.replace(settings, interrupted=any(map(_interrupted, found.values())))
    return tuple(found[k] for k in range(len(members)))


def _train(group: Group, settings: Settings, progress: bool) -> dict[int, Fitted]:
    if group.reason:
        return _one_by_one(group, settings, progress, group.reason)
    try:
        return _at_once(group, settings, progress)
    except Unsupported as refusal:
        return _one_by_one(group, settings, progress, str(refusal))


def _at_once(group: Group, settings: Settings, progress: bool) -> dict[int, Fitted]:
    spans, found, going = _spans(group, settings), list[Fitted](), not settings.interrupted
    with Progress(group.recipes[0].epochs * len(spans), unit="epoch", shown=progress) as bar:
        for span in spans:
            block = Block(group.members[span], group.recipes[span], settings)
            if going:
                going = block.train(bar)
            else:
                block.skip()
            found += block.fitted()
    return {member.place: fitted for member, fitted in zip(group.members, found, strict=True)}


def _spans(group: Group, settings: Settings) -> list[slice]:
    recipe, total = group.recipes[0], len(group.members)
    (model,) = build_all([recipe], [group.members[0].seed])
    size = settings.block or members_at_once(model, recipe)
    return [slice(start, start + size) for start in range(0, total, size)]


def _one_by_one(group: Group, settings: Settings, progress: bool, reason: str) -> dict[int, Fitted]:
    count = len(group.members)
    warnings.warn(
        f"{count} member{'s are' if count > 1 else ' is'} trained one after the other: {reason}.",
        SequentialNotice,
        stacklevel=4,
    )
    going, found = not settings.interrupted, {}
    with Progress(count, unit="member", shown=progress) as bar:
        for member in group.members:
            fitted = _alone(member, settings, going)
            found[member.place], going = fitted, going and not _interrupted(fitted)
            bar.advance()
    return found


def _alone(member: Member, settings: Settings, going: bool) -> Fitted:
    if not going:
        fitted = fit(member.recipe.replace(epochs=0), member.remedies, seed=member.seed)
        return dataclasses.replace(fitted, stopped="interrupted before the first epoch")
    fitted = fit(
        member.recipe, member.remedies, seed=member.seed, evaluate_every=settings.evaluate_every
    )
    return fitted if settings.keep_history else dataclasses.replace(fitted, history=())


def _interrupted(fitted: Fitted) -> bool:
    return fitted.stopped.startswith("interrupted")
