"""What every test shares: one thread per process, so that parallel workers do not fight over the cores."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before torch is imported, and for the processes that tests start
os.environ.setdefault("MKL_NUM_THREADS", "1")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    # A shell starts background jobs so. Tests that interrupt, and the programs they start, need
    # Ctrl-C to work.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _same_numbers() -> None:
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def pytest_configure() -> None:
    """Modules draw the same numbers in every run when they are imported."""
    _same_numbers()
    gc.disable()  # 13,000 tests and all packages are here to stay, and looking at them costs seconds


def pytest_collection_finish() -> None:
    """What was collected is not looked at again whenever garbage is."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """So does every test, in whatever order they run."""
    _same_numbers()


SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder with the real data sets; a test that asks for it is skipped where it is missing."""
    if not SHARED.is_dir():
        pytest.skip(f"the real data sets are not at {SHARED}")
    return SHARED


@pytest.fixture(scope="module")
def shared_module(shared_folder: Path) -> Iterator[Path]:
    """The same as the user's data folder, for all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINDGAP_DATA", str(shared_folder))
        yield shared_folder
