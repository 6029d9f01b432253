"""Writing to the terminal and to files."""

import json
import sys
from typing import Any


def write(text: str) -> None:
    """One block of text on stdout."""
    sys.stdout.write(text.rstrip("\n") + "\n")


def write_json(data: Any) -> None:
    """Strict JSON on stdout."""
    write(json.dumps(data, indent=2, allow_nan=False))


def note(text: str) -> None:
    """A remark for people, on stderr, so that stdout stays clean."""
    sys.stderr.write(text.rstrip("\n") + "\n")
