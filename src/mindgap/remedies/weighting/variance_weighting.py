"""Variance-based sample weighting of a trained network's last layer."""

import dataclasses

import torch
from torch import Tensor, nn

from mindgap.core import (
    InputError,
    Remedy,
    Subject,
    TrainingState,
    as_loss,
    generator,
    option,
    seeded,
)
from mindgap.ops.convex.heads import solve_heads
from mindgap.ops.convex.minibatch import LOSSES, Minibatch, is_direct, kind_of, train_head
from mindgap.ops.models.head import find_head, head_features, layer_of
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.ops.variance.weights import permuted

State = tuple[Tensor, Tensor | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrainedHead:
    """A model whose head was retrained, and what it was trained on.

    Args:
        model: The model, with its new head.
        head: The name of the layer that was retrained.
        weights: The weights of the training samples, in their order.
        features: The inputs of the head, one row per training sample.
        gradient_norm: The largest entry of the gradient that the exact solver left; None if the
            head was trained in small batches.
        converged: Whether the exact solver reached its tolerance; None in small batches.
    """

    model: nn.Module
    head: str
    weights: Tensor
    features: Tensor
    gradient_norm: float | None = None
    converged: bool | None = None


class VarianceWeighting(Remedy):
    r"""Retrains the last layer with samples weighted by the variance of the labels around them.

    Formula: $w_i = 1 + (m - 1) \frac{v_i}{\max_j v_j}, \qquad v_i = \frac{1}{k-1} \sum_{j \in
    S_k(i)} \lVert y_j - \bar y_i \rVert^2$

    Reading: The network is trained as usual. Then the neighbors S of each sample are searched among
    the features that enter the last layer, and only that layer is retrained. A large m gives weight
    to samples near a boundary or a steep slope, and just as much to wrong labels;
    ``noise="drop"`` leaves samples out that disagree with all around them. Compare with the same
    head retrained without weights (``control="uniform"``) and with the same weights on other
    samples (``control="permuted"``), not with the network before: to bring the head to its optimum
    changes the error by itself. m = 1 weights all samples equally, 0 leaves the network as it is.

    Assumes: A linear layer makes the model's output. The exact solver needs cross entropy, binary
    cross entropy or the squared error; other losses need ``solver="minibatch"``.

    >>> from mindgap import data, nets
    >>> digits = data.digits().subset(200, seed=0)
    >>> subject = Subject(nets.MLP((64, 16, 10)), "cross_entropy", digits.train)
    >>> before = subject.mean_error()
    >>> found = VarianceWeighting(max_weight=8, k=10).retrain(subject)
    >>> found.head, subject.mean_error() < before
    ('3', True)
    """

    method = ("V7",)
    cites = ("novello2020variance",)
    strength = "max_weight"
    treats = frozenset({"hard samples"})
    needs = frozenset({"training data"})
    cost = 1.5

    max_weight: float = option(
        40.0, help="largest weight m of a sample, at least 1; 0 is off", low=0
    )
    k: int = option(
        20, help="neighbors whose label variance is taken, including the sample itself", low=2
    )
    solver: str = option(
        "exact",
        help="solve for the exact optimum, or train in small batches",
        choices=("exact", "minibatch"),
    )
    control: str = option(
        "none",
        help="replace the weights by those of a control",
        choices=("none", "uniform", "permuted"),
    )
    normalize: str = option(
        "none", help="divide the weights by their mean", choices=("none", "mean")
    )
    noise: str = option(
        "keep",
        help="what to do with samples whose label no neighbor shares",
        choices=("keep", "cap", "drop"),
    )
    standardize: bool = option(
        False, help="divide each feature by its standard deviation before the neighbor search"
    )
    l2: float = option(
        1e-6, help="penalty λ/2 ‖W‖² on the head; above 0 if classes are separable", low=0
    )
    epochs: int = option(25, help="epochs of the minibatch solver", low=1)
    learning_rate: float = option(
        1e-3, help="learning rate of Adam in the minibatch solver", above=0
    )
    batch_size: int = option(25, help="batch size of the minibatch solver", low=1)
    start: str = option(
        "trained", help="head that the minibatch solver starts from", choices=("trained", "fresh")
    )
    head: str = option(
        "", help="dotted name of the last linear layer; found automatically if empty"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.max_weight < 1:
            raise InputError(
                f"max_weight must be 0 (off) or at least 1, got {self.max_weight}. Use 1 for no "
                "weights."
            )

    def finish(self, state: TrainingState) -> nn.Module:
        """Replace the trained head by the weighted one."""
        if state.subject is None:
            raise InputError(
                "Variance weighting must see the training data at the end, got a training loop "
                "that does not hand them over. Train with mindgap.fit, or call "
                "mindgap.jobs.head.choose on the trained model."
            )
        return self.retrain(state.subject(state.model), state.seed).model

    def retrain(self, subject: Subject, seed: int = 0) -> RetrainedHead:
        """Retrain the head of the subject's model, in place.

        Args:
            subject: The trained model with its training data.
            seed: For the control ``"permuted"`` and for small batches.
        """
        name = find_head(subject, self.head)
        features = head_features(subject, "train", name)
        weights = self.sample_weights(features, subject, seed)
        solve = self._exact if self.solver == "exact" else self._minibatch
        (weight, bias), gradient_norm, converged = solve(subject, name, features, weights, seed)
        _write(layer_of(subject.model, name), weight, bias)
        return RetrainedHead(
            model=subject.model,
            head=name,
            weights=weights,
            features=features,
            gradient_norm=gradient_norm,
            converged=converged,
        )

    def sample_weights(self, features: Tensor, subject: Subject, seed: int = 0) -> Tensor:
        """Return the weights of the training samples, or those of the control.

        Args:
            features: The inputs of the head, one row per training sample.
            subject: Gives the labels and the task.
            seed: For the control ``"permuted"``.
        """
        if self.control == "uniform":
            return torch.ones(len(features), dtype=torch.float64)
        model = VarianceWeights(
            self.k,
            self.max_weight,
            normalize="mean" if self.normalize == "mean" else None,
            noise=self.noise,  # type: ignore[arg-type]
            standardize=self.standardize,
            task=subject.task,
        )
        weights = torch.from_numpy(model.fit(features, subject.targets("train")).weights_)
        return permuted(weights, generator(seed)) if self.control == "permuted" else weights

    def _exact(
        self, subject: Subject, name: str, features: Tensor, weights: Tensor, _: int
    ) -> tuple[State, float | None, bool | None]:
        layer, kind = layer_of(subject.model, name), kind_of(subject, features, name)
        found = solve_heads(
            kind,
            features,
            subject.targets("train"),
            weights,
            outputs=layer.out_features,
            l2=self.l2,
            bias=layer.bias is not None,
            start=(layer.weight, layer.bias),
        )
        state = found.weight[0], None if found.bias is None else found.bias[0]
        return state, float(found.gradient_norm[0]), bool(found.converged[0])

    def _minibatch(
        self, subject: Subject, name: str, features: Tensor, weights: Tensor, seed: int
    ) -> tuple[State, float | None, bool | None]:
        layer = layer_of(subject.model, name)
        direct = is_direct(subject, features, name)
        loss = subject.loss if direct else as_loss(LOSSES[kind_of(subject, features, name)])
        if self.start == "fresh":
            with seeded(seed):
                layer = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None).to(
                    layer.weight
                )
        settings = Minibatch(self.epochs, self.learning_rate, self.batch_size, self.l2)
        start = layer.weight, layer.bias
        return (
            train_head(features, subject.targets("train"), weights, loss, start, settings, seed),
            None,
            None,
        )


@torch.no_grad()
def _write(layer: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    layer.weight.copy_(weight)
    if bias is not None:
        layer.bias.copy_(bias)
