"""Progress: a bar with the time left; in a log file, a line every half minute."""

import sys
from collections.abc import Mapping
from typing import Any, Self


class Progress:
    """Shows how much of a long job is finished.

    Args:
        total: How many pieces of work there are, those already done included.
        done: How many were finished before, by a run that is resumed.
        unit: What is counted: epochs, trials, points.
        title: The text in front of the bar.
        shown: Whether to show anything at all.

    >>> with Progress(3, unit="epochs", shown=False) as progress:
    ...     progress.advance(2)
    """

    def __init__(
        self, total: int | None, *, done: int = 0, unit: str, title: str = "", shown: bool
    ) -> None:
        self._failed = 0
        self._bar: Any = _bar(total, done, unit, title) if shown else None

    def advance(
        self, facts: Mapping[str, float] | None = None, *, by: int = 1, failed: bool = False
    ) -> None:
        """Report that work is finished.

        Args:
            facts: Numbers to show next to the bar.
            by: How many pieces are finished.
            failed: Whether they failed.
        """
        self._failed += failed
        if self._bar is None:
            return
        shown = {name: f"{value:.3g}" for name, value in (facts or {}).items()}
        if self._failed:
            shown["failed"] = str(self._failed)
        if shown:
            self._bar.set_postfix(shown, refresh=False)
        self._bar.update(by)

    def begin(self, title: str) -> None:
        """Say in front of the bar what is under way now.

        Args:
            title: A few words.
        """
        if self._bar is not None:
            self._bar.set_description_str(title, refresh=sys.stderr.isatty())

    def tick(self) -> None:
        """Update the clock on a terminal while a long piece of work is under way."""
        if self._bar is not None and sys.stderr.isatty():
            self._bar.refresh()

    def note(self, text: str) -> None:
        """Write a remark above the bar."""
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(total: int | None, done: int, unit: str, title: str) -> Any:
    from tqdm import tqdm  # only a job that shows its progress pays for it

    class Bar(tqdm):  # type: ignore[misc]
        """A bar without a thread that watches it and outlives the job."""

        monitor_interval = 0

    live = sys.stderr.isatty() or "ipykernel" in sys.modules
    pause = 0.2 if live else 30.0
    return Bar(
        desc=title or None,
        total=total,
        initial=done,
        unit=unit,
        unit_scale=unit == "B",
        file=sys.stderr,
        mininterval=pause,
        miniters=1,  # a slow step after fast ones is shown, which the thread would see to
        dynamic_ncols=True,
    )
