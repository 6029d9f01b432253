"""Figure 2: what is counted, and that images reach the page."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from mindgap.core.errors import DataUnavailableError
from mindgap.core.study import Trial
from mindgap.data import mnist
from mindgap.report.html import library
from mindgap.report.pages.study import study_html
from mindgap.studies.vbsw.figure2 import LOADERS, VbswFigure2, _found


def test_a_wrong_label_inside_a_class_is_found_by_agreement_and_not_by_variance() -> None:
    random = torch.Generator().manual_seed(0)
    mixed = torch.randn(100, 2, generator=random) + 50  # where classes meet
    calm = torch.randn(200, 2, generator=random) + 200 * (torch.arange(200) % 2)[:, None]
    labels = torch.cat([torch.randint(0, 2, (100,), generator=random), torch.arange(200) % 2])
    wrong = torch.zeros(300, dtype=torch.bool)
    wrong[[150, 201, 260]] = True
    found = _found(torch.cat([mixed, calm]), torch.where(wrong, 1 - labels, labels), wrong)
    assert found == {"heaviest": 0.0, "least agreement": 1.0, "all": pytest.approx(0.01)}


def record(heavy: float, seed: int) -> dict[str, Any]:
    image = {"address": "data:image/png;base64,AAAA", "caption": "3 → <b>"}
    parts = {
        name: {"heaviest": heavy, "least agreement": 0.5, "all": 0.02} for name in ("own", "other")
    }
    hard = {"heaviest": heavy, "all": 0.1}
    shown = {"pictures": [image] * 2} if seed == 0 else {}
    return {"hard": hard, **parts, "train_error": 0.25, **shown}


def results() -> dict[str, Any]:
    study = VbswFigure2(splits=3)
    values = (0.4, 0.5, 0.6)
    table = study.summarize(
        [(trial, record(values[trial.seed], trial.seed)) for trial in study.trials()]
    )
    whole = {
        "schema": 1,
        "study": study.name,
        "fields": {},
        "expected": {},
        "versions": {},
        "date": "2026-01-01",
    }
    return {**whole, "table": table.to_dict(), "trials": [], "cost": {}}


def test_the_rows_are_percentages_with_paired_differences() -> None:
    rows = results()["table"]["rows"]
    assert len(rows) == 2 * (1 + 2 + 2)
    name, _, way, everything, mean, difference, low, high, p_value = rows[0]
    assert (name, way) == ("mnist", "largest variance")
    assert (everything, mean, difference) == pytest.approx((10, 50, 40))
    assert low < 40 < high
    assert 0.05 < p_value < 0.06  # 0.042 without the correction for images that splits share


def test_the_images_reach_the_page_and_captions_are_harmless() -> None:
    text = study_html(json.loads(json.dumps(results()))).replace(library(), "")
    assert text.count('<img src="data:image/png;base64,AAAA"') == 4
    assert "3 → &lt;b&gt;" in text
    assert "3 → <b>" not in text
    assert 'class="plot"' not in text


@pytest.mark.shared
@pytest.mark.usefixtures("shared_module")
@pytest.mark.parametrize("name", LOADERS)
def test_a_small_run_on_real_images(name: str) -> None:
    study = VbswFigure2().tiny()
    try:
        found = study.run(Trial(parameters={"data": name}, seed=0))
    except DataUnavailableError as error:
        pytest.skip(f"{name} is not here: {error}")
    assert found["own"]["all"] == found["other"]["all"] == pytest.approx(0.02)
    assert all(
        0 <= share <= 1 for part in ("hard", "own", "other") for share in found[part].values()
    )
    assert len(found["pictures"]) == 24
    assert all(image["address"].startswith("data:image/png") for image in found["pictures"])
    if name == "mnist":
        assert all(
            image["caption"][0] in mnist(size=10, test_size=10).classes
            for image in found["pictures"]
        )
