"""Pages as Chromium shows them after their scripts ran, for the tests with the marker ``browser``."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
OFF = ("gpu", "quic", "background-networking", "component-update", "sync", "extensions")


def needs_browser(test):
    """Mark a test that needs Chromium, and skip it with a reason where that is missing."""
    reason = "needs chromium, chromium-browser or google-chrome on the PATH"
    return pytest.mark.browser(pytest.mark.skipif(BROWSER is None, reason=reason)(test))


COLLECT = """<script>
const note = document.createElement("pre");
note.id = "frames";
addEventListener("load", () => setTimeout(() => {
  const frames = [...document.querySelectorAll("iframe")];
  note.textContent = JSON.stringify(frames.map((f) => f.contentDocument.documentElement.outerHTML));
  document.body.append(note);
}, 4000));
</script>"""


def seen(pages: Sequence[Path], folder: Path) -> tuple[list[str], list[str]]:
    """Return the elements of pages after their scripts ran, and what the console said.

    One browser shows all of them, each in a frame, because to start it costs more than to draw.
    """
    whole = folder / "frames.html"
    texts = (html.escape(page.read_text(encoding="utf-8")) for page in pages)
    frames = (f'<iframe srcdoc="{text}" width="1200" height="2000"></iframe>' for text in texts)
    whole.write_text(f"<!doctype html><body>{''.join(frames)}{COLLECT}</body>", encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--no-first-run", "--virtual-time-budget=12000"]
    places = [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [str(BROWSER), *words, *(f"--disable-{x}" for x in OFF), *places, whole.as_uri()],
        capture_output=True,
        text=True,
        timeout=240,  # the machine may be busy
        check=True,
        env={**os.environ, "LANG": "C"},
    )
    found = done.stdout.partition('<pre id="frames">')[2].rpartition("</pre>")[0]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found)), console


def first_section(dom: str) -> tuple[str, str]:
    """Return the id and the heading of the first section of a page."""
    main = dom.partition('<main id="content">')[2]
    found = re.match(r'\s*<section id="([^"]*)".*?<h2[^>]*>(.*?)</h2>', main, re.S)
    assert found, main[:200]
    return found[1], html.unescape(found[2])
