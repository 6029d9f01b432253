"""Figure 3 of Novello et al. 2020: where Taylor Based Sampling (TBS) places new points."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import (
    Claim,
    Line,
    Record,
    Series,
    Study,
    Table,
    Trial,
    mean_interval,
    option,
    standard_error,
)
from mindgap.ops.taylor.metric import taylor_metric
from mindgap.studies.tbs.table4 import DERIVATIVE, FUNCTIONS, RESAMPLED, SAMPLERS, START, arm_points

ARMS = ("uniform", RESAMPLED, *SAMPLERS)
SHOWN = ("TBS, weighted mixture", "TBS, exact density")
CURVE, FINE = 201, 20_001
ALREADY = 0.01  # a new point this close to a known one adds no information


class TbsFigure3(Study):
    r"""Figure 3 of Novello et al. 2020: f, Df and the points that each sampler adds to 8.

    Formula: $Df_\epsilon^2(x) = \epsilon f'(x)^2 + \frac{\epsilon^2}{2} f''(x)^2$

    Reading: The charts show the new points of one draw, on the function and on the axis. The table
    averages over many draws. It compares the share of new points that fall where Df is above its
    mean with the share of the interval where this is so. Uniform points hit that region in
    proportion to its size. A new point next to a known point is wasted, and the table counts these
    too.

    Assumes: The functions, the initial design and the settings of ``tbs-table-4``.

    >>> len(TbsFigure3().trials())
    2
    """

    method = ("T1", "T3")
    cites = ("novello2020variance",)
    reproduces = ("vbsw: Figure 3",)

    draws: int = option(200, help="draws of new points to count over", low=2)

    def trials(self) -> Sequence[Trial]:
        """Both functions."""
        return [Trial(parameters={"function": name}) for name in FUNCTIONS]

    def run(self, trial: Trial) -> Record:
        """Return the curves, one draw of each arm, and the counts over all draws."""
        function = FUNCTIONS[trial["function"]]
        fine = torch.linspace(-1, 1, FINE, dtype=torch.float64)[:, None]
        mean = float(taylor_metric(function, fine, epsilon=DERIVATIVE.epsilon).mean())
        curve = fine[:: (FINE - 1) // (CURVE - 1)]
        record: dict[str, Any] = {
            "x": curve.flatten().tolist(),
            "f": function(curve).flatten().tolist(),
            "interest": taylor_metric(function, curve, epsilon=DERIVATIVE.epsilon).tolist(),
            "steep": float(
                (taylor_metric(function, fine, epsilon=DERIVATIVE.epsilon) > mean).double().mean()
            ),
        }
        for arm in ARMS:
            points = torch.stack([arm_points(arm, function, seed) for seed in range(self.draws)])
            new = points[:, START:, 0]
            metric = taylor_metric(
                function, new.reshape(-1, 1), epsilon=DERIVATIVE.epsilon
            ).view_as(new)
            near = (new[:, :, None] - points[:, None, :START, 0]).abs().amin(2) < ALREADY
            counts = {"steep": (metric > mean).double().mean(1), "wasted": near.double().mean(1)}
            record[arm] = {name: found.tolist() for name, found in counts.items()} | {
                "drawn": _drawn(new[0])
            }
        return record

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """Average the counts of every arm, and chart every function."""
        rows: list[tuple[Any, ...]] = []
        for trial, record in records:
            for arm in ARMS:
                steep, wasted = (
                    [100 * value for value in record[arm][key]] for key in ("steep", "wasted")
                )
                interval = mean_interval(steep)
                share = (sum(steep) / len(steep), interval.low, interval.high)
                tail = (sum(wasted) / len(wasted), standard_error(wasted))
                rows.append((trial["function"], arm, 100 * record["steep"], *share, *tail))
        return Table(
            title="TBS, Figure 3: where the new points fall, %",
            columns=(
                *("function", "arm", "interval with Df above its mean", "new points there"),
                *("low", "high", "next to a known point", "se"),
            ),
            rows=tuple(rows),
            notes=(
                f"Means over {self.draws} draws of 8 points, with 95 % intervals.",
                f"Next to a known point means within {ALREADY} of it.",
            ),
            charts=tuple(_chart(trial["function"], record) for trial, record in records),
            claims=tuple(
                Claim.shown(f"New points fall where Df is large ({row[0]}).", row[4] > row[2])
                for row in rows
                if row[1] == SHOWN[0]
            ),
        )

    def tiny(self) -> Self:
        """Two draws."""
        return self.replace(draws=2)


def _drawn(new: Tensor) -> list[float]:
    return [float(value) for value in new.sort().values]


def _chart(name: str, record: Record) -> Line:
    function, top = FUNCTIONS[name], max(record["interest"])
    scaled = [value / top for value in record["interest"]]
    series = [
        Series(name="f", x=record["x"], y=record["f"], mode="lines"),
        Series(name="Df / max Df", x=record["x"], y=scaled, mode="lines"),
    ]
    for arm in SHOWN:
        x = record[arm]["drawn"]
        on_curve = function(torch.tensor(x, dtype=torch.float64)[:, None]).flatten().tolist()
        on_axis = [min(0.0, *record["f"])] * len(x)
        series.append(Series(name=f"{arm}: on f", x=x, y=on_curve, mode="markers"))
        series.append(Series(name=f"{arm}: on the axis", x=x, y=on_axis, mode="markers"))
    return Line(
        title=f"{name}: the function, its Taylor metric and 8 new points",
        x_label="x",
        y_label="f, and Df over its maximum",
        series=series,
    )
