"""Surfaces: checked, drawn, told in words, still without scripts, and turned by keys in a real browser."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import plotly.graph_objects as go
import pytest

from mindgap.core import Mark, Surface
from mindgap.core.errors import InputError
from mindgap.report.draw import figure_of
from mindgap.report.figures.still import MOST, View, _tint, surface_still
from mindgap.report.figures.surface import FLOOR_SCALE, SCALE, levels
from mindgap.report.pages.study import study_html

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
OFF = ("gpu", "quic", "background-networking", "component-update", "sync", "extensions")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--virtual-time-budget=15000",
    *(f"--disable-{x}" for x in OFF),
]
NASTY = "low <b> </script><script>alert(1)</script>"
SVG = "{http://www.w3.org/2000/svg}"


def chart(**changes: Any) -> Surface:
    x, y = [-2.0, -1.0, 0.0, 1.0, 2.0], [-1.0, 0.0, 1.0, 3.0]
    z = [[a * a + b for a in x] for b in y]
    whole = {
        "title": "Bowl",
        "x": x,
        "y": y,
        "z": z,
        "color": [[abs(value) for value in row] for row in z],
        "floor": [[value + 10 for value in row] for row in z],
        "marks": [
            Mark(x=0.1, y=-0.9, name=NASTY, color="#009E73"),
            Mark(x=2.0, y=3.0, name="peak"),
        ],
        "x_label": "w₁",
        "y_label": "w₂",
        "z_label": "loss",
        "color_label": "Ψ",
        "floor_label": "bound",
    }
    return Surface(**{**whole, **changes})


def page(given: Surface, folder: Path, more: str = "") -> Path:
    table = {"title": "T", "columns": ["a"], "rows": [[1]], "notes": []}
    table |= {"charts": [given.to_dict()]}
    results = {"study": "unheard-of", "table": table, "trials": [], "date": "2026-01-02T03:04:05"}
    path = folder / "page.html"
    path.write_text(study_html(results).replace("</body>", f"{more}</body>"), encoding="utf-8")
    return path


def test_plotly_accepts_the_figure_with_and_without_its_extras() -> None:
    for given in (chart(), chart(color=(), floor=(), marks=()), chart(top=3.0, x_label="")):
        assert go.Figure(figure_of(given)).data[0].type == "surface"


def test_surface_floor_and_marks_are_where_they_belong() -> None:
    surface, floor, line, dot, *_ = figure_of(chart())["data"]
    assert surface["surfacecolor"] == chart().color
    low, high, base = levels(chart())
    assert (low, high) == (-1, 7)
    assert base < low
    assert {value for row in floor["z"] for value in row} == {base}
    assert floor["surfacecolor"] == chart().floor
    assert (line["x"], line["y"], line["z"]) == ([0.1, 0.1], [-0.9, -0.9], [base, high])
    assert dot["z"] == [base, -1.0]  # z at the grid's nearest place, (0, -1)
    assert line["name"] == "low &lt;b&gt; &lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;"


def test_heights_above_the_top_are_cut_off_and_colors_tell_the_rest_apart() -> None:
    whole, cut = figure_of(chart()), figure_of(chart(top=3.0))
    assert (
        cut["layout"]["scene"]["zaxis"]["range"][1]
        == 3
        < 7
        < whole["layout"]["scene"]["zaxis"]["range"][1]
    )
    assert [(trace["cmin"], trace["cmax"]) for trace in whole["data"][:2]] == [(0, 7), (9, 17)]
    assert [(trace["cmin"], trace["cmax"]) for trace in cut["data"][:2]] == [(0, 3), (9, 13)]
    assert cut["data"][0]["customdata"] == chart().floor
    faces = [
        str(surface_still(given)).count("<path")
        for given in (chart(), chart(top=3.0), chart(top=-0.5))
    ]
    assert faces[2] < faces[1] <= faces[0]


def test_holes_are_left_out_everywhere() -> None:
    holes = [
        [math.nan if a > 1 else None if b > 2 else a + b for a in chart().x] for b in chart().y
    ]
    given = chart(z=holes, color=())
    assert levels(given)[:2] == (-3, 2)
    assert "height loss from −3 to 2" in given.description
    assert "nan" not in str(surface_still(given))
    go.Figure(figure_of(given))


def test_words_for_those_who_cannot_see() -> None:
    words = chart().told()
    assert words.startswith(
        "Surface over w₁ and w₂: height loss from −1 to 7; color Ψ from 0 to 7; color of the floor"
    )
    assert "peak at 2, 3, height 7" in words


@pytest.mark.parametrize(
    "changes",
    [
        {"z": ()},
        {"z": [[1.0, 2.0]]},
        {"color": [[1.0] * 5] * 3},
        {"floor": [[1.0] * 4] * 4},
        {"x": [1.0], "z": [[1.0]] * 4},
    ],
)
def test_maps_that_do_not_fit_are_told(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must hold one row per y"):
        figure_of(chart(**changes))


def test_a_surface_without_a_number_is_told() -> None:
    with pytest.raises(InputError, match="must hold a finite number"):
        figure_of(chart(z=[[None] * 5] * 4))


def test_the_still_image_is_sound_svg() -> None:
    image = ET.fromstring(str(surface_still(chart())))
    cells = image.findall(f".//{SVG}path")
    assert len(cells) == 2 * 4 * 3 + 2 + 1  # floor and surface, two marks, the axes
    assert next(text.text for text in image.iter(f"{SVG}text")) == NASTY
    corners = [
        float(number) for cell in cells for number in re.findall(r"\d+\.\d", cell.attrib["d"])
    ]
    assert min(corners) >= 0
    assert max(corners) <= 760


def test_the_still_image_stays_small() -> None:
    many = [k / 200 for k in range(201)]
    z = [[a * b for a in many] for b in many]
    image = str(surface_still(Surface(x=many, y=many, z=z)))
    assert image.count("<path") <= MOST**2 + 1
    assert len(image) < 300_000


def test_nearer_means_drawn_later() -> None:
    view = View(chart())
    assert view.away(-2, -1, 0) < view.away(0, 0, 0) < view.away(2, 3, 0)
    assert view(0, 0, 5)[1] < view(0, 0, 0)[1]  # higher is further up, and images count downwards


def test_colors_between_two_stops() -> None:
    assert [_tint(share, SCALE) for share in (-1, 0, 0.25, 1, 2)] == [
        "#440154",
        "#440154",
        "#3b528b",
        "#fde725",
        "#fde725",
    ]
    assert _tint(0.5, ((0.0, "#000000"), (1.0, "#ff8800"))) == "#804400"
    assert _tint(1.0, FLOOR_SCALE) == "#faf6ee"


def test_the_page_carries_words_and_image_and_stays_closed(tmp_path: Path) -> None:
    text = page(chart(), tmp_path).read_text(encoding="utf-8")
    assert "Marked: low &lt;b&gt;" in text
    assert " data-still><svg" in text
    assert "<script>alert(1)" not in text
    narrow = page(chart(wide=False), tmp_path).read_text(encoding="utf-8")
    assert 'class="chart wide"' in text
    assert 'class="chart wide"' not in narrow


def seen(path: Path, folder: Path, *flags: str) -> str:
    """The page's elements after its scripts ran."""
    command = [
        str(BROWSER),
        *QUIET,
        *flags,
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        path.as_uri(),
    ]
    environment = {**os.environ, "LANG": "C"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, env=environment
    )
    return done.stdout


