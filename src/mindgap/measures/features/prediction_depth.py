"""From which layer on the neighbors of a sample agree with the network."""

import torch
from torch import Tensor
from torch.nn import functional

from mindgap.core import Bar, Estimate, Line, Measure, Series, Subject, grouped_jackknife, option
from mindgap.ops.evidence.passes import affordable, limited, some_places
from mindgap.ops.features.layers import entering, layers_of

SAMPLES, NUMBERS = 1000, 2**25  # samples, and samples times features of one layer
ALTOGETHER = 2**28  # samples times features of all layers
ROWS = 512


class PredictionDepth(Measure):
    r"""Layer from which on the nearest training samples vote as the network does, mean over samples.

    Formula: $\frac{1}{n} \sum_{i} \min\left\{ l : \hat y_{kNN}^{(m)}(x_i) = \hat y(x_i) \;\text{for
    all}\; m \ge l \right\}$

    Reading: Easy samples have depth 0: their neighbors among the inputs already agree. A sample of
    the largest depth, one more than there are layers, is decided by the network against all of its
    neighbors. Depth is larger for samples that are hard, mislabeled or memorized.

    Assumes: A classification. Layer l is what enters the l-th linear or convolutional layer, counted
    from 0, and the outputs come last. The sample itself is not its neighbor. Distances are
    Euclidean, among up to 1,000 samples, fewer of a large model.

    >>> x = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    >>> net = torch.nn.Linear(1, 2)
    >>> with torch.no_grad():
    ...     _ = net.weight.copy_(torch.tensor([[-1.0], [1.0]]))
    ...     _ = net.bias.copy_(torch.tensor([2.0, -2.0]))
    >>> data = x, torch.tensor([0, 0, 0, 1, 1, 1])
    >>> float(PredictionDepth(k=2)(Subject(net, "cross_entropy", data)))
    0.0
    """

    method = ("E10",)
    cites = ("baldock2021deep",)
    direction = "lower"
    needs = frozenset({"classification"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling"}
    )
    cost = "moderate"

    k: int = option(30, help="neighbors that vote; fewer for small data", low=1)
    work: float = limited()

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean depth, its distribution, and the accuracy of the votes by layer."""
        layers = layers_of(subject)
        fitting = min(NUMBERS // max(layers.sizes), ALTOGETHER // sum(layers.sizes))
        most = affordable(subject, min(SAMPLES, max(100, fitting)), fewest=100, work=self.work)
        places = some_places(subject, "train", most)
        labels = subject.targets("train").cpu()[places]
        predicted = subject.predictions("train").cpu()[places]
        k = min(self.k, max(1, len(labels) // 4))
        parts = entering(subject, subject.train.subset(places), layers.names)
        votes = torch.stack([_votes(features, labels, k) for features in parts])
        depth = _depth(votes == predicted)
        accuracy = (votes == labels).double().mean(1).tolist()
        names = [*layers.names, "outputs"]
        return Estimate(
            value=float(depth.mean()),
            status="estimate",
            standard_error=grouped_jackknife(lambda kept: float(depth[kept].mean()), len(depth)),
            terms={"largest": len(names), "samples": len(depth), "k": k},
            details={
                "accuracy_by_layer": dict(zip(names, accuracy, strict=True)),
                "counted": list(layers.names),
                "skipped": layers.skipped,
            },
            charts=(_histogram(depth, len(names)), _line(names, accuracy)),
        )


def _depth(agrees: Tensor) -> Tensor:
    """Return the first layer from which on all votes agree; one past the last if that disagrees."""
    onwards = agrees.flip(0).long().cumprod(0)
    return (len(agrees) - onwards.sum(0)).double()


def _votes(features: Tensor, labels: Tensor, k: int) -> Tensor:
    """Return the class that most of the k nearest other samples have; of equals the lowest."""
    values = features.detach().cpu().double()
    values = values - values.mean(0)  # the expansion of squares loses digits far from the origin
    norms = values.square().sum(1)
    classes = functional.one_hot(labels).double()
    found = list[Tensor]()
    for rows in torch.arange(len(values)).split(ROWS):
        away = norms - 2 * values[rows] @ values.T
        away[torch.arange(len(rows)), rows] = torch.inf
        near = away.topk(k, largest=False).indices
        found.append(classes[near].sum(1).argmax(1))
    return torch.cat(found)


def _histogram(depth: Tensor, most: int) -> Bar:
    shares = torch.bincount(depth.long(), minlength=most + 1).double() / len(depth)
    return Bar.of(
        {str(place): share for place, share in enumerate(shares.tolist())},
        title="Prediction depth of the training samples",
        x_label="layer from which on neighbors agree with the network",
        y_label="share of samples",
        percent=True,
    )


def _line(names: list[str], accuracy: list[float]) -> Line:
    return Line(
        title="Accuracy of the neighbors' votes by layer",
        x_label="what enters the layer",
        y_label="share of samples whose label wins",
        x_scale="category",
        percent=True,
        series=(Series(name="votes", x=names, y=accuracy),),
    )
