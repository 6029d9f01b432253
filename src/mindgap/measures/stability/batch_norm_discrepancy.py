"""How far batch normalization's two modes are apart on the same samples."""

import contextlib

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from mindgap.core import Estimate, Line, Mark, Measure, Series, Subject, Undefined, evaluating
from mindgap.ops.evidence.passes import affordable, limited, some_places, unlike
from mindgap.ops.initialization.propagation import batch_statistics

SAMPLES, FEWEST = 512, 32  # of the training data
SIZES = (2, 4, 8, 16, 32, 64, 128, 256)  # of smaller batches, for the figure


class BatchNormDiscrepancy(Measure):
    r"""Distance of the outputs with a batch's own statistics from those with the stored ones.

    Formula: $\sqrt{\frac{\sum_i \| f_B(x_i) - f(x_i) \|^2}{\sum_i \| f(x_i) - \bar f \|^2}}$

    Reading: In training, batch normalization uses the statistics of the batch; in evaluation a
    running average. Zero means that both agree, or that the model has no such layer. The value
    takes up to 512 samples as one batch, so what remains is how far the stored statistics are off.
    The figure takes smaller batches, as training does: there the statistics themselves are noise.

    Assumes: Dropout is off in both passes, so that batch normalization alone makes the difference.

    >>> x = torch.arange(8.0)[:, None]
    >>> net = torch.nn.BatchNorm1d(1)
    >>> print(f"{float(BatchNormDiscrepancy()(Subject(net, 'mse', (x, x)))):.3f}")
    1.628
    """

    method = ("S3",)
    cites = ("ioffe2015batch",)
    direction = "lower"
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )

    work: float = limited()

    def compute(self, subject: Subject) -> Estimate | float:
        """Return the distance, losses and predictions in both modes, and the figure."""
        layers = [part for part in subject.model.modules() if isinstance(part, _BatchNorm)]
        if not any(part.running_var is not None for part in layers):
            return Estimate(value=0.0, details={"layers": 0})
        most = affordable(subject, SAMPLES, passes=len(SIZES) + 2, fewest=FEWEST, work=self.work)
        places = some_places(subject, "train", most)
        if len(places) < 2:
            raise Undefined("needs two samples, whose statistics a layer can take")
        stored, own = _outputs(subject, places, None), _outputs(subject, places, len(places))
        targets = subject.targets("train")[places.to(stored.device)]
        losses = [float(subject.loss(each, targets).double().mean()) for each in (stored, own)]
        changed = float(unlike(subject, stored, own).double().mean())
        sizes = [size for size in SIZES if size < len(places)]
        curve = [_distance(stored, _outputs(subject, places, size)) for size in sizes]
        value = _distance(stored, own)
        return Estimate(
            value=value,
            terms={"loss": losses[0], "loss_with_batch_statistics": losses[1], "changed": changed},
            details={"layers": len(layers)},
            charts=(_chart([*sizes, len(places)], [*curve, value], subject),),
        )


def _outputs(subject: Subject, places: Tensor, size: int | None) -> Tensor:
    """Return the outputs with stored statistics, or with those of batches of a size."""
    own = contextlib.nullcontext() if size is None else batch_statistics(subject.model)
    with evaluating(subject.model), own:
        groups = list(places.split(size or SAMPLES))
        if size is not None and len(groups) > 1 and len(groups[-1]) < size:
            groups[-2:] = [torch.cat(groups[-2:])]  # a rest would be a batch of another kind
        found = [subject.checked_forward(subject.train.take(group).inputs) for group in groups]
    return torch.cat(found).double()


def _distance(stored: Tensor, own: Tensor) -> float:
    spread = float((stored - stored.mean(0)).square().sum())
    if not spread:
        raise Undefined("needs outputs that differ between samples")
    return float(((own - stored).square().sum() / spread).sqrt())


def _chart(sizes: list[int], values: list[float], subject: Subject) -> Line:
    used = subject.recipe.batch_size if subject.recipe is not None else None
    return Line(
        title="Outputs with batch statistics against stored ones",
        x_label="batch size",
        y_label="distance, in standard deviations of the outputs",
        x_scale="log",
        y_scale="log" if min(values) > 0 else "",
        series=(Series(name="distance", x=sizes, y=values),),
        marks=() if used is None else (Mark(name="batch size of the training", x=used),),
    )
