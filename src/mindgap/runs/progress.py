"""Progress: a bar on standard error with the time left; in a log file, a line now and then."""

from __future__ import annotations

import sys
from typing import Any, Self


class Progress:
    """Counts finished trials; shows nothing if ``shown`` is false."""

    def __init__(self, title: str, total: int, resumed: int, *, shown: bool, unit: str = "trial") -> None:
        self._bar: Any = None
        self._failed = 0
        if shown:
            self._bar = _bar(title, total, resumed, unit)

    def advance(self, *, failed: bool) -> None:
        """One more trial is finished."""
        self._failed += failed
        if self._bar is not None:
            if failed:
                self._bar.set_postfix(failed=self._failed, refresh=False)
            self._bar.update()

    def tick(self) -> None:
        """Let the clock run on a terminal while a long trial is under way."""
        if self._bar is not None and sys.stderr.isatty():
            self._bar.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(title: str, total: int, resumed: int, unit: str) -> Any:
    from tqdm import tqdm

    live = sys.stderr.isatty() or "ipykernel" in sys.modules
    pause = 0.2 if live else 30.0
    return tqdm(desc=title, total=total, initial=resumed, unit=unit, file=sys.stderr, mininterval=pause)
