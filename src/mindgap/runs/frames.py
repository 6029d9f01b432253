"""Frames: messages of a known length over a pipe."""

from __future__ import annotations

import struct
from typing import IO

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
