"""What `mindgap --help` costs, as a multiple of `python -c pass`, in CPU time of child processes."""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys

from timing import alone, write

WANTED = 4.0


def cpu_seconds(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def heavy_modules() -> list[str]:
    code = (
        "import sys\nfrom mindgap.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print('loaded', *[name for name in ('torch', 'plotly', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--repeats", type=int, default=31)
    arguments = parser.parse_args()
    with alone():
        pairs = [
            (
                cpu_seconds([sys.executable, "-c", "pass"]),
                cpu_seconds([sys.executable, "-m", "mindgap", "--help"]),
            )
            for _ in range(arguments.repeats)
        ]
    bare, own = (statistics.median(column) for column in zip(*pairs, strict=True))
    row = {
        "name": "mindgap --help against python -c pass",
        "cost_ratio": own / bare,
        "wanted_at_most": WANTED,
        "peer_cpu_seconds": bare,
        "own_cpu_seconds": own,
        "heavy_modules_loaded": heavy_modules(),
        "note": f"median of {arguments.repeats} alternating runs",
    }
    verdict = "ok  " if row["cost_ratio"] <= WANTED and not row["heavy_modules_loaded"] else "SLOW"
    print(
        f"{verdict} {row['name']}: {own / bare:.2f}x CPU (at most {WANTED:g}x; {own * 1000:.0f} "
        "ms against "
        f"{bare * 1000:.0f} ms); loads "
        f"{row['heavy_modules_loaded'] or 'neither torch nor plotly nor numpy'}"
    )
    if arguments.json:
        write(arguments.json, [row])
    if verdict != "ok  ":
        sys.exit(1)


if __name__ == "__main__":
    main()
