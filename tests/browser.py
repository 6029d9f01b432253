"""A page as Chromium shows it after its scripts ran, for the tests with the marker ``browser``."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
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


def seen(page: Path, folder: Path) -> tuple[str, list[str]]:
    """Return the page's elements after its scripts ran, and what the console said."""
    words = ["--headless", "--no-sandbox", "--no-first-run", "--virtual-time-budget=8000"]
    places = [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [str(BROWSER), *words, *(f"--disable-{x}" for x in OFF), *places, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "LANG": "C"},
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def first_section(dom: str) -> tuple[str, str]:
    """Return the id and the heading of the first section of a page."""
    main = dom.partition('<main id="content">')[2]
    found = re.match(r'\s*<section id="([^"]*)".*?<h2[^>]*>(.*?)</h2>', main, re.S)
    assert found, main[:200]
    return found[1], html.unescape(found[2])
