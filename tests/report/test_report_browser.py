import dataclasses
import html
import itertools
import json
import os
import re
import shutil
import subprocess
import urllib.parse

import pytest
from charts import EVERY

from mindgap.core import Interval
from mindgap.report.pages.compare import Comparison, Pair, judge

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
OFF = ("gpu", "quic", "background-networking", "component-update", "sync", "extensions")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--virtual-time-budget=8000",
    *(f"--disable-{x}" for x in OFF),
]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        BROWSER is None, reason="needs chromium, chromium-browser or google-chrome on the PATH"
    ),
]


def run(page, folder, *options):
    """The page's DOM after its scripts ran, and what the console said."""
    command = [
        BROWSER,
        *QUIET,
        f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr",
        "--v=0",
        *options,
        "--dump-dom",
        page.as_uri(),
    ]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "LANG": "C"},
    )


@pytest.fixture(scope="module")
def seen(found, tmp_path_factory):
    """The page after its scripts ran, what the console said and which addresses were asked for."""
    folder = tmp_path_factory.mktemp("browser")
    last = found.measures[-1]
    every = dataclasses.replace(last.result, charts=tuple(EVERY.values()))
    cards = (*found.measures[:-1], dataclasses.replace(last, result=every), *found.bounds)
    shown = dataclasses.replace(found, cards=cards)
    page, log = shown.save(folder / "report.html"), folder / "net.json"
    done = run(page, folder, f"--log-net-log={log}", "--host-resolver-rules=MAP * ~NOTFOUND")
    return done.stdout, done.stderr, log.read_text(encoding="utf-8")


WIDTHS = (1000, 400)
MEASURE = """
<script>
addEventListener("load", () => setTimeout(() => {
  for (const frame of document.querySelectorAll("iframe")) {
    const root = frame.contentDocument.documentElement, code = root.querySelector(".paste pre");
    const told = document.createElement("p");
    const box = code && code.parentElement.getBoundingClientRect();
    told.textContent = `page ${frame.width} ${root.scrollWidth} `
      + (box ? `code ${code.scrollWidth} ${Math.ceil(box.right)}` : "");
    document.body.append(told);
  }
}, 3000));
</script>
"""


@pytest.mark.parametrize("which", ["report", "comparison"])
def test_nothing_overflows_on_screens_of_any_width(which, found, tmp_path):
    """Pages in frames of several widths; long lines of code scroll inside their box."""
    shown = found if which == "report" else compared(found)
    page = shown.save(tmp_path / "page.html").read_text(encoding="utf-8")
    frames = "".join(
        f'<iframe srcdoc="{html.escape(page)}" width="{width}" height="900"></iframe>'
        for width in WIDTHS
    )
    (tmp_path / "frames.html").write_text(f"<!doctype html>{frames}{MEASURE}", encoding="utf-8")
    dom = run(tmp_path / "frames.html", tmp_path, "--window-size=1400,1000").stdout
    measured = re.findall(r"<p>page (\d+) (\d+) (?:code (\d+) (\d+))?</p>", dom)
    assert [int(width) for width, *_ in measured] == list(WIDTHS)
    for width, whole, code, right in measured:
        assert int(whole) <= int(width)
        if which == "report":
            assert int(code) > int(width), "a line that is longer than the screen"
            assert int(right) < int(width)


def compared(found):
    """Four reports side by side, one with a long name."""
    names = "one", "two", "a model with a name that is rather long", "x" * 60
    reports = tuple(dataclasses.replace(found, title=name) for name in names)
    spread = Interval(low=-0.02, high=0.01)
    pairs = tuple(
        Pair(
            first=first,
            second=second,
            difference=-0.01,
            interval=spread,
            p_value=1e-12,
            paired=True,
            samples=500,
            differs=True,
        )
        for first, second in itertools.combinations(names, 2)
    )
    return Comparison(
        title=" · ".join(names),
        created=found.created,
        verdict=judge(reports, pairs),
        reports=reports,
        pairs=pairs,
    )


def test_code_can_be_copied(seen):
    dom, _, _ = seen
    assert dom.count('class="copy"') == dom.count('class="paste"') == 1


def test_the_page_can_be_printed(found, tmp_path):
    page, paper = found.save(tmp_path / "page.html"), tmp_path / "page.pdf"
    words = [BROWSER, *QUIET, f"--user-data-dir={tmp_path / 'profile'}"]
    words += [f"--print-to-pdf={paper}", page.as_uri()]
    subprocess.run(words, capture_output=True, timeout=60, check=True)
    assert paper.read_bytes().startswith(b"%PDF")


def test_every_kind_of_chart_is_drawn(seen):
    dom, _, _ = seen
    figures = dom.count('<script type="application/json" id="plot-')
    still = 'data-still=""><svg' in dom  # a browser without WebGL shows the image of a surface
    assert dom.count('class="plot js-plotly-plot"') == figures - still >= 13
    assert dom.count('class="main-svg"') >= 13


def test_figures_fill_their_frames(seen):
    dom, _, _ = seen
    widths = [float(width) for width in re.findall(r'class="main-svg"[^>]*width="([\d.]+)"', dom)]
    assert widths
    assert min(widths) > 200


def test_the_console_is_quiet(seen):
    _, console, _ = seen
    said = [line for line in console.splitlines() if "CONSOLE" in line]
    # A browser without a graphics card complains of itself when it draws a surface.
    slow = ("GPU stall due to ReadPixels", "Canvas2D: Multiple readback", "software WebGL")
    assert not [line for line in said if not any(words in line for words in slow)]


def test_no_address_is_asked_for_by_the_page(seen):
    """What is left in the log are the browser's own calls to its maker, which lead nowhere here."""
    _, _, log = seen
    asked = [
        str(event["params"]["url"])
        for event in json.loads(_closed(log))["events"]
        if "url" in event.get("params", {})
    ]
    hosts = {urllib.parse.urlsplit(url).hostname for url in asked if url.startswith("http")}
    assert not [
        host for host in hosts if not host.endswith(("google.com", "googleapis.com", "gvt1.com"))
    ]


def _closed(log):
    """A browser that is stopped early leaves the list open."""
    try:
        json.loads(log)
    except ValueError:
        return log.rstrip().rstrip(",") + "]}"
    return log
