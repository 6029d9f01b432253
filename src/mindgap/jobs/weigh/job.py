"""weigh: weigh samples by the variance of the labels around them."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mindgap.core import validated, write_whole
from mindgap.jobs.weigh.samples import Given, as_given, look_at, read_arrays, searched_in, tensors
from mindgap.ops.neighbors.points import Metric
from mindgap.ops.variance.estimator import Noise, VarianceWeights
from mindgap.ops.variance.heaviest import Weighed
from mindgap.ops.variance.heaviest import weigh as weigh_samples
from mindgap.ops.variance.weights import Normalize

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

    def to_dict(self, heaviest: int = 10) -> dict[str, Any]:
        """Return counts, quantiles of the weights and the heaviest samples as plain data.

        Args:
            heaviest: Number of heaviest samples to list.
        """
        weights = self.weights.numpy()
        order = np.argsort(-weights, kind="stable")[:heaviest]
        told = self.weigher.noise != "keep"
        return {
            "samples": len(weights),
            "mean": float(weights.mean()),
            "quantiles": {str(q): float(np.quantile(weights, q)) for q in QUANTILES},
            "suspects": int(self.suspects.sum()) if told else None,
            "method": self.weighed.method,
            "recall": float(self.weighed.recall),
            "heaviest": [
                {
                    "index": int(i),
                    "label": self.given.labels[i].tolist(),
                    "weight": float(weights[i]),
                }
                for i in order
            ],
        }

    def text(self, heaviest: int = 10) -> str:
        """Write a summary and a table of the heaviest samples.

        Args:
            heaviest: Number of heaviest samples to list.
        """
        facts = self.to_dict(heaviest)
        quantiles = ", ".join(
            f"{100 * float(q):.0f} % at most {value:.4g}" for q, value in facts["quantiles"].items()
        )
        found = "exact" if facts["recall"] == 1 else f"approximate, recall {facts['recall']:.3f}"
        lines = [
            f"{facts['samples']:,} samples, mean weight {facts['mean']:.4g}: {quantiles}",
            f"neighbors: {found}",
        ]
        if facts["suspects"] is not None:
            lines.append(f"{facts['suspects']:,} samples look as if their label were wrong")
        rows = [
            f"  {row['index']:>8}  {row['weight']:>8.4g}  {row['label']}"
            for row in facts["heaviest"]
        ]
        return "\n".join([*lines, "", f"  {'sample':>8}  {'weight':>8}  label", *rows])

    def __str__(self) -> str:
        return self.text()

    def save(self, path: str | os.PathLike[str], saved: str = "") -> Path:
        """Write a page with the heaviest samples if the path ends in .html, else weights as .npy.

        Args:
            path: The file to write.
            saved: Path of the saved weights, which the page mentions.
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
        return weights_page(look_at(self.given, self.weigher, self.weighed), told, path)


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
