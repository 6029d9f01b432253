"""monitor: judge the log of a training."""

import math
import os
from collections.abc import Sequence
from typing import Any

from mindgap.core import Chart, Line, Mark, Series, validated
from mindgap.jobs.monitor.answer import Watched
from mindgap.training.monitor.judge import (
    MOST_DEAD,
    Layer,
    Units,
    clip_at,
    course,
    judged,
    last_run,
    readings,
    signals,
    spikes,
)
from mindgap.training.monitor.log import Line as LogLine, lines_of
from mindgap.training.monitor.monitor import Monitor

POINTS = 1000  # of a curve in the page
SHOWN = 12  # layers whose updates are drawn


@validated
def monitor(log: str | os.PathLike[str] | Monitor) -> Watched:
    """Judge a training by what a monitor noted: every layer, all units, the loss.

    Args:
        log: The file that ``Monitor(log=…)`` wrote or still writes, or the monitor itself. Of a
            file with several runs, the last one is judged.

    Returns:
        The verdict with the layer to blame, one row per layer, charts and advice. ``print`` shows
        it, ``save`` writes a page.

    >>> import torch
    >>> model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(5)])
    >>> _ = torch.nn.init.constant_(model[2].weight, 1e-9)
    >>> with Monitor(model) as watching:
    ...     model(torch.ones(8, 4)).square().mean().backward()
    ...     watching.step()
    >>> found = monitor(watching)
    >>> found.verdict.label, found.layer
    ('Vanishing gradient', '2')
    """
    lines = last_run(log.lines if isinstance(log, Monitor) else lines_of(log))
    found, losses = judged(lines), course(lines, "losses")[1]
    return Watched(
        name=str(lines[0].get("model", "")),
        steps=max((int(line.get("step", 0)) for line in lines), default=0),
        every=int(lines[0].get("every", 0)),
        loss=losses[-1] if losses else None,
        charts=tuple(_charts(lines, found["layers"], found["units"])),
        **found,
    )


def _charts(
    lines: Sequence[LogLine], layers: Sequence[Layer], units: Sequence[Units]
) -> list[Chart]:
    found = [_course_chart(lines)]
    if layers:
        found += [_depth_chart(lines), _update_chart(lines, layers)]
    return [chart for chart in [*found, _unit_chart(lines, units)] if chart is not None]


def _course_chart(lines: Sequence[LogLine]) -> Chart | None:
    steps, norms = _thinned(*course(lines, "gradient"))
    places, losses = _thinned(*course(lines, "losses"))
    limit = clip_at(lines)
    if not steps:
        return None
    marks = [
        Mark(name=f"loss jumps at {spike.step:,}", x=spike.step) for spike in spikes(lines)[:5]
    ]
    return Line(
        title="Gradient and loss at every step",
        x_label="step",
        y_label="norm of the gradient",
        y_scale="log",
        series=[Series(name="gradient", x=steps, y=norms)],
        right=[Series(name="loss", x=places, y=losses)] if losses else [],
        right_label="loss",
        marks=marks,
        caption="" if limit is None else f"Nine of ten gradients are below {limit:g}.",
    )


def _thinned(steps: list[int], values: list[float]) -> tuple[list[int], list[float]]:
    """Keep so many points as a screen can show; of each group the largest, which tells most."""
    width = math.ceil(len(steps) / POINTS) or 1
    groups = [range(k, min(k + width, len(steps))) for k in range(0, len(steps), width)]
    kept = [
        max(group, key=lambda k: values[k] if math.isfinite(values[k]) else -math.inf)
        for group in groups
    ]
    return [steps[k] for k in kept], [values[k] for k in kept]


def _depth_chart(lines: Sequence[LogLine]) -> Chart:
    found = readings(lines)
    chosen = {f"step {line['step']:,}": signals(line["layers"]) for line in (found[0], found[-1])}
    names = list(dict.fromkeys(name for row in chosen.values() for name in row))
    return Line(
        title="The gradient on its way back, from the output (right) to the input (left)",
        x_label="layer",
        y_label="norm of the gradient by the layer's outputs",
        x_scale="category",
        y_scale="log",
        series=[
            Series(name=title, x=names, y=[_positive(row.get(name)) for name in names])
            for title, row in chosen.items()
        ],
    )


def _positive(value: float | None) -> float | None:
    return value if value else None


def _update_chart(lines: Sequence[LogLine], layers: Sequence[Layer]) -> Chart:
    rows = readings(lines)
    names = [layer.name for layer in layers if layer.depth is not None][:SHOWN]
    steps = [line["step"] for line in rows]
    return Line(
        title="Update divided by weights",
        x_label="step",
        y_label="norm of the update / norm of the weights",
        y_scale="log",
        series=[
            Series(name=name, x=steps, y=[_ratio(line["layers"].get(name)) for line in rows])
            for name in names
        ],
        caption="" if len(names) < SHOWN else f"The first {SHOWN} layers.",
    )


def _ratio(row: Any) -> float | None:
    return row["update"] / row["weight"] if row and row["weight"] and row["update"] else None


def _unit_chart(lines: Sequence[LogLine], units: Sequence[Units]) -> Chart | None:
    rows = readings(lines)
    if not units:
        return None
    return Line(
        title="Dead or saturated units",
        x_label="step",
        y_label="share of the units",
        percent=True,
        from_zero=True,
        series=[
            Series(
                name=row.place,
                x=[line["step"] for line in rows],
                y=[_share(line["units"].get(row.place)) for line in rows],
            )
            for row in units[:SHOWN]
        ],
        marks=[Mark(name="beyond healthy nets", y=MOST_DEAD)],
    )


def _share(row: Any) -> float | None:
    return None if row is None else max(row.get("dead", 0.0), row.get("saturated", 0.0))
