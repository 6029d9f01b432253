"""The command line; heavy packages are imported inside commands, so that help is instant."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from mindgap.core import MindgapError

TYPE_CHECKING = False  # as in mindgap/_lazy.py
if TYPE_CHECKING:
    from typing import TextIO

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
KEPT = "interrupted; what was done is kept."
OUTPUT = "The output"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit code: 0 for success, 1 for a failure, 2 for bad input, which is explained in one
        sentence on stderr, and 130 for an interruption.
    """
    if sys.stderr is None:  # closed by the caller
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        return _told(argv)
    except KeyboardInterrupt:
        return _say(KEPT, INTERRUPTED)
    except BrokenPipeError:  # the reader (head, less) has gone
        _drop_stdout()
        return OK
    except (OSError, MemoryError, RuntimeError) as error:
        text = _environment(error)
        if not text or os.environ.get("MINDGAP_TRACEBACK"):
            raise
        return _say(text, FAILED)


def put(stream: TextIO, text: str) -> None:
    """Write at once, so that a full disk is told by ``main`` and not by Python at its exit."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        error.filename = OUTPUT
        raise


def _told(argv: Sequence[str] | None) -> int:
    """Run a command and write all of its output; bad input is told."""
    from mindgap.cli.parser import build

    if sys.stdout is None:
        # A file opened now would get its number, and stray prints would end up in that file.
        return _say(
            "The output must have somewhere to go, got a closed standard output. Redirect it to a "
            "file or to /dev/null.",
            BAD_INPUT,
        )
    try:
        code = _run(build().parse_args(argv))
    except MindgapError as error:
        if os.environ.get("MINDGAP_TRACEBACK"):
            raise
        return _say(str(error), BAD_INPUT)
    put(sys.stdout, "")
    return code


def _run(arguments: object) -> int:
    try:
        return int(arguments.run(arguments))  # type: ignore[attr-defined]
    except SystemExit as stop:  # no command calls it, so the user's code did
        raise MindgapError(
            f"Your code must return and not end the program, got sys.exit({stop.code!r}). Remove "
            "the call."
        ) from stop


def _say(text: str, code: int) -> int:
    sys.stderr.write(f"mindgap: {text}\n")
    return code


def _environment(error: Exception) -> str:
    """Say what the machine lacks, in one sentence; empty if the error is another one."""
    from mindgap.core.errors import shortened

    if isinstance(error, OSError):
        if error.filename == OUTPUT:
            _drop_stdout()
        place = error.filename or "Every file"
        told = error.strerror or str(error)
        return shortened(
            f"{place} must be a place that can be read and written, got: {told}. Choose another."
        )
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        told = " ".join(str(error).split())[:160] or "too little memory"
        return f"The sizes must fit the memory, got: {told}. Choose smaller ones."
    return ""


def _drop_stdout() -> None:
    """Send the rest of the output nowhere, or Python would fail at its exit to write it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
