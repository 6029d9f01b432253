"""The monitor: its numbers against brute force, in every kind of loop, and no trace in any."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import mindgap.training.monitor.monitor as module
from mindgap import Monitor, Recipe, fit
from mindgap.core import InputError
from mindgap.nets import MLP, Elman
from mindgap.remedies import SAM, GradientClipping
from mindgap.training.monitor.judge import judge, last_run
from mindgap.training.monitor.log import Log, lines_of


def data(samples: int = 48) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    return torch.randn(samples, 6, generator=random), torch.arange(samples) % 3


def trained(
    monitor: Monitor | None,
    *,
    steps: int = 12,
    collect: int = 1,
    scaler: bool = False,
    fused: bool = False,
    double: bool = False,
    make: object = lambda: MLP((6, 16, 8, 3), dropout=0.2),
) -> nn.Module:
    torch.manual_seed(0)
    model = make().double() if double else make()
    optimizer = torch.optim.Adam(model.parameters(), 0.01, fused=fused)
    scaling = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=scaler)
    if monitor is not None:
        monitor.attach(model)
    (x, y), dtype = data(), next(model.parameters()).dtype
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(collect):
            with torch.autocast("cpu", torch.bfloat16, enabled=scaler):
                places = slice((step + part) % 3 * 16, None)
                loss = nn.functional.cross_entropy(model(x[places].to(dtype)), y[places]) / collect
            scaling.scale(loss).backward()
        scaling.step(optimizer)
        scaling.update()
        if monitor is not None:
            monitor.step(loss)
    if monitor is not None:
        monitor.close()
    return model


def same(left: nn.Module, right: nn.Module) -> bool:
    pairs = zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"collect": 3},
        {"scaler": True},
        {"scaler": True, "fused": True},
        {"make": lambda: Elman(2, 5, 3, norm="batch")},
        {"make": lambda: nn.Sequential(nn.Unflatten(1, (3, 2)), Torch(nn.LSTM))},
        {"make": lambda: nn.Sequential(nn.Unflatten(1, (3, 2)), Torch(nn.RNN))},
        {"make": lambda: torch.compile(MLP((6, 16, 8, 3), dropout=0.2), backend="eager")},
    ],
)
def test_weights_are_bit_identical(settings: dict[str, object]) -> None:
    plain = trained(None, **settings)
    watched = trained(Monitor(every=2), **settings)
    assert same(plain, watched)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in watched.modules())


def test_a_compiled_network_has_its_layers_and_units_in_the_log() -> None:
    plain, compiled = Monitor(every=4), Monitor(every=4)
    trained(plain, make=lambda: MLP((6, 16, 3)))
    trained(compiled, make=lambda: torch.compile(MLP((6, 16, 3)), backend="eager"))
    one, other = (monitor.lines[-1] for monitor in (plain, compiled))
    assert list(other["layers"]) == list(one["layers"])
    assert other["units"] == one["units"]
    for name, row in one["layers"].items():
        for key in ("gradient", "weight", "update", "activation"):
            assert other["layers"][name][key] == pytest.approx(row[key], rel=1e-4)


class Torch(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.rnn, self.head = kind(2, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def test_norms_against_brute_force() -> None:
    torch.manual_seed(0)
    model = MLP((6, 4, 3)).double()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = data()
    with Monitor(model, every=3) as monitor:
        for _ in range(3):
            before = [p.detach().clone() for p in model.parameters()]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.double()), y)
            loss.backward()
            optimizer.step()
            monitor.step(loss)
    line = monitor.lines[-1]
    weights = list(model.parameters())
    assert line["step"] == 3
    for name, places in (("1", (0, 1)), ("3", (2, 3))):
        row = line["layers"][name]
        wanted = {
            "gradient": [weights[k].grad for k in places],
            "weight": [weights[k].detach() for k in places],
            "update": [weights[k].detach() - before[k] for k in places],
        }
        for key, parts in wanted.items():
            norm = math.sqrt(sum(float(part.square().sum()) for part in parts))
            assert row[key] == pytest.approx(norm, rel=1e-4)
    total = math.sqrt(sum(float(p.grad.square().sum()) for p in weights))
    assert line["gradient"][-1] == pytest.approx(total, rel=1e-4)
    assert line["losses"][-1] == pytest.approx(float(loss.detach()), rel=1e-4)
    assert len(line["losses"]) == 2  # the first step had a line of its own


def test_scaled_gradients_are_noted_unscaled() -> None:
    plain, scaled = Monitor(every=2), Monitor(every=2)
    trained(plain, make=lambda: MLP((6, 16, 3)))
    trained(scaled, make=lambda: MLP((6, 16, 3)), scaler=True)
    one, other = (row.lines[1]["gradient"][0] for row in (plain, scaled))
    assert other == pytest.approx(one, rel=0.02)  # bfloat16


def test_steps_that_a_scaler_leaves_out_are_told_and_are_no_trouble() -> None:
    torch.manual_seed(0)
    model = MLP((6, 4, 3))
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
    x, y = data()
    with Monitor(model, every=100) as monitor:
        for step in range(4):
            optimizer.zero_grad()
            factor = math.inf if step == 2 else 1.0
            loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            monitor.step(loss)
    found = judge(monitor.lines)
    assert (found.kind, found.skipped) == ("healthy", 1)


@pytest.mark.parametrize("every", [1, 100])
def test_the_first_number_that_is_none_is_named(every: int) -> None:
    torch.manual_seed(0)
    model = MLP((6, 4, 4, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = data()
    with Monitor(model, every=every) as monitor:
        for step in range(5):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            if step == 2:
                model[3].weight.grad[0, 0] = math.nan
            optimizer.step()
            monitor.step(loss)
    found = judge(monitor.lines)
    assert found.kind == "not finite"
    assert found.trouble["step"] == 3
    assert found.trouble["what"] == "the gradient of '3.weight'"


def test_an_overflow_in_the_pass_is_named_by_its_layer() -> None:
    model = MLP((6, 4, 4, 3))
    nn.init.constant_(model[3].weight, 3e38)
    x, y = data()
    with Monitor(model) as monitor:
        loss = nn.functional.cross_entropy(model(100 + x.abs()), y)
        loss.backward()
        monitor.step(loss)
    assert judge(monitor.lines).trouble["what"] == "the output of layer '3'"


def test_large_gradients_are_no_trouble() -> None:
    model = nn.Linear(2, 1)
    with Monitor(model, every=2) as monitor:
        for _ in range(3):
            (1e25 * model(torch.ones(1, 2))).sum().backward()
            monitor.step()
            model.zero_grad()
    assert judge(monitor.lines).kind != "not finite"
    assert monitor.lines[-1]["gradient"][-1] == pytest.approx(1e25 * math.sqrt(3), rel=1e-4)


def recipe(**changes: object) -> Recipe:
    fields = {"model": lambda: MLP((6, 8, 3)), "train": data(), "epochs": 4, "batch_size": 16}
    return Recipe(**{**fields, **changes})


@pytest.mark.parametrize("remedies", [[], [SAM()], [GradientClipping(max_norm=0.01)]])
def test_fit_with_and_without(remedies: list[object]) -> None:
    monitor = Monitor(every=5)
    plain, watched = fit(recipe(), remedies), fit(recipe(), remedies, monitor=monitor)
    assert same(plain.model, watched.model)
    assert plain.history == watched.history
    assert [line["step"] for line in monitor.lines if "layers" in line] == [1, 5, 10]
    assert sum(len(line.get("losses", ())) for line in monitor.lines) == 12
    if remedies and isinstance(remedies[0], GradientClipping):
        norms = [norm for line in monitor.lines for norm in line.get("gradient", ())]
        assert max(norms) < 0.0101


def test_a_resumed_run_appends_to_its_log(tmp_path: Path) -> None:
    log, checkpoint = tmp_path / "run.jsonl", tmp_path / "run.pt"
    fit(recipe(epochs=2), checkpoint=checkpoint, monitor=Monitor(log=log, every=5))
    fit(recipe(epochs=4), checkpoint=checkpoint, monitor=Monitor(log=log, every=5))
    lines = last_run(lines_of(log))
    assert [line["step"] for line in lines if "format" in line] == [0, 6]
    steps = [line["first"] + k for line in lines for k in range(len(line.get("losses", ())))]
    assert steps == list(range(1, 13))


def test_a_divergence_ends_in_the_log() -> None:
    monitor = Monitor()
    fitted = fit(recipe(optimizer="sgd", learning_rate=1e30), monitor=monitor)
    assert fitted.diverged
    assert judge(monitor.lines).kind == "not finite"


LOOP = """
import sys, torch, mindgap
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
monitor = mindgap.Monitor(model, log=sys.argv[1], every=1)
for step in range(10**9):
    model.zero_grad()
    loss = model(torch.ones(4, 2)).square().mean()
    loss.backward()
    monitor.step(loss)
    if step == 20:
        print("ready", flush=True)
