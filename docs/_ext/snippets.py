"""Runs the code of a page in order and shows below each block what it printed.

A block of Python with a caption is a file of that name. A block of bash holds ``mindgap`` commands
and ``python FILE.py``, one per line.
"""

import contextlib
import dataclasses
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

FENCE = re.compile(
    r"^```(?:\{code-block\} )?(python|bash)\n(?::caption: (\S+)\n\n)?(.*?)^```\n", re.M | re.S
)
EXECUTED = ("users/practitioner", "users/researcher", "users/simulator", "users/teacher")


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code and where it ends in its page."""

    language: str
    file: str | None
    code: str
    end: int


def blocks(text):
    """Find the blocks of a page that are run."""
    return [Block(found[1], found[2], found[3], found.end()) for found in FENCE.finditer(text)]


def outputs(text):
    """Run all blocks in order, in a fresh interpreter and an empty folder; return what they print."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "error", __file__],
            input=json.dumps([dataclasses.asdict(block) for block in blocks(text)]),
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "COLUMNS": "96", "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": folder},
        )
    if done.returncode:
        raise RuntimeError(f"A block of the page failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def with_outputs(text):
    """Insert below each block of a page what it printed."""
    for block, printed in reversed(list(zip(blocks(text), outputs(text), strict=True))):
        if printed.strip():
            shown = f"\n```{{code-block}} text\n:class: output\n\n{printed.rstrip()}\n```\n"
            text = text[: block.end] + shown + text[block.end :]
    return text


def run(block, names):
    """Run one block and return its output."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.file:
            Path(block.file).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.code, "<page>", "exec"), names)
        else:
            _commands(block.code)
    return printed.getvalue()


def _commands(code):
    from mindgap.cli import main

    for line in filter(None, code.replace("\\\n", " ").splitlines()):
        program, *words = shlex.split(line, comments=True)
        if program == "python":
            runpy.run_path(words[0], run_name="__main__")
        elif program != "mindgap" or main(words):
            raise RuntimeError(f"The command failed: {line}")


def setup(app):
    app.add_config_value("run_snippets", True, "env", bool)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read(app, name, content):
    if app.config.run_snippets and name in EXECUTED:
        content[0] = with_outputs(content[0])


if __name__ == "__main__":
    sys.path[0] = ""  # a block may import a file that another block is
    names = {"__name__": "__main__"}
    results = [run(Block(**block), names) for block in json.loads(sys.stdin.read())]
    print(json.dumps(results))
