"""One table of all ratios: from the JSON files of the benchmarks, as Markdown and as JSON.

    python benchmarks/table.py docs/results/benchmarks --output bench

It writes ``bench.md`` and ``bench.json``. A ratio ≥ what is wanted is the peer's CPU time over ours, a
ratio ≤ it is ours over the peer's. Files without a ratio or a limit in seconds are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("benchmark", "what", "measured", "wanted", "met", "own CPU s", "peer CPU s", "versions")
COSTS = {"least_cpu_ratio", "quartiles"}  # keys of rows whose ratio is our time over the peer's
Row = dict[str, Any]


def rows_of(path: Path) -> Iterator[Row]:
    """Yield one row of the table for every row of a benchmark that has a ratio or a limit."""
    data = json.loads(path.read_text(encoding="utf-8"))
    versions = {**data.get("environment", {}), **data.get("environment", {}).get("peers", {})}
    known = ", ".join(
        f"{name} {value}" for name, value in versions.items() if name not in ("machine", "peers")
    )
    for row in data.get("rows", ()):
        judged = _judged(row)
        if judged:
            yield {"benchmark": path.stem, "what": row["name"], **judged, "versions": known}


def _judged(row: Mapping[str, Any]) -> Row:
    own = row.get("own_cpu_seconds", row.get("cpu_seconds"))
    seconds = {"own CPU s": own, "peer CPU s": row.get("peer_cpu_seconds")}
    if isinstance(row.get("cpu_ratio"), int | float):
        ratio, wanted = float(row["cpu_ratio"]), row.get("wanted_ratio")
        # What costs more than a plain step is measured in rounds, and may cost so much at most.
        most = not COSTS.isdisjoint(row)
        met = None if wanted is None else ratio <= wanted if most else ratio >= wanted
        told = "" if wanted is None else f"{'≤' if most else '≥'} {wanted:.3g}×"
        return {"measured": f"{ratio:.3g}×", "wanted": told, "met": met, **seconds}
    most, found = row.get("wanted_at_most"), row.get("cost_ratio", own)
    if isinstance(most, int | float) and isinstance(found, int | float):
        # A limit is in seconds unless the row compares a cost with that of a peer.
        value, unit = (found, "×") if row.get("peer_cpu_seconds") else (own, " s")
        met = None if value is None else value <= most
        return {
            "measured": f"{value:.3g}{unit}",
            "wanted": f"≤ {most:g}{unit}",
            "met": met,
            **seconds,
        }
    return {}


def markdown(rows: Sequence[Row]) -> str:
    """Write the table in Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(_cell(row.get(name)) for name in COLUMNS) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None else str(value).replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with what the benchmarks wrote")
    parser.add_argument("--output", type=Path, default=Path("bench"), help="name without ending")
    arguments = parser.parse_args()
    rows = [row for path in sorted(arguments.folder.glob("*.json")) for row in rows_of(path)]
    if not rows:
        parser.error(
            f"{arguments.folder} must hold JSON files of benchmarks, got none with a ratio"
        )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.with_suffix(".md").write_text(markdown(rows), encoding="utf-8")
    arguments.output.with_suffix(".json").write_text(
        json.dumps({"rows": rows}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print(markdown(rows))


if __name__ == "__main__":
    main()
