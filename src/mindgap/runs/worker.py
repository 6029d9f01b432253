"""The program of a worker process, which runs what the driver sends, one task at a time.

It is started by ``mindgap.runs.process`` and exchanges messages over its standard input and output.
It ends as soon as the driver does, and ignores Ctrl-C, which the driver handles.
"""

import contextlib
import dataclasses
import importlib.util
import os
import pickle
import queue
import runpy
import signal
import struct
import sys
import threading
import time
from typing import IO, Any

from mindgap.core import InputError

_LENGTH = struct.Struct("!Q")


def send(stream: IO[bytes], payload: bytes) -> None:
    """Write one message."""
    rest = memoryview(_LENGTH.pack(len(payload)) + payload)
    while rest:
        rest = rest[stream.write(rest) :]  # a raw pipe may take a part only
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """Read one message; EOFError if the other end is gone.

    >>> import io
    >>> pipe = io.BytesIO()
    >>> send(pipe, b"hello")
    >>> receive(io.BytesIO(pipe.getvalue()))
    b'hello'
    """
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return _exactly(stream, length)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    pieces = []
    while size:
        piece = stream.read(size)
        if not piece:
            raise EOFError("the other end of the pipe is closed")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


LOADING = threading.Event()  # set while a user's script is imported; no sweep may start then


@dataclasses.dataclass(frozen=True)
class Home:
    """Where a class was defined, so that another process can find it."""

    module: str
    file: str | None
    runs_as: str | None = None  # the module behind ``python -m``


def home_of(thing: object) -> Home:
    """Find the home of an object's class."""
    name = type(thing).__module__
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None) if name == "__main__" else None
    return Home(name, getattr(module, "__file__", None), getattr(spec, "name", None))


def main() -> None:
    """Serve tasks until the driver closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, sink = _own_pipes()
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(source, tasks), daemon=True).start()
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    with contextlib.suppress(BrokenPipeError):  # the driver has gone: nobody wants the answer
        send(sink, b"ready")
        while True:
            task = tasks.get()
            send(sink, b"begun")  # one that dies before this was idle: another takes the task
            send(sink, _answer(task))
    os._exit(0)  # the end of Python would flush the broken pipe once more


def _own_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Keep the pipes to ourselves: a trial prints to standard error and reads nothing."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return source, sink


def _read(source: IO[bytes], tasks: queue.SimpleQueue[bytes]) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            tasks.put(receive(source))
    os._exit(0)  # the driver has gone: nobody wants the answer


def _watch_parent(parent: int) -> None:
    """End with the driver even if another process keeps the driver's end of the pipe open."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def _answer(task: bytes) -> bytes:
    try:
        function, args = _loaded(task)
    except BaseException as error:
        return pickle.dumps(("unloadable", f"{type(error).__name__}: {error}"))
    _limit_torch()
    try:
        return pickle.dumps(("done", function(*args)))
    except BaseException as error:
        return pickle.dumps(("raised", f"{type(error).__name__}: {error}"))


def _loaded(task: bytes) -> tuple[Any, tuple[Any, ...]]:
    # Both pickles come over a private pipe from the driver that started us.
    home, payload = pickle.loads(task)  # noqa: S301
    LOADING.set()
    try:
        ensure_importable(home)
        function, args = pickle.loads(payload)  # noqa: S301
    finally:
        LOADING.clear()
    return function, args


def ensure_importable(home: Home) -> None:
    """Load a module that is on no path: the user's script, or a file of its own."""
    if home.module in sys.modules and home.module != "__main__":
        return
    if home.module == "__main__":
        _load_main(home)
    elif not _findable(home.module) and home.file:
        _load_file(home.module, home.file)


class _Script(type(sys)):  # type: ignore[misc]
    """The user's script as a module."""


def _load_main(home: Home) -> None:
    # The name alone proves nothing: importing multiprocessing gives it to the worker's own program.
    if isinstance(sys.modules["__main__"], _Script):
        return
    module = _Script("__mp_main__")
    if home.runs_as and home.runs_as != "__main__":
        content = runpy.run_module(home.runs_as, run_name="__mp_main__", alter_sys=True)
    elif home.file:
        content = runpy.run_path(home.file, run_name="__mp_main__")
    else:
        raise InputError("it was typed into a session, which no other process can read")
    module.__dict__.update(content)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def _findable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _load_file(name: str, file: str) -> None:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _limit_torch() -> None:
    torch: Any = sys.modules.get("torch")
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if torch is not None and wanted.isdigit() and torch.get_num_threads() != int(wanted):
        torch.set_num_threads(int(wanted))