"""


def test_the_log_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(path)], stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout.readline().strip() == b"ready"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with path.open("a") as file:
        file.write('{"step": 99999, "layers": {"0"')  # what a kill in the middle of a line leaves
    lines = lines_of(path)
    assert len(lines) > 20
    assert lines[-1]["step"] == len(lines) - 1
    log = Log(path)
    log.write({"step": 1})
    log.close()
    assert lines_of(path)[-1] == {"step": 1}
    assert len(lines_of(path)) == len(lines) + 1


def test_bad_use_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be attached"):
        Monitor().step()
    with pytest.raises(InputError, match=r"before optimizer\.zero_grad"):
        Monitor(nn.Linear(2, 2)).step()
    with pytest.raises(InputError, match="requires_grad"):
        Monitor(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(InputError, match="must be a Monitor"):
        fit(recipe(), monitor="log.jsonl")
    with pytest.raises(InputError, match="every"):
        Monitor(every=0)
    with pytest.raises(InputError, match="log of a monitor"):
        lines_of(tmp_path / "none.jsonl")
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"a": 1}) + "\nnot json\n[1]\n")
    with pytest.raises(InputError, match="does not begin like one"):
        lines_of(other)
    with pytest.raises(InputError, match="must be a file that can be written"):
        Monitor(nn.Linear(2, 2), log=tmp_path)


class Half(nn.Module):
    """A net of which one layer gets no gradient in every second step."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.head(self.one(x) + self.two(x) if self.calls % 2 else self.one(x))


def noted(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{key: line[key] for key in ("gradient", "layers") if key in line} for line in lines]


def test_norms_that_stay_on_another_device_give_the_same_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there = Monitor(every=4), Monitor(every=4)
    trained(here, make=Half)
    original = module._norms
    # As on a GPU: a tensor of norms, which nobody reads before the next reading.
    monkeypatch.setattr(module, "_norms", lambda tensors: torch.tensor(original(tensors)))
    trained(there, make=Half)
    assert noted(there.lines) == noted(here.lines)
    gradient = next(line for line in here.lines if line.get("step") == 4)["layers"]["two"]
    assert gradient["gradient"] == 0


def test_a_line_with_numbers_that_json_lacks_is_read_back(tmp_path: Path) -> None:
    log = Log(tmp_path / "run.jsonl")
    log.write({"format": "mindgap monitor", "version": 1, "step": 0})
    layer = {"gradient": -math.inf, "weight": 1.0, "update": 0.5, "matrix": True}
    line = {"first": 1, "losses": [1.5, math.inf, None], "layers": {"0": layer}}
    log.write({"step": 3, "units": {}, **line})
    log.close()
    assert lines_of(log.path)[1] == {"step": 3, "units": {}, **line}
