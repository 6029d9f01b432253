import dataclasses
import json
import os
import re
import shutil
import subprocess
import urllib.parse

import pytest
from charts import EVERY

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


@pytest.fixture(scope="module")
def seen(report, tmp_path_factory):
    """The page after its scripts ran, what the console said and which addresses were asked for."""
    folder = tmp_path_factory.mktemp("browser")
    last = report.measures[-1]
    every = dataclasses.replace(last.result, charts=tuple(EVERY.values()))
    cards = (*report.measures[:-1], dataclasses.replace(last, result=every), *report.bounds)
    shown = dataclasses.replace(report, cards=cards)
    page, log = shown.save(folder / "report.html"), folder / "net.json"
    places = [
        f"--user-data-dir={folder / 'profile'}",
        f"--log-net-log={log}",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]
    command = [
        BROWSER,
        *QUIET,
        *places,
        "--enable-logging=stderr",
        "--v=0",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "LANG": "C"},
    )
    return done.stdout, done.stderr, log.read_text(encoding="utf-8")


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
