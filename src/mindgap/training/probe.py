"""Probe: any measure, every so many steps, without a trace in the training."""

import dataclasses

from mindgap.core import Measure, Result, Subject, option
from mindgap.core.spec import check


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe:
    """Takes a measure every ``every`` steps and keeps (step, result) in ``readings``."""

    measure: Measure
    every: int = option(100, help="steps between two readings", low=1)
    readings: list[tuple[int, Result]] = dataclasses.field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        check(self)

    def look(self, subject: Subject, step: int) -> None:
        """Read the measure if its turn has come."""
        if step % self.every == 0:
            self.readings.append((step, self.measure(subject)))
