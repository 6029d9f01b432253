"""mindgap.monitor: planted faults are named, healthy networks are not accused, and all forms of the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from mindgap import Monitor, fit, monitor
from mindgap.core import InputError
from mindgap.nets import Elman
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.studies.stability.verdicts import PLANTS, MonitorVerdicts
from mindgap.training.monitor.judge import judge, spikes


@pytest.mark.parametrize("what", PLANTS)
def test_planted_faults_are_named(what: str) -> None:
    """Two seeds here; the study counts ten."""
    study = MonitorVerdicts(seeds=2)
    trials = [trial for trial in study.trials() if trial["what"] == what]
    records = [study.run(trial) for trial in trials]
    assert all(record["right"] for record in records), records


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_healthy_networks_are_not_accused(kind: str) -> None:
    watching = Monitor(every=20)
    plain = healthy_recipe(kind, seed=2)
    fit(plain.replace(epochs=4), seed=2, monitor=watching, evaluate_every=0)
    found = monitor(watching)
    assert found.healthy, str(found)
    assert found.layer == ""
    assert not found.verdict.advice


def trained(log: Path | None = None, weight: float = 1.0, steps: int = 12) -> Monitor:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
    nn.init.eye_(model[2].weight).data.mul_(weight)
    with Monitor(model, every=4, log=log) as watching:
        for _ in range(steps):
            model.zero_grad()
            loss = model(torch.ones(8, 4)).square().mean()
            loss.backward()
            watching.step(loss)
    return watching


def test_a_gradient_that_vanishes_over_time_is_told_with_its_rate() -> None:
    torch.manual_seed(0)
    model = Elman(2, 8, 3)
    nn.init.orthogonal_(model.recurrent.weight).data.mul_(0.5)
    nn.init.zeros_(model.recurrent.bias)
    nn.init.zeros_(model.input.bias)
    with Monitor(model) as watching:
        loss = model(0.01 * torch.randn(4, 40, 2)).square().mean()
        loss.backward()
        watching.step(loss)
    found = monitor(watching)
    assert (found.kind, found.layer) == ("vanishing", "recurrent")
    (row,) = [row for row in found.layers if row.name == "recurrent"]
    assert row.rate == pytest.approx(0.5, rel=0.01)
    assert row.steps == 40
    assert "orthogonal" in found.verdict.advice[0].text


def test_text_page_and_json(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    trained(log, weight=1e-7)
    found = monitor(log)
    assert "Vanishing gradient: The gradient vanishes at layer '2'." in found.text()
    assert str(found) == found.text()
    page = found.save(tmp_path / "page.html").read_text()
    assert "The gradient vanishes at layer" in page
    assert page.index("Vanishing gradient") < page.index("<h2>Course</h2>")
    told = json.loads(found.save(tmp_path / "page.json").read_text())
    assert (told["verdict"], told["layer"], len(told["layers"])) == ("vanishing", "2", 5)
    with pytest.raises(InputError, match=r"\.html or \.json"):
        found.save(tmp_path / "page.pdf")


def test_a_log_that_has_only_begun(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    Monitor(nn.Linear(2, 1), log=log).close()
    found = monitor(log)
    assert (found.kind, found.readings, found.layers) == ("nothing", 0, ())
    assert "no reading yet" in found.text()
    found.save(tmp_path / "page.html")


@pytest.mark.parametrize(
    "line",
    [
        '{"step": "a", "layers": {"x": 3}}',
        '{"step": 5, "units": {}, "layers": {"a": {"matrix": true, "backward": "x"}}}',
        '{"step": 5, "first": 1, "losses": [1, "b"], "gradient": [1, 2]}',
        '{"step": 5, "losses": [1], "gradient": [1]}',
        '{"trouble": {"x": 1}}',
    ],
)
def test_a_log_that_was_changed_is_refused(line: str, tmp_path: Path) -> None:
    head = '{"format": "mindgap monitor", "version": 1, "every": 1, "step": 0}'
    (tmp_path / "log.jsonl").write_text(f"{head}\n{line}\n")
    with pytest.raises(InputError, match="must hold lines as a monitor writes them"):
        monitor(tmp_path / "log.jsonl")


def test_only_the_last_run_of_a_log_counts(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    trained(log, weight=1e-7)
    trained(log, steps=8)
    found = monitor(log)
    assert (found.kind, found.steps) == ("healthy", 8)


def test_spikes_and_where_to_clip() -> None:
    losses = [1.0] * 10 + [0.5] * 60 + [4.0] + [0.5] * 9
    norms = [float(k) for k in range(1, 81)]
    line = {"step": 80, "first": 1, "losses": losses, "gradient": norms}
    found = judge([{"format": "mindgap monitor", "version": 1, "step": 0}, line])
    assert [(spike.step, spike.loss, spike.before) for spike in found.spikes] == [(71, 4.0, 0.5)]
    assert found.clip == 73.0  # nine tenths of 1 … 80
    assert found.kind == "spikes"
    assert not spikes([{**line, "losses": [1.0] * 10 + [0.5] * 60 + [1.4] + [0.5] * 9}])


def test_compiled_networks_are_judged_by_the_gradients_of_weights() -> None:
    watching = trained(weight=1e-7)
    for line in watching.lines:
        for row in line.get("layers", {}).values():
            row["backward"] = None
    assert monitor(watching).kind == "vanishing"
