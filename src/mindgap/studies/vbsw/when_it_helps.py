"""When does VBSW help? Two models on thirteen real data sets, against permuted weights."""

import functools
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import Claim, Recipe, Record, Study, Table, Trial, generator, holm, option, paired
from mindgap.data import DataSet, load, standardize, stratified_split
from mindgap.nets import MLP
from mindgap.ops.convex.heads import solve_heads
from mindgap.ops.variance.by_k import VarianceByK
from mindgap.ops.variance.weights import density_corrected, kernel_log_density, scale_weights
from mindgap.training.ensemble import ensemble

TABLES = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
NAMES = (*(f"uci-{name}" for name in TABLES), "california", "digits", "mnist", "cifar10")
MODELS = ("linear", "network")
MAX_WEIGHTS, KS = (2.0, 5.0, 10.0, 40.0), (5, 10, 20, 40)
NETWORK_KS = (10, 40)  # half the settings, because networks are expensive
PARTS = (0.6, 0.2, 0.2)  # fit, choose, judge
OVERLAP = PARTS[2] / PARTS[0]  # of the random splits of a data set, for the corrected t-test
COMPONENTS = 50
PAIRS = {"weighted": "permuted", "density": "permuted density"}  # an arm and its control
COLUMNS = (
    *("model", "data", "uniform error", "VBSW, %", "low", "high"),
    *("permuted, %", "low", "high", "p (Holm)", "VBSW"),
    *("density, %", "low, density", "high, density", "p (Holm), density", "density-corrected"),
)


