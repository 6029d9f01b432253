"""Study: a list of trials, each of which gives a record, and a table that summarizes them."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from mindgap.core.spec import Spec
from mindgap.core.table import Table

Record = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One piece of a study.

    Args:
        parameters: Plain data that tell this trial from the others.
        seed: Fixes all that is random in it.

    >>> Trial(parameters={"width": 8}, seed=1)["width"]
    8
    """

    parameters: Mapping[str, Any]
    seed: int = 0

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]


class Study(Spec, abc.ABC, abstract=True):
    """One table or figure of a paper, or one experiment.

    ``run`` must depend on the study's fields, the trial and nothing else, and return plain JSON
    data. ``expected`` holds the paper's numbers, keyed as the table's rows. ``reproduces`` names
    what the study is about in the source documents, as ``"document: table or figure"`` (see
    ``mindgap.studies.documents``); an experiment of our own names nothing.
    """

    family: ClassVar[str] = "study"
    expected: ClassVar[Mapping[str, float]] = {}
    reproduces: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def trials(self) -> Sequence[Trial]:
        """List all trials, in a fixed order."""

    def prepare(self) -> None:
        """Raise one sentence if an extra or a data set that trials need is missing.

        A sweep calls it once before the first trial that it runs, in the process that drives it.
        Nothing is checked unless a study says what it needs.
        """

    @abc.abstractmethod
    def run(self, trial: Trial) -> Record:
        """Run one trial and return its record."""

    @abc.abstractmethod
    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """Make the table from the records, in the order of ``trials``."""

    @abc.abstractmethod
    def tiny(self) -> Self:
        """Return the same study, small enough for a test of a few seconds."""

    @property
    def is_tiny(self) -> bool:
        """Whether these are the settings of the quick form, which judges nothing."""
        usual = type(self)()
        return self.tiny() == self and usual.tiny() != usual
