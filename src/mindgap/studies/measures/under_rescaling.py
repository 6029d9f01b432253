"""Which measures change when the network's weights do and its function does not."""

import copy
import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import nn

from mindgap.core import Measure, Recipe, Record, Study, Subject, Table, Trial, catalog, option
from mindgap.core.chart import Bar, Series
from mindgap.data import digits
from mindgap.nets import MLP
from mindgap.ops.models.rescaling import rescaled
from mindgap.studies.measures.walk import measured
from mindgap.training.fit import fit

CHANGES = ("ReLU rescaling", "BatchNorm folding")
SAME = 1e-6  # relative; rounding in double precision is far below it


class MeasuresUnderRescaling(Study):
    r"""Every measure before and after a change of the weights that leaves the function alone.

    Formula: $\frac{\lvert m(f_{w'}) - m(f_w) \rvert}{\lvert m(f_w) \rvert} \quad\text{where}\quad
    f_{w'}(x) = f_w(x) \;\text{for all}\; x$

    Reading: A measure that moves says something about the weights, not about the function, and
    cannot explain generalization by itself. Rescaling makes the first ReLU layer ten times larger
    and the next as much smaller. Folding multiplies batch normalization into the layer before it,
    in the initial weights as well. Zero means that the value stays the same up to rounding.

    Assumes: MLPs 64-32-32-10, with and without batch normalization, trained with Adam on 500 of the
    8×8 digits and measured in double precision. Expensive measures are left out.

    >>> len(MeasuresUnderRescaling(seeds=2).trials())
    4
    """

    method = ("P8", "E10")
    cites = ("dinh2017sharp", "jiang2020fantastic")

    seeds: int = option(3, help="networks per change", low=1)
    epochs: int = option(40, help="passes over the training data", low=1)
    factor: float = option(10.0, help="factor α of the first layer", above=1)

    def trials(self) -> Sequence[Trial]:
        """One network per change and seed."""
        return [
            Trial(parameters={"change": change}, seed=seed)
            for change in CHANGES
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train a network, change it, and measure both."""
        data = digits().subset(500, seed=trial.seed)
        folds = trial["change"] == "BatchNorm folding"
        recipe = Recipe(
            model=lambda: MLP(widths=(64, 32, 32, 10), norm="batch" if folds else "none"),
            train=data.train,
            test=data.test,
            epochs=self.epochs,
            batch_size=50,
            learning_rate=0.003,
        )
        fitted = fit(recipe, seed=trial.seed, evaluate_every=0)
        model, start = (net.double() for net in (fitted.model, recipe.build(trial.seed)))
        others = (folded(model), folded(start)) if folds else (rescaled(model, self.factor), start)
        before, after = (
            Subject(
                net,
                "cross_entropy",
                data.train,
                data.test,
                initial=old.state_dict(),
                history=fitted.history,
            )
            for net, old in ((model, start), others)
        )
        away = (after.outputs("train") - before.outputs("train")).abs().max()
        return {
            "outputs": float(away / before.outputs("train").abs().max()),
            "before": measured(before),
            "after": measured(after),
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per measure: the largest relative change over networks, for both."""
        names = list(dict.fromkeys(name for _, record in records for name in record["before"]))
        moves = {
            change: {name: _move(name, change, records) for name in names} for change in CHANGES
        }
        rows = tuple(
            (
                name,
                *(moves[change][name] for change in CHANGES),
                _promise(name),
                _verdict(name, moves),
            )
            for name in names
        )
        largest = max(record["outputs"] for _, record in records)
        return Table(
            title="Measures of networks with other weights and the same function (8×8 digits)",
            columns=("measure", *CHANGES, "promises to ReLU rescaling", "verdict"),
            rows=rows,
            notes=(
                f"Entries are |after − before| / |before|, the largest of all networks. Outputs "
                f"themselves moved by {largest:.1e} of the largest one at most.",
                *_counts(rows),
                *_reasons(records),
            ),
            charts=(_chart(names, moves),),
        )

    def tiny(self) -> Self:
        """Use one network per change and hardly any training."""
        return self.replace(seeds=1, epochs=1)


def folded(model: nn.Module) -> nn.Module:
    """Copy a perceptron with batch normalization as one without it and with the same outputs.

    Args:
        model: Linear layers, each followed by its normalization or by none.
    """
    layers = list[nn.Module]()
    for module in copy.deepcopy(model).eval().children():
        if isinstance(module, nn.BatchNorm1d):
            _fold(layers[-1], module)
        else:
            layers.append(module)
    return nn.Sequential(*layers)


@torch.no_grad()
def _fold(layer: Any, norm: nn.BatchNorm1d) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    layer.weight.mul_(scale[:, None])
    layer.bias.copy_((layer.bias - norm.running_mean) * scale + norm.bias)


def _move(name: str, change: str, records: Sequence[tuple[Trial, Record]]) -> float | None:
    """Return the largest relative change; None where a value is undefined."""
    found = []
    for _, record in ((t, r) for t, r in records if t["change"] == change):
        one, other = (record[key].get(name, {}).get("value") for key in ("before", "after"))
        if one is None or other is None:
            return None
        found.append(abs(other - one) / abs(one) if one else (0.0 if other == one else math.inf))
    largest = max(found)
    return 0.0 if largest < SAME else largest


def _promise(name: str) -> str:
    cls = catalog("measure").get(name)
    if cls is None or not issubclass(cls, Measure):
        return ""
    return "invariant" if "relu-rescaling" in cls.invariant_to else (cls.rescaling or "nothing")


def _verdict(name: str, moves: dict[str, dict[str, float | None]]) -> str:
    known = {change: moves[change][name] for change in CHANGES if moves[change][name] is not None}
    if not known:
        return "undefined"
    moved = [change for change, value in known.items() if value]
    return f"moves under {' and '.join(moved)}" if moved else "stays"


def _counts(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    known = [row for row in rows if row[-1] != "undefined"]
    stay = [row[0] for row in known if row[-1] == "stays"]
    broken = [row[0] for row in known if row[-2] == "invariant" and row[1]]
    kept = "Every promise of invariance holds." if not broken else f"Broken: {', '.join(broken)}."
    return [f"{len(stay)} of {len(known)} measures stay the same under both changes. {kept}"]


def _reasons(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    told = dict[str, str]()
    for _, record in records:
        for side in ("before", "after"):
            for name, row in record[side].items():
                if row["value"] is None:
                    told.setdefault(name, row["reason"])
    return [f"{name}: undefined ({reason})." for name, reason in told.items()]


def _chart(names: Sequence[str], moves: dict[str, dict[str, float | None]]) -> Bar:
    moving = [name for name in names if any(moves[change][name] for change in CHANGES)]
    return Bar(
        title="Measures that move although the function does not",
        x_label="measure",
        y_label="relative change",
        y_scale="log",
        horizontal=True,
        series=[
            Series(name=change, x=moving, y=[_shown(moves[change][name]) for name in moving])
            for change in CHANGES
        ],
    )


def _shown(value: float | None) -> float | None:
    return value if value and math.isfinite(value) else None
