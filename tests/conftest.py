"""What every test shares: one thread a process, so that parallel workers do not fight over the cores."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, and for the processes that tests start
os.environ.setdefault("MKL_NUM_THREADS", "1")
