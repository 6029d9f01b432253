"""Arm: one way to train, which competes with others at equal trials."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from mindgap.core import Recipe, Remedy, find

BASELINE = "baseline"
RETUNED = "retuned baseline"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to train a recipe.

    Args:
        name: Tells it from all other arms.
        group: What it tries: ``"baseline"``, ``"retuned baseline"``, or the name of a remedy or of
            a fix. The strengths of a remedy are one group.
        cost: Time of a training as a multiple of the baseline's.
        settings: Fields of the recipe that it changes.
        remedies: The remedies that it trains with.
        fix: What it corrects in the data or the model, as plain data (see
            :mod:`mindgap.training.race.fixes`).

    >>> Arm(name="learning rate ×3", group=RETUNED, settings={"learning_rate": 0.003}).cost
    1.0
    """

    name: str
    group: str
    cost: float = 1.0
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    remedies: tuple[Remedy, ...] = ()
    fix: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def on(self, control: "Arm") -> "Arm":
        """Return the same change on top of another arm."""
        return dataclasses.replace(
            self,
            cost=self.cost * control.cost,
            settings={**control.settings, **self.settings},
            remedies=(*control.remedies, *self.remedies),
            fix={**control.fix, **self.fix},
        )

    def applied(self, recipe: Recipe) -> Recipe:
        """Return the recipe with the settings of the arm; remedies and fixes come on top."""
        return recipe.replace(**self.settings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that says all about a training with this arm."""
        return {
            "name": self.name,
            "group": self.group,
            "cost": self.cost,
            "settings": dict(self.settings),
            "remedies": [[remedy.name, remedy.parameters] for remedy in self.remedies],
            "fix": dict(self.fix),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read back what :meth:`to_dict` wrote."""
        named = [(find(name, "remedy"), fields) for name, fields in data["remedies"]]
        remedies: Any = tuple(made(**fields) for made, fields in named)
        return cls(**{**data, "remedies": remedies})


def baseline() -> Arm:
    """Return the recipe as it is."""
    return Arm(name=BASELINE, group=BASELINE)
