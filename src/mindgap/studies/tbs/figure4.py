"""Figure 4 of the VBSW paper: where the Bateman equations change quickly, and where Taylor Based Sampling helps."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import Record, Study, Table, Trial, generator, mean_interval, option
from mindgap.studies.tbs.bateman import (
    DEFAULT,
    DERIVATIVE,
    PUBLISHED,
    arm_points,
    scaled,
    system,
    trained,
    worst_over_time,
)
from mindgap.studies.tbs.shared import CONTROL
from mindgap.training.separate_data import Networks

ARMS = (CONTROL, PUBLISHED, DEFAULT)
CAP = 0.10  # where the paper cuts its map of Df off
TIMES = 51


class TbsFigure4(Study):
    r"""Figure 4 of the VBSW paper: max over t of Df, the error reduction over (u₀, η₀), and predicted curves.

    Formula: $g_\theta(u_0, \eta_0) = \max_{0 \le t \le 10} \lVert f(u_0, \eta_0, t) -
    f_\theta(u_0, \eta_0, t) \rVert^2, \qquad Z = g_{\theta_{BS}} - g_{\theta_{TBS}}$

    Reading: Above zero the sampling has less error than uniform points of the same number. AEG is
    the mean of Z where it is positive and AEL that of its size where it is negative, over all (u₀,
    η₀); net is their difference. The paper has 0.0251 and 0.0042. The share that u₀ below 0.1 has
    in the gain shows whether it comes from where Df is large. The curves belong to the first seed,
    at a start drawn at random and at the worst starts of two of the samplings.

    Assumes: The equations, domain and networks of ``tbs-table-5``, with fewer seeds.

    >>> len(TbsFigure4().trials())
    3
    """

    method = ("T1", "T3")
    cites = ("novello2020variance",)

    seeds: int = option(3, help="seeds to average the maps over", low=2)
    size: int = option(3000, help="train points, half of them uniform", low=50)
    epochs: int = option(2000, help="passes over the train points", low=1)
    cells: int = option(30, help="values of u0 and of eta0 in the maps", low=2)

    def trials(self) -> Sequence[Trial]:
        """One a seed."""
        return [Trial(parameters={}, seed=seed) for seed in range(self.seeds)]

    def run(self, trial: Trial) -> Record:
        """The maps of one seed; the first one also has the map of Df and the curves."""
        networks = trained(
            [arm_points(arm, 1, self.size, trial.seed) for arm in ARMS], 1, self.epochs, trial.seed
        )  # fmt: skip
        worst = worst_over_time(networks, self.cells)
        record: dict[str, Any] = {
            "change": {a: (worst[0] - worst[k]).tolist() for k, a in enumerate(ARMS) if k}
        }
        if trial.seed == 0:
            record["interest"] = _interest(self.cells).tolist()
            record["curves"] = _curves(networks, worst)
        return record

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """AEG and AEL of both samplings, the maps and the curves."""
        found = [record for _, record in records]
        rows, charts = [], []
        for arm in ARMS[1:] if len(found) > 1 else ():
            change = torch.tensor([record["change"][arm] for record in found], dtype=torch.float64)
            rows.append((arm, *_sums(change)))
            title = f"{arm}: error reduction, mean over seeds (above 0: less error than with uniform points)"
            charts.append(self._map(title, change.mean(0)))
        for record in found:
            if "interest" in record:
                charts.insert(
                    0,
                    self._map(
                        f"max over t of Df, cut off at {CAP:g}", torch.tensor(record["interest"])
                    ),
                )
                charts += [_curve_chart(curve) for curve in record["curves"]]
        return Table(
            title="TBS, Figure 4: where sampling by Df helps on the Bateman equations",
            columns=("arm", "AEG", "AEL", "net", "low", "high", "starts with less error, %", "gain from u0 < 0.1, %"),
            rows=tuple(rows),
            notes=(f"Means over {len(found)} seeds; the interval of the net gain is at 95 %.",
                   "The paper has an AEG of 0.0251 and an AEL of 0.0042."),
            charts=tuple(charts),
        )  # fmt: skip

    def _map(self, title: str, values: Tensor) -> dict[str, Any]:
        middles = ((torch.arange(self.cells) + 0.5) / self.cells).double().tolist()
        axes = {"x_label": "u0", "y_label": "eta0", "x": middles, "y": middles}
        return {"kind": "heat", "title": title, **axes, "z": values.T.tolist()}

    def tiny(self) -> Self:
        """Two seeds, few points and epochs."""
        return self.replace(seeds=2, size=120, epochs=5, cells=4)


def _sums(change: Tensor) -> tuple[float, ...]:
    """AEG, AEL, their difference with its interval, and shares in percent, over seeds."""
    gain, loss = change.clamp_min(0), (-change).clamp_min(0)
    interval = mean_interval(change.mean((1, 2)).numpy())
    near = int(0.1 * change.shape[1] + 1e-9) or 1
    share = float(gain[:, :near].sum() / gain.sum()) if bool(gain.any()) else 0.0
    net = (float(change.mean()), interval.low, interval.high)
    return (
        float(gain.mean()),
        float(loss.mean()),
        *net,
        100 * float((change > 0).double().mean()),
        100 * share,
    )


def _interest(cells: int) -> Tensor:
    """The largest Df over time at the middles of the cells, cut off."""
    starts = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    points = torch.cartesian_prod(starts, starts, torch.linspace(0, 10, TIMES, dtype=torch.float64))
    return DERIVATIVE.anywhere(system(1)[0], points).view(cells, cells, -1).amax(2).clamp_max(CAP)


def _curves(networks: Networks, worst: Tensor) -> list[dict[str, Any]]:
    """u and η over time, true and predicted, at a random start and at the worst ones of two samplings."""
    cells = worst.shape[1]
    starts = {"a start drawn at random": torch.rand(2, dtype=torch.float64, generator=generator(0))}
    for arm in (CONTROL, DEFAULT):
        place = int(worst[ARMS.index(arm)].argmax())
        starts[f"the worst start of: {arm}"] = (
            torch.tensor([place // cells, place % cells]).double() + 0.5
        ) / cells
    return [_curve(networks, title, start) for title, start in starts.items()]


def _curve(networks: Networks, title: str, start: Tensor) -> dict[str, Any]:
    function, box = system(1)
    times = torch.linspace(0, 10, TIMES, dtype=torch.float64)
    points = torch.cat([start.expand(TIMES, 2), times[:, None]], dim=1)
    lines = {
        "true": function(points),
        **dict(zip(ARMS, networks.outputs(scaled(points, box)), strict=True)),
    }
    label = f"{title}, u0 = {float(start[0]):.2f}, eta0 = {float(start[1]):.2f}"
    return {
        "title": label,
        "t": times.tolist(),
        "lines": {arm: rows.T.tolist() for arm, rows in lines.items()},
    }


def _curve_chart(curve: dict[str, Any]) -> dict[str, Any]:
    series = [
        {"name": f"{name}, {arm}", "x": curve["t"], "y": values, "mode": "lines"}
        for arm, both in curve["lines"].items()
        for name, values in zip(("u", "eta"), both, strict=True)
        if arm != PUBLISHED
    ]
    return {
        "kind": "line",
        "title": curve["title"],
        "x_label": "t",
        "y_label": "u and eta",
        "series": series,
    }
