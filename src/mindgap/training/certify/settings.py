"""The settings of a certificate, and checks whether the theorem applies."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from mindgap.core import (
    InputError,
    Split,
    call,
    check_classes,
    choice,
    evaluating,
    generator,
    instability,
    integer,
    number,
)
from mindgap.ops.pac_bayes.posterior import KINDS, StochasticModel
from mindgap.training.certify.posterior import OBJECTIVES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How a posterior is trained and judged."""

    posterior: str
    delta: float
    monte_carlo_delta: float
    objective: str | None
    epochs: int | None
    batch_size: int | None
    learning_rate: float | None
    floor: float
    draws: int | None
    most_draws: int
    tried: int
    seed: int


def checked(given: dict[str, Any]) -> Settings:
    """Pick the settings out of the arguments of ``certify`` and check each."""
    names = [field.name for field in dataclasses.fields(Settings)]
    settings = Settings(**{name: given[name] for name in names})
    choice("posterior", settings.posterior, KINDS)
    if settings.objective is not None:
        choice("objective", settings.objective, OBJECTIVES)
    for name, low in (("epochs", 0), ("batch_size", 1), ("draws", 1)):
        if getattr(settings, name) is not None:
            integer(name, getattr(settings, name), low)
    integer("most_draws", settings.most_draws), integer("tried", settings.tried)
    generator(settings.seed)
    if settings.learning_rate is not None:
        number("learning_rate", settings.learning_rate)
    for name in ("delta", "floor"):
        if not 0 < getattr(settings, name) < 1:
            raise InputError(
                f"{name} must be above 0 and below 1, got {getattr(settings, name)}. Pass another."
            )
    if not 0 < settings.monte_carlo_delta < settings.delta:
        raise InputError(
            f"monte_carlo_delta must be above 0 and below delta ({settings.delta}), of which it "
            f"is a part, got {settings.monte_carlo_delta}. Lower it."
        )
    return settings


def completed(settings: Settings, rules: Mapping[str, Any]) -> Settings:
    """Fill in by rule what the user left open."""
    missing = {name: rule for name, rule in rules.items() if getattr(settings, name) is None}
    return dataclasses.replace(settings, **missing)


def checked_scales(scale: float | Sequence[float] | None) -> tuple[float, ...]:
    """Check the scales to try; none if the default is wanted."""
    if scale is None:
        return ()
    given = (scale,) if isinstance(scale, int | float) else tuple(scale)
    if not given:
        raise InputError("scale must be a number or several, got an empty sequence. Pass one.")
    for one in given:
        if not number("scale", one) > 0:
            raise InputError(
                f"scale must be above 0, got {one}. Pass the size of the prior's noise."
            )
    return given


FEW = 8  # samples show the shape of the outputs


def check_outputs(network: nn.Module, split: Split) -> None:
    """Refuse outputs that are not one column per class, and labels without an output."""
    like = next(iter(network.parameters()), torch.empty(0))
    with evaluating(network):
        outputs = call(network, split.take(torch.arange(min(FEW, len(split)))).inputs, like)
    check_classes(outputs, split.targets, "train")


def broken(model: StochasticModel, split: Split) -> str:
    """Say what breaks the theorem; empty if nothing does.

    It is broken where an answer depends on more than the weights and the sample.
    """
    return instability(model.mean_outputs, split)
