"""Every kind of page, made once from small real inputs: one look, and usable by everybody."""

from __future__ import annotations

import html
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import BROWSER, OFF, needs_browser
from charts import PIXEL

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


CELLS = (
    "−∞",
    "12 ms",
    "—",
    "3.2 s",
    "1,297",
    "< 1 ms",
    "2 min 5 s",
    "−4 to 5",
    "5 %",
    "∞",
    "1e-05",
)
UP = "−∞|−4 to 5|1e-05|< 1 ms|12 ms|3.2 s|5 %|2 min 5 s|1,297|∞|—"
USE = """<script>
const told = {}, find = (name) => document.querySelector(name), column = find("th .sort");
const order = () => [...document.querySelectorAll("tbody td")].map((cell) => cell.textContent).join("|");
column.click(); told.up = order(); told.way = column.closest("th").getAttribute("aria-sort");
column.click(); told.down = order();
column.click(); told.back = order();
const sample = find(".gallery button.zoom");
sample.focus(); sample.click(); told.enlarged = Boolean(find("dialog[open] .enlarged img"));
find("dialog .close").click(); told.closed = !find("dialog").open;
find(".plot").dispatchEvent(new CustomEvent("cell", { bubbles: true, detail: "0,1" }));
told.behind = find("dialog[open] h4").textContent;
find(".theme").click(); told.dark = getComputedStyle(document.body).backgroundColor;
const note = document.createElement("pre");
note.id = "frames"; note.textContent = JSON.stringify(told); document.body.append(note);
</script></body>"""


@needs_browser
def test_tables_samples_and_theme_can_be_used(pages, tmp_path):
    rows = "".join(f"<tr><td>{cell}</td></tr>" for cell in CELLS)
    parts = f'<table><thead><tr><th scope="col">a</th></tr></thead><tbody>{rows}</tbody></table>'
    image = f'<ul class="gallery"><li><img src="{PIXEL}" alt="a nine"></li></ul>'
    cell = f'<section data-cell="0,1"><h4>true 0, predicted 1</h4>{image}</section>'
    parts += f'<figure class="chart"><div class="plot"></div>{cell}</figure>'
    main = re.compile(r'(<main id="content">).*?(</main>)', re.S)
    text = main.sub(lambda found: found[1] + parts + found[2], body(pages["reproduce"]))
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", USE), encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--no-first-run", "--virtual-time-budget=1000"]
    words += [*(f"--disable-{name}" for name in OFF), f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [str(BROWSER), *words, "--enable-logging=stderr", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr
    told = json.loads(
        html.unescape(done.stdout.partition('id="frames">')[2].partition("</pre>")[0])
    )
    assert (told["up"], told["way"]) == (UP, "ascending")
    assert told["down"] == "|".join([*reversed(UP.split("|")[:-1]), "—"])
    assert told["back"] == "|".join(CELLS)
    assert told["enlarged"]
    assert told["closed"]
    assert told["behind"] == "true 0, predicted 1"
    assert told["dark"] == "rgb(15, 19, 25)"
