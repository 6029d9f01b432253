"""Probe: take a measure while a network is trained, without a trace in the training."""

import copy
import dataclasses
from typing import Any, Literal

from mindgap.core import Measure, Result, Subject, option, validated
from mindgap.core.spec import check


@validated
@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe:
    """Takes a measure every so many steps.

    Args:
        measure: What to measure.
        every: Steps between two readings.
        since: Which weights a measure of change compares with: those before training, as the
            subject has them, or those of the reading before.
        readings: Where the pairs (step, result) are collected.

    >>> from mindgap import Recipe, fit, measures, nets
    >>> import torch
    >>> inputs = torch.linspace(-1, 1, 8)[:, None]
    >>> recipe = Recipe(model=lambda: nets.MLP((1, 4, 1)), train=(inputs, inputs**2), loss="mse")
    >>> probe = Probe(measure=measures.ParameterNorm(), every=8)
    >>> _ = fit(recipe, probes=[probe])
    >>> [step for step, norm in probe.readings]
    [8, 16]
    """

    measure: Measure
    every: int = option(100, help="steps between two readings", low=1)
    since: Literal["initial", "reading"] = option(
        "initial", help="what a measure of change compares with"
    )
    readings: list[tuple[int, Result]] = dataclasses.field(default_factory=list, compare=False)
    _before: dict[str, Any] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        check(self)

    def look(self, subject: Subject, step: int) -> None:
        """Take the measure if it is due at this step."""
        if step % self.every == 0:
            self.readings.append((step, self.measure(self._subject(subject))))

    def _subject(self, subject: Subject) -> Subject:
        """The subject, or one whose initial weights are those of the reading before."""
        if self.since == "initial":
            return subject
        own = copy.copy(subject)
        own.initial = self._before.get("state", subject.initial)
        self._before["state"] = copy.deepcopy(subject.model.state_dict())
        return own
