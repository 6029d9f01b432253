"""Answer: what a job found, as text, page, JSON and, where there are samples, CSV."""

import abc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mindgap.core import Chart, plain, write_as
from mindgap.core.plain import fields_of


class Answer(abc.ABC):
    """What a job found; ``print`` shows its text.

    A subclass is a dataclass and writes ``text`` and ``page``; one that has samples writes ``csv``.
    """

    charts: tuple[Chart, ...]

    @abc.abstractmethod
    def text(self) -> str:
        """Write the answer for a terminal."""

    @abc.abstractmethod
    def page(self) -> str:
        """Write the answer as a whole page."""

    def csv(self) -> str | None:
        """Write one line per sample; None if the answer is not about samples."""
        return None

    def further(self) -> dict[str, Any]:
        """Return what follows from the fields and belongs to the plain data."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the charts."""
        fields = fields_of(self)
        del fields["charts"]
        found: dict[str, Any] = plain({**fields, **self.further()}, fallback=repr)
        return found

    def __str__(self) -> str:
        return self.text()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a page (.html), all numbers (.json) or, with samples, one line for each (.csv).

        Args:
            path: The file to write.
        """
        makers: dict[str, Callable[[], str]] = {
            ".html": self.page,
            ".json": lambda: json.dumps(self.to_dict(), indent=2, allow_nan=False),
        }
        lines = self.csv()
        if lines is not None:
            makers[".csv"] = lambda: lines
        return write_as(path, makers)
