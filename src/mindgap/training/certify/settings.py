"""The settings of a certificate, and the rules that fill in what the user left open."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mindgap.core import InputError, Split, choice, generator, integer, number
from mindgap.ops.pac_bayes.bounds import monte_carlo
from mindgap.ops.pac_bayes.per_sample_draws import Drawn, expected_losses
from mindgap.ops.pac_bayes.posterior import KINDS, StochasticModel
from mindgap.training.certify.posterior import OBJECTIVES

# Each stage has a stream of random numbers of its own: a longer training does not change the draws.
TRAINING, DRAWING, TESTING, PILOTING, SCALING = 500_003, 500_009, 500_029, 500_041, 500_057
PILOT = 4096  # samples that say how many draws are needed
MONTE_CARLO_PART = 0.05  # of the bound, which the draws may add to it
# What a mode does not use: a setting without any effect would be taken for one.
NOISE = (
    *("posterior", "monte_carlo_delta", "objective", "epochs", "batch_size", "learning_rate"),
    *("scale", "draws", "most_draws"),
)
UNUSED = {"pac-bayes": ("blocks",), "held-out": (*NOISE, "blocks"), "progressive": NOISE}


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

    def stream(self, stage: int) -> int:
        """Return the seed of a stage."""
        return (self.seed * 1_000_003 + stage) % 2**63

    def draw(
        self, model: StochasticModel, split: Split, stage: int, draws: int, unstable: str = ""
    ) -> Drawn:
        """Draw weights for a split.

        A model whose answers are unstable may not answer single samples. It gets batches of eight:
        its numbers are shown, but nothing follows from them.

        Args:
            model: The stochastic classifier.
            split: The samples to judge.
            stage: Which stream of random numbers to use.
            draws: Least number of draws.
            unstable: What breaks the theorem, if anything does.
        """
        return expected_losses(
            model,
            split,
            draws=max(1, len(split) // 8) if unstable else draws,
            floor=self.floor,
            seed=self.stream(stage),
            whole=bool(unstable),
        )


def refuse_unused(mode: str, given: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Refuse settings that a mode does not use.

    Args:
        mode: The mode.
        given: The settings.
        usual: Their defaults.
    """
    found = [name for name in UNUSED[mode] if given[name] != usual[name]]
    if found:
        other = "progressive" if found == ["blocks"] else "pac-bayes"
        raise InputError(
            f"mode={mode!r} makes no use of {', '.join(found)}, got "
            f"{found[0]}={given[found[0]]!r}. Leave it away, or pass mode={other!r}."
        )


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


def enough_draws(
    model: StochasticModel,
    split: Split,
    settings: Settings,
    bound: Callable[[float], float],
    delta: float,
    unstable: str,
) -> int:
    """Decide how many draws keep their part of the bound below ``MONTE_CARLO_PART``.

    A limit on draws that stop when they look good fails too often. So the number is decided by a
    pilot with random numbers of its own, which is then thrown away: given the data and the
    posterior, the draws that count are independent of it.

    Args:
        model: The stochastic classifier.
        split: The bound data.
        settings: Holds the most draws.
        bound: Returns the bound for a limit of the error.
        delta: The probability with which that limit may fail.
        unstable: What breaks the theorem, if anything does.
    """
    few = some_of(split, PILOT, settings.seed)
    pilot = settings.draw(model, few, PILOTING, len(few), unstable)
    # As if one more draw were wrong: a pilot without errors does not show that there are none.
    seen = (pilot.error * pilot.draws + 1) / (pilot.draws + 1)
    return needed_draws(seen, bound, delta, settings.most_draws)


def some_of(split: Split, most: int, seed: int) -> Split:
    """Take random samples, at most so many."""
    index = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))
    return split.subset(index[:most].sort().values)


def needed_draws(seen: float, bound: Callable[[float], float], delta: float, most: int) -> int:
    """Count the draws after which they add at most ``MONTE_CARLO_PART`` to a bound.

    Args:
        seen: The error that the draws are expected to show.
        bound: Returns the bound for a limit of the error.
        delta: The probability with which that limit may fail.
        most: The most draws.

    >>> needed_draws(0.1, lambda limit: limit, 0.01, 10**6)
    35496
    """
    alone, draws = bound(seen), min(1000, most)
    while draws < most:
        found = bound(monte_carlo(seen, draws, delta))
        if found - alone <= MONTE_CARLO_PART * found:
            break
        draws = min(most, draws + draws // 4)
    return draws
