"""The study of the decomposition: terms that add up, rows and figures."""

from __future__ import annotations

import functools

import pytest

from mindgap.core import Table
from mindgap.studies.decomposition.error_decomposition import ErrorDecomposition


@functools.cache
def made() -> tuple[list[object], Table]:
    study = ErrorDecomposition().tiny().replace(widths=(1, 2))
    records = [(trial, study.run(trial)) for trial in study.trials()]
    return records, study.summarize(records)


def test_all_terms_add_up() -> None:
    for _, record in made()[0]:
        for row in record["rows"]:
            assert sum(term[0] for term in row["whole"]) == pytest.approx(row["risk"][0], abs=1e-12)
            assert sum(term[0] for term in row["excess"]) == pytest.approx(
                row["excess_risk"], abs=1e-12
            )
            assert all(low <= value <= high for value, low, high in [*row["whole"], *row["excess"]])


def test_the_table_has_a_row_per_setting_and_figures_along_all_axes() -> None:
    _, table = made()
    assert [row[:3] for row in table.rows] == [
        ("samples", 10, 2),
        ("samples", 20, 2),
        ("width", 20, 1),
        ("width", 20, 2),
    ]
    labels = {chart.x_label for chart in table.charts}
    assert {"training samples", "hidden units", "epoch"} <= labels
    assert any(label.startswith("tolerance") for label in labels)


def test_the_verdicts_compare_the_ends() -> None:
    _, table = made()
    told = [note for note in table.notes if note.startswith("Approximation error falls")]
    assert len(told) == 1
    assert "not shown" in told[0] or "intervals apart" in told[0]
