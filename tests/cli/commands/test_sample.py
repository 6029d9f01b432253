"""`mindgap sample`: functions, programs, queues, CSV in and out, and what is wrong with them."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from mindgap.cli import main
from mindgap.jobs.sample.job import sample
from mindgap.runs import SerialExecutor
from mindgap.sampling import Box, TaylorSampler

USER = """
import math

number = 3

def f(point):
    return math.tanh(9 * point[0])

def two(point):
    return [point[0], point.sum()]

def picky(point):
    if point[0] > 0.5:
        raise ValueError("too hot")
    return point[0]

def never(point):
    raise ValueError("broken")

def rows(x):
    import torch
    return torch.tanh(9 * x[:, 0])

def numpy_rows(x):
    return x.numpy()[:, 0]
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(USER)
    sim = tmp_path / "sim"
    sim.write_text(
        '#!/bin/sh\necho "$1 $2" >> log\nawk "BEGIN { printf \\"%.17g %.17g\\\\n\\", $1, $1 + $2 }"\n'
    )
    sim.chmod(0o755)
    return "mine.py"


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["sample", *words]) == code, capsys.readouterr().err
    return capsys.readouterr().out


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def read(path: str) -> list[dict[str, str]]:
    return table(Path(path).read_text())


LINE = ("--low", "-1", "--high", "1")
SQUARE = ("--low", "0,0", "--high", "1,1")


def test_a_function(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        f"{mine}:f",
        *LINE,
        "--initial",
        "8",
        "--new",
        "8",
        "-o",
        "points.csv",
        "--report",
        "points.html",
        "-q",
    )
    assert "16 points known: 8 of the initial design, 8 new" in run(capsys, *words)
    rows = read("points.csv")
    assert list(rows[0]) == ["number", "x0", "y0", "why", "acquisition", "error"]
    assert [row["why"] for row in rows] == ["initial"] * 8 + ["acquisition"] * 8
    np.testing.assert_allclose(
        [float(row["y0"]) for row in rows],
        [np.tanh(9 * float(row["x0"])) for row in rows],
        rtol=1e-12,
    )
    assert "mine.py:f" in Path("points.html").read_text()


