"""How a posterior is trained and judged, checked before any work is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from mindgap.core.arguments import choice, generator, integer, number
from mindgap.core.errors import InputError
from mindgap.ops.posterior import KINDS
from mindgap.training.certify_posterior import OBJECTIVES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How a posterior is trained and judged."""

    posterior: str
    delta: float
    monte_carlo_delta: float
    objective: str
    epochs: int
    batch_size: int
    learning_rate: float
    floor: float
    draws: int
    seed: int


def checked(given: dict[str, Any]) -> Settings:
    """The settings among the arguments of ``certify``, each checked."""
    names = [field.name for field in dataclasses.fields(Settings)]
    settings = Settings(**{name: given[name] for name in names})
    choice("posterior", settings.posterior, KINDS)
    choice("objective", settings.objective, OBJECTIVES)
    integer("epochs", settings.epochs, 0), integer("batch_size", settings.batch_size), integer("draws", settings.draws)
    generator(settings.seed), number("learning_rate", settings.learning_rate)
    for name in ("delta", "floor"):
        if not 0 < getattr(settings, name) < 1:
            raise InputError(f"{name} must be above 0 and below 1, got {getattr(settings, name)}. Pass another.")
    if not 0 < settings.monte_carlo_delta < settings.delta:
        raise InputError(
            f"monte_carlo_delta must be above 0 and below delta ({settings.delta}), of which it is a part, got "
            f"{settings.monte_carlo_delta}. Lower it."
        )
    return settings


def checked_scales(scale: float | Sequence[float] | None) -> tuple[float, ...]:
    """The scales to try; none where the default is wanted."""
    given = () if scale is None else (scale,) if isinstance(scale, int | float) else tuple(scale)
    for one in given:
        if not number("scale", one) > 0:
            raise InputError(f"scale must be above 0, got {one}. Pass the size of the prior's noise.")
    return given
