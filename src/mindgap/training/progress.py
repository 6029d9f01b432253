"""A progress bar with the time left, on stderr, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self


class Progress:
    """Epochs done, time left and the last losses."""

    def __init__(self, total: int, done: int, shown: bool) -> None:
        self._bar: Any = None
        if shown:
            from tqdm import tqdm

            self._bar = tqdm(total=total, initial=done, unit="epoch", dynamic_ncols=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, row: Mapping[str, float]) -> None:
        """One epoch further."""
        if self._bar is not None:
            shown = {name: f"{value:.3g}" for name, value in row.items() if name in ("running_loss", "test_error")}
            self._bar.set_postfix(shown, refresh=False)
            self._bar.update()
