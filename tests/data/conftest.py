"""No test here touches the user's cache or the internet."""

import http.server
import threading
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no user folder, no proxy and no host but this one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MINDGAP_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    real = urllib.request.OpenerDirector.open

    def local_only(opener, request, data=None, timeout=10):
        if urllib.parse.urlsplit(request.full_url).hostname not in ("127.0.0.1", "localhost"):
            raise urllib.error.URLError("no internet in tests")
        return real(opener, request, data, timeout)

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", local_only)
    return tmp_path / "cache" / "mindgap"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, as the user's folder."""
    monkeypatch.setenv("MINDGAP_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def random():
    """A generator with a fixed seed."""
    return np.random.default_rng(0)


@pytest.fixture
def shared(shared_folder, monkeypatch):
    """The folder with the real data sets, as the user's folder."""
    monkeypatch.setenv("MINDGAP_DATA", str(shared_folder))
    return shared_folder


@dataclass
class Host:
    """Files that a local server offers, how it misbehaves, and what it was asked."""

    url: str = ""
    files: dict = field(default_factory=dict)
    cut: list = field(
        default_factory=list
    )  # for each coming answer: after how many bytes the connection breaks
    ranges: bool = True
    length: str = ""  # the Content-Length to claim instead of the true one
    redirections: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)


@pytest.fixture
def host():
    state = Host()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            answer(self, state)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        server.shutdown()
        thread.join()


def answer(handler, state):
    wanted = handler.headers.get("Range")
    state.asked.append((handler.path, wanted))
    if handler.path.lstrip("/") in state.redirections:
        handler.send_response(302)
        handler.send_header("Location", state.redirections[handler.path.lstrip("/")])
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    content = state.files.get(handler.path.lstrip("/"))
    if content is None:
        handler.send_error(404)
        return
    start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and state.ranges else 0
    if start and start >= len(content):
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{len(content)}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    handler.send_response(206 if start else 200)
    handler.send_header("Content-Length", state.length or str(len(content) - start))
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    handler.end_headers()
    handler.wfile.write(content[start : start + state.cut.pop(0) if state.cut else None])
