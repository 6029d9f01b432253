"""Every kind of page, made once from small real inputs: one look, and usable by everybody."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import pytest

from mindgap.report.html import library

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 6_000_000  # bytes of a page
SHOWN = (
    "examine",
    "study",
    "monitor",
    "reproduce",
)  # in Chromium, of which every page costs seconds


def _pages():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import screenshots
    finally:
        sys.path.pop(0)
    return screenshots


KINDS = (*_pages().PICTURED, *_pages().FURTHER)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """All pages by kind."""
    folder = tmp_path_factory.mktemp("pages")
    maker = _pages().Pages(folder, small=True)
    for kind in KINDS:
        getattr(maker, kind)(folder / f"{kind}.html")
    return {kind: folder / f"{kind}.html" for kind in KINDS}


def body(path):
    return path.read_text(encoding="utf-8").replace(library(), "")


@pytest.mark.parametrize("kind", KINDS)
def test_all_pages_share_their_frame(kind, pages):
    text = body(pages[kind])
    assert pages[kind].stat().st_size < LIMIT
    for part in ('<a class="skip"', '<header class="masthead">', '<main id="content">'):
        assert text.count(part) == 1
    assert text.count("<h1>") == 1
    assert re.search(r'<main id="content">\s*<section id="verdict" class="verdict tone-', text)
    assert '<p class="brand">mindgap <span></span>' not in text
    assert re.search(r'<footer class="foot">Made by mindgap [\d.]+', text)
    assert "default-src 'none'" in text
    assert not re.search(r"url\(|@import|<link|fetch\(|XMLHttpRequest", text)
    levels = [int(level) for level in re.findall(r"<h([1-6])[ >]", text)]
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels)), levels
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    anchors = set(re.findall(r'href="#([^"]+)"', text))
    assert anchors <= set(ids)
    for plot in re.findall(r'<div class="plot.*?</figure>', text, re.S):
        assert re.match(r'<div class="plot[^"]*" id="[^"]+" role="img" aria-label="[^"]+"', plot)
        assert '<details class="numbers">' in plot
    assert all(alt for alt in re.findall(r'<img [^>]*alt="([^"]*)"', text))
