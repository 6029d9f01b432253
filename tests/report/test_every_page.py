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
from browser import BROWSER, OFF, needs_browser, seen
from charts import PIXEL

from mindgap.report.html import library

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 6_000_000  # bytes of a page
SHOWN = ("examine", "study", "monitor", "reproduce")  # every page in Chromium costs seconds
LEAST = 4.5  # contrast of text that WCAG asks for
# A browser without a graphics card complains of itself when it draws a surface.
SLOW = ("GPU stall due to ReadPixels", "Canvas2D: Multiple readback", "software WebGL")


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


# Of every text its color and what lies behind it, in both themes. Plotly itself chooses the color of
# numbers in the cells of a map, for the color of each cell.
READ = r"""<script>
const numbers = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const mixed = ([r, g, b, a = 1], below) => [r, g, b].map((c, k) => a * c + (1 - a) * below[k]);
const ground = (part) => {
  if (!part) return [255, 255, 255];
  const own = numbers(getComputedStyle(part).backgroundColor);
  return own[3] === undefined ? own : mixed(own, ground(part.parentElement));
};
const faint = () => {
  const found = {}, walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walk.nextNode()) {
    const text = walk.currentNode, part = text.parentElement;
    if (!text.data.trim() || part.closest("script, style, .heatmaplayer")) continue;
    const { fill, color } = getComputedStyle(part), below = ground(part);
    const above = mixed(numbers(part.namespaceURI.includes("svg") ? fill : color), below);
    const [a, b] = [light(above), light(below)].sort((x, y) => y - x);
    texts += 1;
    if ((a + 0.05) / (b + 0.05) >= LEAST) continue;
    const name = `${part.tagName} ${part.className.baseVal ?? part.className}`;
    found[name] = [text.data.trim().slice(0, 30), above, below];
  }
  return { texts, found };
};
addEventListener("load", () => setTimeout(async () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
  const told = { wide: document.documentElement.scrollWidth - innerWidth };
  theme.choose("light");  // all frames share what one of them stored
  await new Promise((done) => setTimeout(done, 500));
  told.one = faint();
  document.querySelector("button.theme").click();
  await new Promise((done) => setTimeout(done, 500));
  told.two = faint();
  told.ground = getComputedStyle(document.body).backgroundColor;
  const note = document.createElement("pre");
  note.id = "told"; note.textContent = JSON.stringify(told); document.body.append(note);
}, 1500));
</script></body>"""


@needs_browser
def test_every_text_can_be_read_in_both_themes(pages, tmp_path):
    script = READ.replace("LEAST", str(LEAST))
    for kind in SHOWN:
        text = pages[kind].read_text(encoding="utf-8").replace("</body>", script)
        (tmp_path / f"{kind}.html").write_text(text, encoding="utf-8")
    doms, console = seen([tmp_path / f"{kind}.html" for kind in SHOWN], tmp_path)
    assert not [line for line in console if not any(words in line for words in SLOW)]
    for kind, dom in zip(SHOWN, doms, strict=True):
        found = html.unescape(dom.partition('<pre id="told">')[2].partition("</pre>")[0])
        told = json.loads(found)
        assert min(told["one"]["texts"], told["two"]["texts"]) > 30, kind
        assert told["one"]["found"] == told["two"]["found"] == {}, kind
        assert told["wide"] <= 0, kind
        assert told["ground"] == "rgb(15, 19, 25)", kind


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
