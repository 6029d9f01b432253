"""Figure 4 of Novello et al. 2020: where TBS helps on the Bateman equations."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import (
    Chart,
    Claim,
    Heatmap,
    Line,
    Record,
    Series,
    Study,
    Table,
    Trial,
    generator,
    mean_interval,
    option,
)
from mindgap.studies.tbs.shared import CONTROL
from mindgap.studies.tbs.table5 import (
    DEFAULT,
    DERIVATIVE,
    PUBLISHED,
    arm_points,
    scaled,
    system,
    trained,
    worst_over_time,
)
from mindgap.training.separate_data import Networks

ARMS = (CONTROL, PUBLISHED, DEFAULT)
CAP = 0.10  # the paper clips its map of Df here
TIMES = 51


class TbsFigure4(Study):
    r"""Figure 4 of Novello et al. 2020: Df, error reduction and curves of Bateman equations.

    Formula: $g_\theta(u_0, \eta_0) = \max_{0 \le t \le 10} \lVert f(u_0, \eta_0, t) -
    f_\theta(u_0, \eta_0, t) \rVert^2, \qquad Z = g_{\theta_{BS}} - g_{\theta_{TBS}}$

    Reading: Where Z is above zero, TBS has less error than the same number of uniform points. AEG
    averages the positive part of Z over all (u₀, η₀), AEL averages its negative part, and net is
    AEG minus AEL. The paper reports an AEG of 0.0251 and an AEL of 0.0042. The share of the gain
    that comes from u₀ below 0.1 shows whether TBS gains where Df is large. The curves show the
    first seed at one random initial condition and at the worst ones of two arms.

    Assumes: The equations, domain and networks of ``tbs-table-5``, with fewer seeds.

    >>> len(TbsFigure4().trials())
    3
    """

    method = ("T1", "T3")
    cites = ("novello2020variance",)
    reproduces = ("vbsw: Figure 4",)

    seeds: int = option(3, help="seeds to average the maps over", low=2)
    size: int = option(3000, help="training points, half of them uniform", low=50)
    epochs: int = option(2000, help="passes over the training points", low=1)
    cells: int = option(30, help="values of u0 and of eta0 in the maps", low=2)

    def trials(self) -> Sequence[Trial]:
        """One trial per seed."""
        return [Trial(parameters={}, seed=seed) for seed in range(self.seeds)]

    def run(self, trial: Trial) -> Record:
        """Return the maps of one seed; the first seed adds the map of Df and the curves."""
        networks = trained(
            [arm_points(arm, 1, self.size, trial.seed) for arm in ARMS], 1, self.epochs, trial.seed
        )
        worst = worst_over_time(networks, self.cells)
        record: dict[str, Any] = {
            "change": {a: (worst[0] - worst[k]).tolist() for k, a in enumerate(ARMS) if k}
        }
        if trial.seed == 0:
            record["interest"] = _interest(self.cells).tolist()
            record["curves"] = _curves(networks, worst)
        return record

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """Report AEG and AEL of both TBS arms, with the maps and the curves."""
        found = [record for _, record in records]
        rows: list[tuple[Any, ...]] = []
        charts: list[Chart] = []
        for arm in ARMS[1:] if len(found) > 1 else ():
            change = torch.tensor([record["change"][arm] for record in found], dtype=torch.float64)
            rows.append((arm, *_sums(change)))
            title = f"{arm}: error of uniform points minus error of this arm, mean over seeds"
            charts.append(self._map(title, change.mean(0)))
        for record in found:
            if "interest" in record:
                charts.insert(
                    0,
                    self._map(
                        f"Maximum of Df over t, clipped at {CAP:g}",
                        torch.tensor(record["interest"]),
                    ),
                )
                charts += [_curve_chart(curve) for curve in record["curves"]]
        return Table(
            title="TBS, Figure 4: where TBS helps on the Bateman equations",
            columns=(
                *("arm", "AEG", "AEL", "net", "low", "high"),
                *("conditions with less error, %", "gain from u0 < 0.1, %"),
            ),
            rows=tuple(rows),
            notes=(
                f"Means over {len(found)} seeds, with a 95 % interval for the net gain.",
                "Conditions are the initial values (u0, eta0) of the grid.",
                "The paper reports an AEG of 0.0251 and an AEL of 0.0042.",
            ),
            charts=tuple(charts),
            claims=tuple(
                Claim.shown("TBS as published gains more than it loses.", row[4] > 0)
                for row in rows
                if row[0] == PUBLISHED
            ),
        )

    def _map(self, title: str, values: Tensor) -> Heatmap:
        middles = ((torch.arange(self.cells) + 0.5) / self.cells).double().tolist()
        return Heatmap(
            title=title,
            x_label="u0",
            y_label="eta0",
            x=middles,
            y=middles,
            z=values.T.tolist(),
            diverging=True,
        )

    def tiny(self) -> Self:
        """Two seeds, few points and epochs."""
        return self.replace(seeds=2, size=120, epochs=5, cells=4)


def _sums(change: Tensor) -> tuple[float, ...]:
    """Return AEG, AEL, their difference with its interval, and two shares in percent."""
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
    """Return the largest Df over time at the center of each cell, clipped."""
    starts = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    points = torch.cartesian_prod(starts, starts, torch.linspace(0, 10, TIMES, dtype=torch.float64))
    return DERIVATIVE.anywhere(system(1)[0], points).view(cells, cells, -1).amax(2).clamp_max(CAP)


def _curves(networks: Networks, worst: Tensor) -> list[dict[str, Any]]:
    """Return true and predicted curves at a random and at the two worst initial conditions."""
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


def _curve_chart(curve: dict[str, Any]) -> Line:
    series = [
        Series(name=f"{name}, {arm}", x=curve["t"], y=values, mode="lines")
        for arm, both in curve["lines"].items()
        for name, values in zip(("u", "eta"), both, strict=True)
        if arm != PUBLISHED
    ]
    return Line(title=curve["title"], x_label="t", y_label="u and eta", series=series)
