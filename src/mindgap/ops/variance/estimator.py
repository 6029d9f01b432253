"""VarianceWeights: sample weights from local variance, as a scikit-learn estimator."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import WeightedRandomSampler

from mindgap.core import InputError, implements, integer, number, unknown_name
from mindgap.core.checks import check_settings
from mindgap.ops.neighbors.points import Metric, Points, as_points
from mindgap.ops.neighbors.search import MEMORY, Method, Search, check_k
from mindgap.ops.neighbors.source import read
from mindgap.ops.variance.local import LocalVariance, Task, gathered, is_classes
from mindgap.ops.variance.weights import (
    Normalize,
    Scaling,
    density_corrected,
    kernel_log_density,
    mean,
    mixture_log_density,
    neighbor_log_density,
    outliers,
    scale_weights,
    suspects,
)

Density = Literal["neighbors", "kernel", "mixture"]
Noise = Literal["keep", "mark", "cap", "drop"]
DENSITIES = (None, "neighbors", "kernel", "mixture")
NOISES = ("keep", "mark", "cap", "drop")


@implements("V4", "V5", "V6", "V10", cites=("novello2020variance",))
class VarianceWeights:
    r"""Weigh samples by the variance of the labels among their k nearest neighbors.

    Formula: $w_i = 1 + (m - 1) \frac{v_i}{\max_j v_j}, \quad v_i = \frac{1}{k-1} \sum_{j \in
    S_k(i)} \left\| y_j - \frac{1}{k} \sum_{l \in S_k(i)} y_l \right\|^2$

    Reading: A heavy sample lies where the labels change quickly: near a boundary between classes,
    on a steep slope, or among wrong labels. The weights serve as any ``sample_weight``.

    Assumes: Features in which a small distance means similar samples, and mostly correct labels.

    Args:
        k: Number of neighbors, the sample itself included, from 2 to the number of samples.
        max_weight: The largest weight m; 1 means no weighting.
        scaling: ``"max"`` as in the formula, or ``"min-max"``, which subtracts the smallest
            variance first, so that the smallest weight is always 1.
        normalize: ``"mean"`` divides by the mean weight.
        density: Divide the variance by an estimate of the density first: ``"neighbors"``,
            ``"kernel"`` or ``"mixture"``.
        winsorize: Share of the smallest and of the largest densities to pull in.
        noise: What to do with samples whose class hardly any neighbor shares, or whose value is far
            from those of its neighbors: ``"keep"`` them, only ``"mark"`` them in ``suspects_``,
            ``"cap"`` their weight at 1 or ``"drop"`` them (weight 0). With ``"cap"`` and ``"drop"``
            they do not count for the largest variance.
        noise_threshold: Share of agreeing neighbors up to which a class label is suspect.
        noise_deviations: Number of standard deviations beyond which a value is suspect.
        task: ``"auto"`` takes one column of whole numbers, booleans or names for classes and all
            else for values.
        metric: ``"euclidean"`` or ``"cosine"``.
        standardize: Divide each feature by its standard deviation.
        method: ``"auto"``, ``"exact"``, ``"tree"`` or ``"approximate"``.
        recall: Recall that an approximate search must reach on a sample of rows.
        memory: Bytes that a block of distances may take.
        progress: Show a progress bar.

    Attributes:
        weights_: One weight per sample, after ``fit``.
        variance_: The local variance of each sample.
        suspects_: Whether each label is suspect; None with ``noise="keep"``.
        method_: The method that found the neighbors.
        recall_: Its recall: 1 if exact, else measured.
        n_features_in_: Number of features.

    >>> model = VarianceWeights(k=2, max_weight=5).fit([[0.0], [1.0], [2.0], [9.0]], [0, 0, 1, 1])
    >>> model.weights_.tolist()
    [1.0, 3.0, 5.0, 1.0]
    >>> model
    VarianceWeights(k=2, max_weight=5)
    """

    def __init__(
        self,
        k: int = 20,
        max_weight: float = 40.0,
        *,
        scaling: Scaling = "max",
        normalize: Normalize | None = None,
        density: Density | None = None,
        winsorize: float = 0.05,
        noise: Noise = "keep",
        noise_threshold: float = 0.1,
        noise_deviations: float = 5.0,
        task: Task = "auto",
        metric: Metric = "euclidean",
        standardize: bool = False,
        method: Method = "auto",
        recall: float = 0.9999,
        memory: int = MEMORY,
        progress: bool = False,
    ) -> None:
        self.k, self.max_weight, self.scaling, self.normalize = k, max_weight, scaling, normalize
        self.density, self.winsorize, self.noise, self.noise_threshold = (
            density,
            winsorize,
            noise,
            noise_threshold,
        )
        self.noise_deviations = noise_deviations
        self.task, self.metric, self.standardize, self.method = task, metric, standardize, method
        self.recall, self.memory, self.progress = recall, memory, progress

    def fit(self, X: Any, y: Any = None) -> VarianceWeights:
        """Compute the weights of samples, in the order in which they come.

        Args:
            X: Table of features, ``DataLoader`` or (X, y) chunks.
            y: Labels; None if X carries them.
        """
        self._check()
        table, target, on_disk = read(X, y)
        assert target is not None
        check_k(self.k, len(table))
        classes = is_classes(target, self.task)
        points = as_points(
            table, target, metric=self.metric, standardize=self.standardize, on_disk=on_disk
        )
        search = Search(points, self.k, self.method, self.memory, self.recall)
        found = gathered(search, target, classes, self.noise != "keep", self.progress)
        self.n_features_in_, self.method_, self.recall_ = table.shape[1], found.method, found.recall
        self.variance_ = found.variance.numpy()
        self._weigh(points, found)
        return self

    def sampler(
        self, count: int | None = None, *, generator: torch.Generator | None = None
    ) -> WeightedRandomSampler:
        """Create a sampler for a ``DataLoader``, which draws samples by weight with replacement.

        Args:
            count: Number of samples per epoch; as many as there are if None.
            generator: Source of the draws.
        """
        if not hasattr(self, "weights_"):
            raise InputError(
                "Weights must be fitted before they are drawn from, got none. Call fit(X, y) first."
            )
        return WeightedRandomSampler(
            self.weights_.tolist(), count or len(self.weights_), generator=generator
        )

    def _weigh(self, points: Points, found: LocalVariance) -> None:
        variance = found.variance
        if self.density is not None:
            variance = density_corrected(variance, self._log_density(points, found), self.winsorize)
        doubtful = self._doubtful(found)
        self.suspects_ = None if doubtful is None else doubtful.numpy()
        self.weights_ = self._scaled(variance, doubtful).numpy()

    def _doubtful(self, found: LocalVariance) -> Tensor | None:
        if found.agreement is not None:
            return suspects(found.agreement, self.noise_threshold)
        return None if found.deviation is None else outliers(found.deviation, self.noise_deviations)

    def _scaled(self, variance: Tensor, doubtful: Tensor | None) -> Tensor:
        if doubtful is None or self.noise == "mark" or bool(doubtful.all()):
            return scale_weights(
                variance, self.max_weight, scaling=self.scaling, normalize=self.normalize
            )
        weights = torch.full_like(variance, 1.0 if self.noise == "cap" else 0.0)
        weights[~doubtful] = scale_weights(
            variance[~doubtful], self.max_weight, scaling=self.scaling
        )
        return weights / mean(weights) if self.normalize == "mean" else weights

    def _log_density(self, points: Points, found: LocalVariance) -> Tensor:
        if self.density == "neighbors":
            return neighbor_log_density(found.square_distance, self.k, points.rows.shape[1])
        rows = points.scaled(points.rows.double()).repeat_interleave(points.count, dim=0)
        ordered = (
            kernel_log_density(rows) if self.density == "kernel" else mixture_log_density(rows)
        )
        # The density is estimated in the points' own order, so that shuffling the samples does not
        # change its rounding.
        density = torch.empty_like(ordered)
        density[points.table.member] = ordered
        return density

    def _check(self) -> None:
        check_settings(self)
        # As in scikit-learn, arguments are checked when they are used: set_params changes them.
        number("winsorize", self.winsorize, 0, 0.5)
        number("noise_threshold", self.noise_threshold, 0, 1)
        number("noise_deviations", self.noise_deviations)
        number("recall", self.recall, 0, 1)
        integer("memory", self.memory)
        scale_weights(
            torch.zeros(1), self.max_weight, scaling=self.scaling, normalize=self.normalize
        )
        if self.density not in DENSITIES:
            raise InputError(
                f"density must be None, 'neighbors', 'kernel' or 'mixture', got {self.density!r}. "
                "Choose one."
            )
        if self.noise not in NOISES:
            raise InputError(
                f"noise must be one of {', '.join(map(repr, NOISES))}, got {self.noise!r}. Choose "
                "one."
            )

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002  (scikit-learn's signature)
        """Return the arguments of the constructor."""
        return {name: getattr(self, name) for name in _parameters()}

    def set_params(self, **parameters: Any) -> VarianceWeights:
        """Change some arguments."""
        for name, value in parameters.items():
            if name not in _parameters():
                raise InputError(str(unknown_name("parameter", name, _parameters())))
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in _parameters()}
        shown = [
            f"{name}={value!r}" for name, value in given.items() if value != _parameters()[name]
        ]
        return f"VarianceWeights({', '.join(shown)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn import utils as tools  # only scikit-learn calls this, so it is there

        return tools.Tags(
            estimator_type=None,
            target_tags=tools.TargetTags(required=True, multi_output=True),
            transformer_tags=None,
            classifier_tags=None,
            regressor_tags=None,
        )


def _parameters() -> dict[str, Any]:
    """Return the names of the arguments and their defaults."""
    found = inspect.signature(VarianceWeights.__init__).parameters
    return {name: value.default for name, value in found.items() if name != "self"}
