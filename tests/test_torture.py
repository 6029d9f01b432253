"""The short form of ``make torture``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork a process")
def test_eight_random_kills_lose_and_repeat_nothing() -> None:
    # In a process of its own, because a process with threads must not be forked.
    done = subprocess.run(
        [sys.executable, "torture.py", "--kills", "8"], cwd=HERE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"^(\w+)Torture: ", done.stdout, re.MULTILINE)
    assert set(found) == {"Sweep", "Fit", "Sample", "Certify"}
    assert "8 kills in" in done.stdout