KEYS = """<script>
const plot = document.getElementById("plot-chart-0"), seen = [];
const say = () => seen.push(Object.values(plot.layout.scene.camera.eye).map((value) => value.toFixed(3)).join(" "));
const ready = setInterval(async () => {
  if (plot.tabIndex !== 0 || !plot.layout) return;
  clearInterval(ready);
  say();
  for (const key of ["ArrowRight", "ArrowUp", "+", "0", "Tab"]) {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
    plot.dispatchEvent(event);
    await new Promise((go) => setTimeout(go, 300));
    say();
    seen.push(event.defaultPrevented);
  }
  document.body.dataset.seen = seen.join("|");
}, 100);
</script>"""


@pytest.mark.browser
@pytest.mark.skipif(
    BROWSER is None, reason="needs chromium, chromium-browser or google-chrome on the PATH"
)
def test_keys_turn_it_in_a_browser(tmp_path: Path) -> None:
    dom = seen(page(chart(), tmp_path, KEYS), tmp_path, "--enable-unsafe-swiftshader")
    if "data-seen" not in dom and "<svg" in dom.partition('id="plot-chart-0"')[2][:600]:
        pytest.skip("this browser has no WebGL, so that the still image stays")
    found = re.search(r'data-seen="([^"]*)"', dom)
    assert found
    start, right, _, up, _, near, _, back, _, tab, prevented = found[1].split("|")
    eyes = [
        [float(value) for value in text.split()] for text in (start, right, up, near, back, tab)
    ]
    far = [math.hypot(*eye) for eye in eyes]
    angle = [math.atan2(eye[1], eye[0]) for eye in eyes]
    assert angle[1] == pytest.approx(angle[0] + 0.1, abs=0.01)
    assert far[:3] == pytest.approx([far[0]] * 3, abs=0.01)
    assert eyes[2][2] > eyes[1][2]
    assert far[3] == pytest.approx(0.9 * far[2], abs=0.01)
    assert eyes[4] == eyes[5] == eyes[0]
    assert prevented == "false"  # other keys keep their meaning
    assert 'role="application"' in dom
    assert "Arrow keys turn it" in dom
    assert "data-still><svg" not in dom


@pytest.mark.browser
@pytest.mark.skipif(
    BROWSER is None, reason="needs chromium, chromium-browser or google-chrome on the PATH"
)
def test_the_still_image_stays_without_webgl(tmp_path: Path) -> None:
    dom = seen(page(chart(), tmp_path), tmp_path, "--disable-3d-apis")
    drawn = dom.partition('id="plot-chart-0"')[2].partition("</figure>")[0]
    assert drawn.count('stroke-linejoin="round"') == 1
    assert 'role="img"' in drawn
    assert "js-plotly-plot" not in drawn


@pytest.mark.browser
@pytest.mark.skipif(
    BROWSER is None, reason="needs chromium, chromium-browser or google-chrome on the PATH"
)
def test_the_still_image_stays_without_scripts(tmp_path: Path) -> None:
    """Scripts that the page's own policy forbids do not run."""
    path = page(chart(), tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("script-src 'unsafe-inline'", "script-src 'none'"), encoding="utf-8"
    )
    drawn = seen(path, tmp_path).partition('id="plot-chart-0"')[2].partition("</figure>")[0]
    assert drawn.count('stroke-linejoin="round"') == 1
    assert "js-plotly-plot" not in drawn
