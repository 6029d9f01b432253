"""The command line; heavy packages are imported inside commands, so that help is instant."""

import os
import sys
from collections.abc import Sequence

from mindgap.core import MindgapError

OK, FAILED, BAD_INPUT = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit code: 0 for success, 1 for a failure or an interruption, 2 for bad input, which is
        explained in one sentence on stderr.
    """
    from mindgap.cli.parser import build

    try:
        arguments = build().parse_args(argv)
        return int(arguments.run(arguments))
    except MindgapError as error:
        if os.environ.get("MINDGAP_TRACEBACK"):
            raise
        sys.stderr.write(f"mindgap: {error}\n")
        return BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("mindgap: interrupted; what was done is kept.\n")
        return FAILED
    except BrokenPipeError:  # the reader (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