def test_without_output_the_table_is_printed_and_json_is_whole(
    mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (f"{mine}:two", "--low", "-1,-2", "--high", "1,2", "--initial", "4", "--new", "2", "-q")
    rows = table(run(capsys, *words, "--names", "heat,cold", "--outputs", "a,b"))
    assert list(rows[0]) == ["number", "heat", "cold", "a", "b", "why", "acquisition", "error"]
    facts = json.loads(run(capsys, *words, "--json"))
    assert (facts["known"], facts["initial"], facts["new"], facts["failed"]) == (6, 4, 2, [])
    assert [row["x"] for row in facts["points"]] == [
        [float(row["heat"]), float(row["cold"])] for row in rows
    ]
    assert facts["settings"]["domain"] == {"kind": "box", "low": [-1.0, -2.0], "high": [1.0, 2.0]}


def test_a_torch_function_equals_the_sampler(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--proposal",
        "mixture",
        "--components",
        "2",
        "--epsilon",
        "0.01",
        "--order",
        "1",
        "--temper",
        "1",
    )
    text = run(
        capsys,
        f"{mine}:rows",
        "--torch",
        *LINE,
        "--initial",
        "8",
        "--new",
        "6",
        *words,
        "--cap",
        "1",
        "--seed",
        "3",
    )
    from mindgap.sampling import Acquisition, Proposal

    whole = TaylorSampler(
        lambda x: torch.tanh(9 * x[:, 0]),
        Box(-1, 1),
        initial=8,
        seed=3,
        acquisition=Acquisition(epsilon=0.01, order=1),
        proposal=Proposal(kind="mixture", components=2, temper=1, cap=1),
    ).run(6)
    assert [float(row["x0"]) for row in table(text)] == whole.points[:, 0].tolist()
    rows = table(
        run(
            capsys,
            f"{mine}:rows",
            "--torch",
            "--simplex",
            "2",
            "--initial",
            "8",
            "--new",
            "5",
            "-q",
        )
    )
    assert all(float(row["x0"]) + float(row["x1"]) <= 1 for row in rows)


def test_interest_that_calls_a_function_of_one_point(
    mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        f"{mine}:f",
        *LINE,
        "--initial",
        "16",
        "--new",
        "16",
        "--acquisition",
        "differences",
        "-q",
    )
    rows = table(run(capsys, *words))
    new = [abs(float(row["x0"])) for row in rows if row["why"] == "acquisition"]
    assert len(new) == 16
    assert np.mean(new) < 0.35  # 0.5 by chance


def test_failures_are_told_and_do_not_stop_the_rest(
    mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = run(
        capsys, f"{mine}:picky", *LINE, "--initial", "8", "--new", "4", "-o", "points.csv", "-q"
    )
    rows = read("points.csv")
    bad = [row for row in rows if float(row["x0"]) > 0.5]
    assert bad
    assert all((row["error"], row["y0"]) == ("ValueError: too hot", "") for row in bad)
    assert f"{len(bad)} × ValueError: too hot" in text
    run(capsys, f"{mine}:never", *LINE, "--initial", "2", "--new", "0", "-q", code=1)


PROGRAM = (
    "--command",
    "./sim {0} {1}",
    *SQUARE,
    "--initial",
    "6",
    "--new",
    "6",
    "--rounds",
    "3",
    "-q",
)


def test_a_program_with_a_session_goes_on_and_may_be_extended(
    mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(
        capsys,
        *PROGRAM,
        "--session",
        "run.jsonl",
        "-o",
        "a.csv",
        "--workers",
        "2",
        "--timeout",
        "60",
        "--retries",
        "1",
    )
    assert len(Path("log").read_text().splitlines()) == 12
    run(capsys, *PROGRAM, "--session", "run.jsonl", "-o", "b.csv")
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    assert len(Path("log").read_text().splitlines()) == 12
    short = (
        "--command",
        "./sim {0} {1}",
        "--session",
        "run.jsonl",
        "-q",
    )  # the rest is read from the session
    run(capsys, *short, "--new", "8", "-o", "c.csv")
    assert len(read("c.csv")) == 14
    assert Path("c.csv").read_text().startswith("number,x0,x1,y0,y1,")
    run(capsys, "--session", "run.jsonl", "-o", "d.csv", "--report", "d.html")  # without evaluating
    assert Path("d.csv").read_bytes() == Path("c.csv").read_bytes()
    text = run(capsys, *PROGRAM, "-o", "e.csv")  # without a session: the same points
    assert "12 points known" in text
    assert Path("e.csv").read_bytes() == Path("a.csv").read_bytes()


def test_a_killed_command_goes_on(mine: str, tmp_path: Path) -> None:
    (tmp_path / "sim").write_text('#!/bin/sh\nsleep 0.1\necho "$1 $2" >> log\necho 1\n')
    command = [
        sys.executable,
        "-m",
        "mindgap",
        "sample",
        "--command",
        "./sim {x}",
        *PROGRAM[2:],
        "--session",
        "s.jsonl",
    ]
    log = tmp_path / "log"
    process = subprocess.Popen(
        [*command, "-o", "p.csv"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while (
        not log.exists() or len(log.read_text().splitlines()) < 5
    ) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not Path("p.csv").exists()
    subprocess.run([*command, "-o", "p.csv"], check=True, capture_output=True, timeout=120)
    lines = log.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 12 == len(read("p.csv"))


def test_interrupt_writes_what_is_done(mine: str, tmp_path: Path) -> None:
    (tmp_path / "sim").write_text(
        "#!/bin/sh\necho 1 >> log; [ $(wc -l < log) -lt 4 ] || sleep 100; echo 1\n"
    )
    words = ["--command", "./sim {x}", *SQUARE, "--workers", "1", "-q", "-o", "p.csv"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mindgap", "sample", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while (
        not Path("log").exists() or len(Path("log").read_text().split()) < 4
    ) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "3 points known" in out
    assert "Interrupted; what was done is kept." in out
    assert sum(bool(row["y0"]) for row in read("p.csv")) == 3


# A queue


def values_of(path: str, target: str, **extra: str) -> None:
    """Evaluate x0 + x1 for every point of a file, as somebody else would."""
    rows = read(path)
    with Path(target).open("w", newline="") as file:
        writer = csv.DictWriter(file, ["number", "y0", *extra])
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {"number": row["number"], "y0": repr(float(row["x0"]) + float(row["x1"])), **extra}
            )


def test_ask_and_tell_equal_one_run(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(
        capsys,
        "--session",
        "s.jsonl",
        *SQUARE,
        "--initial",
        "6",
        "--seed",
        "4",
        "--ask",
        "6",
        "-o",
        "ask.csv",
    )
    assert list(read("ask.csv")[0]) == ["number", "x0", "x1"]
    values_of("ask.csv", "done.csv")
    run(capsys, "--session", "s.jsonl", "--tell", "done.csv")
    run(capsys, "--session", "s.jsonl", "--tell", "done.csv")  # again: no harm
    rows = table(run(capsys, "--session", "s.jsonl", "--ask", "5"))
    assert [row["number"] for row in rows] == ["6", "7", "8", "9", "10"]
    again = run(capsys, "--session", "s.jsonl", "--ask", "0", "-o", "pending.csv")
    assert again == ""
    assert read("pending.csv") == rows
    values_of("pending.csv", "more.csv")
    run(capsys, "--session", "s.jsonl", "--tell", "more.csv", "-o", "points.csv")
    whole = TaylorSampler(
        lambda x: x.sum(1), Box([0, 0], [1, 1]), initial=6, seed=4, acquisition="neighbors"
    ).run(5)
    found = read("points.csv")
    assert [[float(row["x0"]), float(row["x1"])] for row in found] == whole.points.tolist()
    assert [float(row["y0"]) for row in found] == whole.values[:, 0].tolist()


def test_tell_takes_failures_and_leaves_out_what_is_to_come(
    mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "--session", "s.jsonl", *LINE, "--initial", "4", "--ask", "4", "--names", "heat")
    Path("done.csv").write_text(
        "number,heat,y0,error\n0,,1.5,\n1,,,the oven broke\n\n2,,,\n3,,nan,\n"
    )
    assert main(["sample", "--session", "s.jsonl", "--tell", "done.csv", "--names", "heat"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "1 values taken, 2 failures, 1 points pending." in err
    facts = json.loads(run(capsys, "--session", "s.jsonl", "--json"))
    assert facts["failed"] == [
        {"number": 1, "reason": "the oven broke"},
        {"number": 3, "reason": "the value is not finite"},
    ]
    Path("done.csv").write_text("number,y0,error\n0,1.5,\n1,,the oven broke\n2,7,\n3,nan,\n")
    rows = table(
        run(capsys, "--session", "s.jsonl", "--tell", "done.csv", "--ask", "2")
    )  # both at once
    assert [row["number"] for row in rows] == ["4", "5"]
    assert json.loads(run(capsys, "--session", "s.jsonl", "--json"))["known"] == 2


def test_known_evaluations_give_the_next_points(
    mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    points = random.random((100, 2))
    lines = [
        f"{a!r},run {k},{b!r},{np.tanh(30 * (a - 0.3))}" for k, (a, b) in enumerate(points.tolist())
    ]
    Path("mine.csv").write_text("heat,note,cold,energy\n" + "\n".join(lines) + "\n")
    words = ("--data", "mine.csv", "--names", "heat,cold", "--outputs", "energy")
    rows = table(run(capsys, *words, "--ask", "60", "--seed", "1"))
    assert list(rows[0]) == ["number", "heat", "cold"]
    assert rows[0]["number"] == "100"
    heat = np.array([float(row["heat"]) for row in rows])
    assert points[:, 0].min() <= heat.min() <= heat.max() <= points[:, 0].max()
    assert np.mean(abs(heat - 0.3) < 0.2) > 0.6  # 0.4 by chance
    for _ in range(2):  # the same file twice is taken once
        run(capsys, *words, "--session", "s.jsonl", "--ask", "2", "-q")
    facts = json.loads(run(capsys, "--session", "s.jsonl", "--json"))
    assert (facts["given"], facts["pending"]) == (100, 4)


def test_points_that_were_written_can_be_read_again(
    mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, f"{mine}:picky", *LINE, "--initial", "12", "--new", "4", "-o", "points.csv", "-q")
    known = [row for row in read("points.csv") if row["y0"]]
    run(capsys, "--data", "points.csv", *LINE, "--session", "s.jsonl", "--ask", "1")
    facts = json.loads(run(capsys, "--session", "s.jsonl", "--json"))
    assert [(row["x"], row["y"]) for row in facts["points"]] == [
        ([float(row["x0"])], [float(row["y0"])]) for row in known
    ]


def test_the_job_from_python(mine: str, tmp_path: Path) -> None:
    done = sample(
        lambda point: point**2, Box(0, 1), initial=4, new=3, rounds=2, executor=SerialExecutor()
    )
    assert done.values.tolist() == done.points.square().tolist()
    assert done.new.tolist() == [False] * 4 + [True] * 3
    assert str(done).splitlines()[0] == "7 points known: 4 of the initial design, 3 new"
    assert len(read(str(done.save(tmp_path / "p.csv")))) == 7
    more = sample(
        abs, known=([[0.0], [0.5], [1.0]], [0.0, 0.5, 1.0]), new=2, executor=SerialExecutor()
    )
    assert str(more).splitlines()[0] == "5 points known: 3 given, 2 new"


# What is wrong

BAD: dict[str, tuple[str, str]] = {
    "nothing": ("--low 0 --high 1", "something to evaluate"),
    "no domain": ("mine.py:f", "must be a domain"),
    "one end": ("mine.py:f --low 0", "--low and --high"),
    "ends exchanged": ("mine.py:f --low 1 --high 0", "low must be below high"),
    "ends unequal": ("mine.py:f --low 0,0 --high 1", "equally long"),
    "no numbers": ("mine.py:f --low a --high b", "--low must be numbers"),
    "box and simplex": ("mine.py:f --low 0 --high 1 --simplex 2", "without --low and --high"),
    "both": ("mine.py:f --command ls --low 0 --high 1", "one thing to evaluate"),
    "no file": ("other.py:f --low 0 --high 1", "existing file"),
    "no function": ("mine.py:g --low 0 --high 1", "Known:"),
    "no callable": ("mine.py:number --low 0 --high 1", "got int"),
    "unknown acquisition": (
        "mine.py:f --low 0 --high 1 --acquisition neighbours",
        "Did you mean 'neighbors'",
    ),
    "unknown initial design": (
        "mine.py:f --low 0 --high 1 --initial-design sobel",
        "Did you mean 'sobol'",
    ),
    "unknown proposal": ("mine.py:f --low 0 --high 1 --proposal gauss", "proposal must be"),
    "temper": ("mine.py:f --low 0 --high 1 --temper 7", "temper must be"),
    "initial": ("mine.py:f --low 0 --high 1 --initial -2", "initial must be"),
    "new": ("mine.py:f --low 0 --high 1 --new -2", "new must be"),
    "timeout": ("mine.py:f --low 0 --high 1 --timeout 0", "timeout must be above 0"),
    "retries": ("mine.py:f --low 0 --high 1 --retries -1", "retries must be"),
    "workers": ("mine.py:f --low 0 --high 1 --workers 0", "workers must be"),
    "derivative of a point": (
        "mine.py:f --low 0 --high 1 --acquisition derivative",
        "torch function",
    ),
    "differences of a program": (
        "--command ./sim\\ {x} --low 0 --high 1 --acquisition differences",
        "Python function",
    ),
    "no torch": ("mine.py:numpy_rows --torch --low 0 --high 1", "torch"),
    "torch alone": ("--torch --low 0 --high 1 --ask 2", "with a function"),
    "no program": ("--command ./nowhere\\ {0} --low 0 --high 1", "program that can be run"),
    "no place": ("--command ./sim --low 0 --high 1", "where the point goes"),
    "names": ("mine.py:f --low 0 --high 1 --names a,b", "a name for each of 1 inputs"),
    "tell alone": ("--tell done.csv", "with --session"),
    "ask and evaluate": ("mine.py:f --low 0 --high 1 --ask 3", "leave the evaluation to you"),
    "ask": ("--ask -1 --low 0 --high 1", "--ask must be 0 or more"),
    "report": ("mine.py:f --low 0 --high 1 --report page.pdf", "must end in .html"),
    "folder": ("mine.py:f --low 0 --high 1 -o nowhere/points.csv", "No such file or directory"),
    "output is data": ("--data data.csv --ask 1 -o data.csv", "another file than --data"),
    "no data": ("--data none.csv --ask 1", "existing CSV file"),
    "data without inputs": ("--data odd.csv --ask 1", "inputs in columns x0"),
    "data without values": ("--data odd.csv --names a --ask 1", "outputs in columns y0"),
    "data without that": ("--data odd.csv --names c --outputs b --ask 1", "a column 'c'"),
    "data with words": ("--data words.csv --ask 1", "got 'warm' in line 3, column x0"),
    "data with a short row": ("--data short.csv --ask 1", "got 1 in line 2"),
    "data empty": ("--data empty.csv --ask 1", "empty file"),
    "data without rows": ("--data header.csv --ask 1", "got none"),
    "data at one place": (
        "--data data.csv --ask 1 --session s.jsonl --low 0 --high 1 --neighbors 0.5",
        "invalid int",
    ),
    "session of another kind": ("--session data.csv -o out.csv", "must be a sampling session"),
    "session with other settings": (
        "--session run.jsonl --low 0 --high 2 --ask 1",
        "settings it began with",
    ),
    "tell what was not asked": ("--session run.jsonl --tell far.csv", "number 9 of 2"),
    "tell of another point": ("--session run.jsonl --tell moved.csv", "as it was asked"),
    "tell twice": ("--session run.jsonl --tell twice.csv", "every point once"),
    "tell something else": ("--session run.jsonl --tell changed.csv", "must not change"),
    "tell more": ("--session run.jsonl --tell wide.csv", "must have 1 numbers"),
    "tell nothing": ("--session run.jsonl --tell odd.csv", "columns number and y0"),
    "tell halves": ("--session run.jsonl --tell half.csv", "whole numbers"),
}
FILES = {
    "data.csv": "x0,y0\n0,1\n1,2\n0.5,1\n0.25,1\n",
    "odd.csv": "a,b\n1,2\n",
    "words.csv": "x0,y0\n1,2\nwarm,3\n",
    "short.csv": "x0,y0\n1\n",
    "empty.csv": "",
    "header.csv": "x0,y0\n",
    "far.csv": "number,y0\n9,1\n",
    "moved.csv": "number,x0,y0\n1,0.123,1\n",
    "twice.csv": "number,y0\n1,1\n1,1\n",
    "changed.csv": "number,y0\n0,8\n",
    "wide.csv": "number,y0,y1\n1,1,2\n",
    "half.csv": "number,y0\n0.5,1\n",
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(
    case: str, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import shlex

    for name, text in FILES.items():
        Path(name).write_text(text)
    with TaylorSampler(None, Box(0, 1), initial=2, session="run.jsonl") as sampler:
        sampler.ask(2)
        sampler.tell(0, 1.0)
    before = {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    words, expected = BAD[case]
    assert main(["sample", "-q", *shlex.split(words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("mindgap: ")
    assert err.count("\n") == 1, err
    assert expected in err
    after = {
        path.name: path.read_bytes()
        for path in Path().iterdir()
        if path.is_file() and path.name in before
    }
    assert after == before, "nothing of the user's is lost"
    assert not Path("out.csv").exists()


def test_help_names_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sample", "--help"])
    text = capsys.readouterr().out
    for word in (
        "--command",
        "--ask",
        "--tell",
        "--data",
        "--session",
        "--simplex",
        "mine.py:f",
        "{file}",
    ):
        assert word in text


def test_help_is_light() -> None:
    code = "import sys; from mindgap.cli import main\ntry: main(['sample', '--help'])\nexcept SystemExit: pass\n"
    code += "print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.splitlines()[-1] == "False False"