class WhenVbswHelps(Study):
    r"""Whether VBSW helps a linear model and a small network on thirteen real data sets.

    Formula: $\frac{\mathrm{err}_{VBSW} - \mathrm{err}_{uniform}}{\mathrm{err}_{uniform}}$

    Reading: Negative is better. VBSW helps on a data set if its test error is significantly below
    that of permuted weights, which are chosen in the same way from as many settings. The splits of
    a data set share samples, so the test is the corrected resampled t-test of Nadeau and Bengio.
    Errors are mean squared errors for regression and error rates for classification. The
    density-corrected weights divide the variance by a kernel estimate of the density, and have
    permuted weights of their own as their control.

    Assumes: Standardized features, or the first 50 principal components of images. The linear model
    is solved to its exact optimum. The network has one hidden layer and takes weights of mean 1, so
    that all arms have the same effective learning rate. A fifth of the samples chooses m and k, and
    another fifth judges once.

    >>> len(WhenVbswHelps(splits=2).trials())
    52
    """

    method = ("V6", "V8", "V9")
    cites = ("novello2020variance", "nadeau2003inference")

    splits: int = option(20, help="random splits to pair over", low=2)
    hidden: int = option(16, help="hidden units of the network", low=1)
    epochs: int = option(100, help="epochs of the network", low=1)
    samples: int = option(3000, help="largest number of samples per data set", low=100)
    sets: int = option(
        len(NAMES), help="number of data sets, in the order of the table", low=1, high=len(NAMES)
    )

    def trials(self) -> Sequence[Trial]:
        """One trial per model, data set and split."""
        pairs = [(name, model) for model in MODELS for name in NAMES[: self.sets]]
        return [
            Trial(parameters={"data": name, "model": model}, seed=split)
            for name, model in pairs
            for split in range(self.splits)
        ]

    def run(self, trial: Trial) -> Record:
        """Fit one split without weights, with all weights, and with all permuted weights."""
        features, target, classes = self._table(load(trial["data"]), trial.seed)
        fit, choose, judge = stratified_split(target, PARTS, trial.seed)
        rows = _projected(features, fit, classes)
        linear = trial["model"] == "linear"
        weights = _weights(rows[fit], target[fit], classes, KS if linear else NETWORK_KS)
        mixed = weights[:, :, torch.randperm(len(fit), generator=generator(trial.seed))]
        tables = torch.cat([weights, mixed]).flatten(0, 1)
        every = torch.cat([torch.ones_like(tables[:1]), tables])
        held = torch.cat([choose, judge])
        outputs = int(target.max()) + 1 if classes else target.shape[1]
        if linear:
            errors = _linear(rows, target, fit, held, every, outputs, classes)
        else:
            errors = self._network(rows, target, fit, held, every, outputs, classes, trial.seed)
        return _record(
            errors[:, : len(choose)].mean(1), errors[:, len(choose) :].mean(1), weights.shape[1]
        )

    def _network(
        self,
        rows: Tensor,
        target: Tensor,
        fit: Tensor,
        held: Tensor,
        weights: Tensor,
        outputs: int,
        classes: bool,
        seed: int,
    ) -> Tensor:
        """Train one network per row of weights and return the errors of the held-out samples."""
        scaled = target
        if not classes:
            scaled = (target - target[fit].mean(0)) / target[fit].std(0)
        recipe = Recipe(
            model=functools.partial(
                MLP, widths=(rows.shape[1], self.hidden, outputs), activation="relu"
            ),
            train=(rows[fit].float(), scaled[fit] if classes else scaled[fit].float()),
            test=(rows[held].float(), scaled[held] if classes else scaled[held].float()),
            loss="cross_entropy" if classes else "mse",
            optimizer="adam",
            learning_rate=3e-3,
            batch_size=100,
            epochs=self.epochs,
        )
        even = weights / weights.mean(1, keepdim=True)
        members = ensemble(
            recipe, [seed] * len(even), sample_weights=even.float(), keep_history=False
        )
        return torch.stack([member.subject().errors("test").double() for member in members])

    def _table(self, data: DataSet, seed: int) -> tuple[Tensor, Tensor, bool]:
        """Return features and targets of a subset, and whether the targets are classes."""
        classes = data.task == "classification"
        targets = data.targets if classes else data.targets.double().reshape(len(data.targets), -1)
        order = torch.randperm(len(targets), generator=generator(seed))[: self.samples]
        return data.inputs[order].flatten(1).double(), targets[order], classes

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per model and data set: the change of the test error from uniform weights."""
        # Kept records from before the density was measured have one kind of weights.
        pairs = {
            arm: control for arm, control in PAIRS.items() if all(arm in r for _, r in records)
        }
        columns = COLUMNS if len(pairs) == len(PAIRS) else COLUMNS[: COLUMNS.index("VBSW") + 1]
        rows, tests = [], []
        for model, name in ((model, name) for model in MODELS for name in NAMES[: self.sets]):
            found = [
                record
                for trial, record in records
                if (trial["model"], trial["data"]) == (model, name)
            ]
            if len(found) > 1:
                uniform = sum(record["uniform"] for record in found) / len(found)
                changes = {arm: _change(found, arm) for arm in (*pairs, "permuted")}
                rows.append((model, name, uniform, changes))
                tests += [
                    paired([r[arm] for r in found], [r[control] for r in found], overlap=OVERLAP)
                    for arm, control in pairs.items()
                ]
        corrected = holm([test.p_value for test in tests])
        ends = [
            (p_value, _verdict(test.difference, p_value))
            for test, p_value in zip(tests, corrected, strict=True)
        ]
        lines = []
        for place, (model, name, uniform, changes) in enumerate(rows):
            own, *others = ends[place * len(pairs) : (place + 1) * len(pairs)]
            line = (model, name, uniform, *changes["weighted"], *changes["permuted"], *own)
            lines.append(
                (*line, *(value for end in others for value in (*changes["density"], *end)))
            )
        kinds = [("VBSW", columns.index("VBSW"))] + [(columns[-1], -1)] * (len(pairs) - 1)
        both = " over both kinds of weights" if len(pairs) > 1 else ""
        notes = [
            "Change of the test error from the same model with uniform weights; negative is "
            "better. In regression the errors of networks are in units of the target's variance.",
            *(
                f"{model}{f', {arm}' if both else ''}: {_count(lines, model, place)}"
                for arm, place in kinds
                for model in MODELS
            ),
            "Helps or hurts: compared with permuted weights chosen in the same way, paired over "
            f"splits by the corrected resampled t-test, with p < 0.05 corrected by Holm{both}.",
        ]
        helped = sum(word == "helps" for _, word in ends)
        claims = Claim.counted("VBSW lowers the test error.", helped, len(ends)) if ends else None
        return Table(
            title="When does VBSW help?",
            columns=columns,
            rows=tuple(lines),
            notes=tuple(notes),
            claims=(claims,) if claims else (),
        )

    def tiny(self) -> Self:
        """Use one data set and two splits."""
        return self.replace(splits=2, samples=150, sets=1, epochs=2)


def _projected(features: Tensor, fit: Tensor, images: bool) -> Tensor:
    if not images:
        return torch.cat(standardize(features[fit], features))[len(fit) :]
    centered = features - features[fit].mean(0)
    directions = torch.linalg.svd(centered[fit], full_matrices=False).Vh[:COMPONENTS]
    reduced: Tensor = centered @ directions.T
    return reduced / reduced[fit].std()


def _weights(features: Tensor, target: Tensor, classes: bool, ks: Sequence[int]) -> Tensor:
    """Return the weights of every setting, plain and density-corrected: (2, settings, samples)."""
    by_k = VarianceByK(
        features, target, max(ks), task="classification" if classes else "regression"
    )
    density = kernel_log_density(features)
    kinds = ([by_k(k) for k in ks], [density_corrected(by_k(k), density) for k in ks])
    rows = [scale_weights(found, m) for kind in kinds for found in kind for m in MAX_WEIGHTS]
    return torch.stack(rows).view(2, -1, len(features))


def _linear(
    rows: Tensor,
    target: Tensor,
    fit: Tensor,
    held: Tensor,
    weights: Tensor,
    outputs: int,
    classes: bool,
) -> Tensor:
    """Return the errors of the held-out samples for every row of weights, at the optimum."""
    kind: Any = "softmax" if classes else "squares"
    heads = solve_heads(
        kind,
        rows[fit],
        target[fit],
        weights,
        outputs=outputs if classes else None,
        l2=1e-4 if classes else 1e-8,
    )
    found = heads.outputs(rows[held])
    if classes:
        return (found.argmax(2) != target[held]).double()
    return (found - target[held]).square().mean(2)


def _count(lines: Sequence[tuple[Any, ...]], model: str, place: int) -> str:
    verdicts = [line[place] for line in lines if line[0] == model]
    return (
        f"helps on {verdicts.count('helps')}, hurts on {verdicts.count('hurts')} of "
        f"{len(verdicts)} data sets."
    )


def _record(chosen: Tensor, judged: Tensor, settings: int) -> dict[str, float]:
    arms = ("weighted", "density", "permuted", "permuted density")
    best = {}
    for place, arm in enumerate(arms):
        own = slice(1 + place * settings, 1 + (place + 1) * settings)
        best[arm] = float(judged[own][chosen[own].argmin()])
    return {"uniform": float(judged[0]), **best}


def _change(found: Sequence[Record], arm: str) -> tuple[float, float, float]:
    uniform = [record["uniform"] for record in found]
    test = paired([record[arm] for record in found], uniform, overlap=OVERLAP)
    scale = 100 / max(sum(uniform) / len(uniform), 1e-300)
    return scale * test.difference, scale * test.interval.low, scale * test.interval.high


def _verdict(difference: float, p_value: float) -> str:
    if p_value >= 0.05:
        return "no difference"
    return "helps" if difference < 0 else "hurts"
