"""Every kind of page, made once from small real inputs: one look, and usable by everybody."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import BROWSER, OFF, needs_browser

from mindgap.report.html import library
from mindgap.report.style import DARK

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
    assert all(b <= a + 1 for a, b in zip(levels, levels[1:], strict=False)), levels
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    anchors = set(re.findall(r'href="#([^"]+)"', text))
    assert anchors <= set(ids)
    for plot in re.findall(r'<div class="plot.*?</figure>', text, re.S):
        assert re.match(r'<div class="plot[^"]*" id="[^"]+" role="img" aria-label="[^"]+"', plot)
        assert '<details class="numbers">' in plot
    assert all(alt for alt in re.findall(r'<img [^>]*alt="([^"]*)"', text))


CHECK = r"""<script>
const told = [], pause = (ms) => new Promise((done) => setTimeout(done, ms));
const rgb = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
const ground = (element, view) => {
  for (let part = element; part; part = part.parentElement) {
    const [r, g, b, a = 1] = rgb(view.getComputedStyle(part).backgroundColor);
    if (a > 0.5) return [r, g, b];
  }
  return [255, 255, 255];
};
const faint = (document, view) => {
  const found = new Set();
  const walk = document.createTreeWalker(document.body, 4);
  while (walk.nextNode()) {
    const text = walk.currentNode, element = text.parentElement;
    if (!text.data.trim() || !element.getClientRects().length || element.closest("script, .unseen, .skip, dialog")) continue;
    const style = view.getComputedStyle(element);
    const [a, b] = [light(rgb(element.namespaceURI.includes("svg") ? style.fill : style.color)), light(ground(element, view))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5 && !element.closest(".heatmaplayer")) found.add(`${element.className.baseVal ?? element.className}: ${text.data.trim().slice(0, 30)}`);
  }
  return [...found].slice(0, 5);
};
addEventListener("load", async () => {
  await pause(3000);
  for (const frame of document.querySelectorAll("iframe")) {
    const view = frame.contentWindow, page = view.document, seen = { kind: frame.name };
    seen.wide = page.documentElement.scrollWidth - frame.clientWidth;
    seen.cut = [...page.querySelectorAll(".scroll")].filter((box) => box.offsetWidth && !box.closest(".numbers") && box.scrollWidth > box.clientWidth + 1).map((box) => box.getAttribute("aria-label"));
    seen.faint = faint(page, view);
    seen.drawn = page.querySelectorAll(".plot.js-plotly-plot, .plot > svg").length;
    seen.plots = page.querySelectorAll(".plot").length;
    const button = page.querySelector("button.theme");
    if (frame.width > 700) {
      button.click();
      await pause(700);
      seen.dark = view.getComputedStyle(page.body).backgroundColor;
      seen.faint_dark = faint(page, view);
      const ink = page.querySelector(".plot .xtick text");
      seen.ink = ink && view.getComputedStyle(ink).fill;
      button.click();
      await pause(300);
      seen.light = view.getComputedStyle(page.body).backgroundColor;
    }
    if (frame.name === "sorted") {
      const column = page.querySelectorAll("th .sort")[0], order = () => [...page.querySelectorAll("tbody td")].map((cell) => cell.textContent).join("|");
      const before = order();
      column.focus(); column.click(); seen.up = order(); seen.way = column.closest("th").getAttribute("aria-sort");
      column.click(); seen.down = order(); column.click(); seen.back = order() === before;
    }
    const cell = page.querySelector("[data-cell]");
    if (cell && frame.width > 700) {
      const plot = cell.closest(".chart").querySelector(".plot");
      plot.dispatchEvent(new view.CustomEvent("cell", { bubbles: true, detail: cell.dataset.cell }));
      seen.behind = page.querySelectorAll("dialog[open] img").length;
      page.querySelector("dialog .close").click();
      const sample = page.querySelector(".gallery button.zoom");
      sample.focus(); sample.click();
      seen.enlarged = page.querySelectorAll("dialog[open] .enlarged img").length;
      page.querySelector("dialog").close();
      await pause(100);
      seen.focus = page.activeElement === sample;
    }
    told.push(seen);
  }
  const note = document.createElement("pre");
  note.id = "told";
  note.textContent = JSON.stringify(told);
  document.body.append(note);
});
</script>"""
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
UP = "−∞|−4 to 5|< 1 ms|1e-05|12 ms|3.2 s|5 %|2 min 5 s|1,297|∞|—"


@pytest.fixture(scope="module")
def seen(pages, tmp_path_factory):
    """What Chromium says of all pages, at three widths, in one launch; and its console."""
    folder = tmp_path_factory.mktemp("browser")
    frame = '<iframe srcdoc="{}" name="{}" width="{}" height="900"></iframe>'
    texts = {kind: path.read_text(encoding="utf-8") for kind, path in pages.items()}
    rows = "".join(f"<tr><td>{cell}</td></tr>" for cell in CELLS)
    table = f'<table><thead><tr><th scope="col">a</th></tr></thead><tbody>{rows}</tbody></table>'
    main = re.compile(r'(<main id="content">).*?(</main>)', re.S)
    shown = [(texts[kind], kind, 1000) for kind in SHOWN]
    shown.append((texts["reproduce"], "reproduce narrow", 400))
    shown.append((main.sub(rf"\1{table}\2", texts["reproduce"]), "sorted", 600))
    frames = "".join(frame.format(html.escape(text), *more) for text, *more in shown)
    whole = folder / "frames.html"
    whole.write_text(f"<!doctype html><body>{frames}{CHECK}</body>", encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--no-first-run", "--virtual-time-budget=9000"]
    words += [*(f"--disable-{name}" for name in OFF), f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [str(BROWSER), *words, "--enable-logging=stderr", "--dump-dom", whole.as_uri()],
        capture_output=True,
        text=True,
        timeout=240,  # the machine may be busy
        check=True,
        env={**os.environ, "LANG": "C"},
    )
    found = done.stdout.partition('<pre id="told">')[2].rpartition("</pre>")[0]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return {row["kind"]: row for row in json.loads(html.unescape(found))}, console


# A browser without a graphics card complains of itself when it draws a surface.
SLOW = ("GPU stall due to ReadPixels", "Canvas2D: Multiple readback", "software WebGL")


@needs_browser
def test_pages_are_readable_in_both_themes_and_the_console_is_silent(seen):
    rows, console = seen
    assert not [line for line in console if not any(words in line for words in SLOW)]
    for kind, row in rows.items():
        assert row["wide"] <= 0, kind
        assert row["faint"] == [], kind
        assert row["drawn"] == row["plots"], kind
    for kind in SHOWN:
        assert rows[kind]["cut"] == [], kind
        assert rows[kind]["faint_dark"] == [], kind
        assert (rows[kind]["dark"], rows[kind]["light"]) == (
            "rgb(15, 19, 25)",
            "rgb(245, 246, 248)",
        )
    assert {rows[kind]["ink"] for kind in SHOWN} - {None} == {_rgb(DARK["#1f2733"])}


def _rgb(color):
    return f"rgb({', '.join(str(int(color[k : k + 2], 16)) for k in (1, 3, 5))})"


@needs_browser
def test_tables_are_sorted_by_what_cells_mean(seen):
    row = seen[0]["sorted"]
    assert row["up"] == UP
    assert row["way"] == "ascending"
    assert row["down"] == "|".join([*reversed(UP.split("|")[:-1]), "—"])
    assert row["back"]


@needs_browser
def test_confusions_and_samples_open_in_a_dialog(seen):
    row = seen[0]["examine"]
    assert row["behind"] >= 1
    assert row["enlarged"] == 1
    assert row["focus"], "it returns to the sample"
