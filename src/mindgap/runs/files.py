"""Where the runs are kept by default."""

from __future__ import annotations

import os
from pathlib import Path


def default_store() -> Path:
    """``$MINDGAP_RUNS``, or ``mindgap/runs.sqlite`` in ``$XDG_CACHE_HOME`` (``~/.cache`` if unset)."""
    named = os.environ.get("MINDGAP_RUNS")
    if named:
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "mindgap" / "runs.sqlite"
