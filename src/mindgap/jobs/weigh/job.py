"""weigh: weigh samples by the variance of the labels around them."""

import csv
import dataclasses
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mindgap.core import validated, write_whole
from mindgap.core.chart.numbers import SPACE, number
from mindgap.jobs.weigh.samples import (
    Given,
    as_given,
    look_at,
    read_arrays,
    searched_in,
    suspects_of,
    tensors,
)
from mindgap.ops.neighbors.points import Metric
from mindgap.ops.variance.estimator import Noise, VarianceWeights
from mindgap.ops.variance.heaviest import Weighed, heaviest_places, weigh as weigh_samples
from mindgap.ops.variance.weights import Normalize

SUSPECT_COLUMNS = ("index", "label", "labels around it", "agree", "weight")
QUANTILES = (0.5, 0.9, 0.99, 1.0)  # of the weights, in the summary


@dataclasses.dataclass(frozen=True)
class Weighing:
    """Samples and their weights: what :func:`weigh` returns.

    Args:
        given: The samples.
        weigher: The settings.
        weighed: Weights, variances and suspects.
        source: Name of the file of the samples, if there is one.
    """

    given: Given
    weigher: VarianceWeights
    weighed: Weighed
    source: str = ""

    @property
    def weights(self) -> Tensor:
        """One weight per sample, for any ``sample_weight``."""
        return self.weighed.weights

    @property
    def suspects(self) -> Tensor:
        """Which samples have a label that hardly any neighbor shares."""
        return self.weighed.suspects

    def suspect_rows(self) -> list[dict[str, Any]]:
        """Return all suspects: place, label, labels around it, the share that agrees, weight."""
        return suspects_of(self.given, self.weigher, self.weighed)

    def save_suspects(self, path: str | os.PathLike[str]) -> Path:
        """Write all suspects as CSV, whole or not at all, those first whose neighbors agree most.

        Args:
            path: The file to write.
        """
        text = io.StringIO()
        writer = csv.DictWriter(text, SUSPECT_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.suspect_rows())
        return write_whole(path, text.getvalue())

    def to_dict(self, heaviest: int = 10) -> dict[str, Any]:
        """Return counts, quantiles of the weights, heaviest samples and suspects as plain data.

        Args:
            heaviest: Number of heaviest samples to list.
        """
        weights = self.weights.numpy()
        return {
            "samples": len(weights),
            "mean": float(weights.mean()),
            "quantiles": {str(q): float(np.quantile(weights, q)) for q in QUANTILES},
            "suspects": int(self.suspects.sum()),
            "method": self.weighed.method,
            "recall": float(self.weighed.recall),
            "heaviest": [
                {"index": i, "label": self.given.labels[i].tolist(), "weight": float(weights[i])}
                for i in heaviest_places(self.weighed, heaviest).tolist()
            ],
            "suspect_samples": self.suspect_rows(),
        }

    def text(self, heaviest: int = 10) -> str:
        """Write the verdict and the heaviest samples, as the page shows them.

        Args:
            heaviest: Number of heaviest samples to list.
        """
        from mindgap.report import text as terminal
        from mindgap.report.pages.weights import judge_weights

        found, room = (
            look_at(self.given, self.weigher, self.weighed, heaviest),
            terminal.room_of(None),
        )
        weights = self.weights.numpy()
        quantiles = ", ".join(
            f"{100 * q:.0f} % at most {number(float(np.quantile(weights, q)))}" for q in QUANTILES
        )
        exact = self.weighed.recall == 1
        how = "exact" if exact else f"approximate, recall {self.weighed.recall:.3f}"
        rows = [
            (str(row.index), number(row.weight, 3), row.target, row.around.replace(SPACE, " "))
            for row in found.heaviest
        ]
        blocks = [
            terminal.verdict(judge_weights(found), room),
            [f"Weights: {quantiles}.", f"Neighbors: {how}."],
            terminal.table(("no.", "weight", "label", "labels around it"), rows, room),
        ]
        return "\n\n".join("\n".join(block) for block in blocks if block).replace("``", "`")

    def __str__(self) -> str:
        return self.text()

    def save(self, path: str | os.PathLike[str], saved: str = "", heaviest: int = 10) -> Path:
        """Write a page with the heaviest samples if the path ends in .html, else weights as .npy.

        Args:
            path: The file to write.
            saved: Path of the saved weights, which the page mentions.
            heaviest: Number of heaviest samples that the page shows.
        """
        if Path(path).suffix.lower() not in (".html", ".htm"):
            return write_whole(path, lambda file: np.save(file, self.weights.numpy()))
        from mindgap.report.pages.weights import Told, weights_page

        told = Told(
            source=self.source,
            features=searched_in(self.given),
            settings=self.weigher.get_params(),
            method=self.weighed.method,
            recall=self.weighed.recall,
            saved=saved,
        )
        found = look_at(self.given, self.weigher, self.weighed, heaviest)
        return weights_page(found, told, path)


@validated
def weigh(
    data: Any,
    labels: Any = None,
    *,
    k: int = 20,
    max_weight: float = 40.0,
    normalize: Normalize | None = None,
    standardize: bool = False,
    metric: Metric = "euclidean",
    noise: Noise = "keep",
    progress: bool = False,
) -> Weighing:
    """Weigh samples by the variance of the labels among their nearest neighbors.

    Args:
        data: One row per sample, or the path of an .npz file with the features as x (or X, inputs,
            data, features) and the labels as y (or targets, labels, target). With both x and
            features, neighbors are searched in features and a page shows x, or texts if there are.
        labels: One class or value per sample; a file brings its own.
        k: Number of neighbors, the sample itself included.
        max_weight: The largest weight.
        normalize: ``"mean"`` divides by the mean weight.
        standardize: Whether to divide each feature by its standard deviation first.
        metric: ``"euclidean"`` or ``"cosine"``.
        noise: What to do with samples whose label hardly any neighbor shares: ``"keep"``, ``"cap"``
            their weight at 1, or ``"drop"`` them (weight 0).
        progress: Whether to show a progress bar.

    >>> found = weigh([[0.0], [1.0], [2.0], [9.0]], [0, 0, 1, 1], k=2, max_weight=5)
    >>> found.weights.tolist()
    [1.0, 3.0, 5.0, 1.0]
    >>> found.to_dict(heaviest=1)["heaviest"]
    [{'index': 2, 'label': 1, 'weight': 5.0}]
    """
    from_file = isinstance(data, str | os.PathLike)
    given = read_arrays(data) if from_file else as_given(data, labels)
    weigher = VarianceWeights(
        k=k,
        max_weight=max_weight,
        normalize=normalize,
        standardize=standardize,
        metric=metric,
        noise=noise,
        progress=progress,
    )
    weighed = weigh_samples(weigher, *tensors(given))
    return Weighing(given, weigher, weighed, Path(data).name if from_file else "")
