"""Runs: the trials of a study, run anywhere, kept in one file, never run twice."""

from __future__ import annotations

from mindgap.runs.executors import DaskExecutor, LocalExecutor, RayExecutor, SerialExecutor
from mindgap.runs.page import results_page
from mindgap.runs.results import load_results, save_results
from mindgap.runs.store import Store
from mindgap.runs.sweep import Sweep, sweep
from mindgap.runs.trial import trial_id

__all__ = [
    "DaskExecutor",
    "LocalExecutor",
    "RayExecutor",
    "SerialExecutor",
    "Store",
    "Sweep",
    "load_results",
    "results_page",
    "save_results",
    "sweep",
    "trial_id",
]
