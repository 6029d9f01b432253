"""Losses at many points of weight space, all from one pass over the data."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mindgap.core import Batch, InputError, Progress, call, choice, evaluating, implements, values
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.landscape.chain import Moving
from mindgap.ops.models.parameters import vmap_or_loop

BatchNorm = Literal["running", "recomputed"]
BATCH_NORM: tuple[BatchNorm, ...] = ("running", "recomputed")
_IMAGES = 128  # samples per chunk, if they are images: their maps stay in the cache
_STACKED = 2**22  # numbers in the weights and results of all points that share a call
_WIDTH = 64  # results per sample that a small dense network is taken to have


@implements("E3", cites=("li2018visualizing",))
def losses_at(
    flat: FlatLoss,
    directions: Tensor,
    coordinates: Tensor,
    *,
    center: Tensor | None = None,
    batch_norm: BatchNorm = "running",
    progress: bool = False,
) -> Tensor:
    r"""Compute the mean loss at ``center + coordinates @ directions``, one point per row.

    Formula: $L(w + \sum_k a_k d_k) = \frac{1}{n} \sum_i \ell(f_{w + \sum_k a_k d_k}(x_i), y_i)$

    Reading: The data are read once, in chunks, and every chunk meets all points. Small dense
    networks see many points per call, with stacked weights. Networks that begin with a linear layer
    or a convolution answer its part of the work once per direction instead of once per point.

    Assumes: A model whose outputs depend on the weights and the sample alone.

    Args:
        flat: The loss; its model stays as it is.
        directions: One direction per row, in the order of ``flat.point``.
        coordinates: One point per row, one factor per direction.
        center: Weights at coordinates zero; the model's own if None.
        batch_norm: ``"running"`` keeps the running statistics of batch normalization as they are;
            ``"recomputed"`` averages them anew at each point over the batches of the data, as
            ``torch.optim.swa_utils.update_bn`` does.
        progress: Whether to show a progress bar.

    Returns:
        One loss per point, in double precision.

    >>> from mindgap.core import Subject
    >>> subject = Subject(nn.Linear(1, 1, bias=False), "mse", (torch.ones(2, 1), torch.zeros(2, 1)))
    >>> flat, along = FlatLoss(subject), torch.ones(1, 1)
    >>> losses_at(flat, along, torch.tensor([[0.0], [2.0]]), center=torch.ones(1)).tolist()
    [1.0, 9.0]
    """
    choice("batch_norm", batch_norm, BATCH_NORM)
    own = flat.point
    middle = own if center is None else center.to(own)
    directions, coordinates = directions.to(own), coordinates.to(own)
    _check(own, directions, coordinates)
    with evaluating(flat.model):
        if batch_norm == "recomputed" and has_batch_norm(flat.model):
            return _recomputed(flat, middle, directions, coordinates, progress)
        if _stacks(flat, len(coordinates)):
            return _stacked(flat, middle, directions, coordinates, progress)
        return _moved(flat, middle, directions, coordinates, progress)


def has_batch_norm(model: nn.Module) -> bool:
    """Tell whether a model has batch normalization with running statistics.

    >>> has_batch_norm(nn.BatchNorm1d(2)), has_batch_norm(nn.LayerNorm(2))
    (True, False)
    """
    return bool(_tracking(model))


def _renew_statistics(model: nn.Module, batches: Any) -> None:
    """Replace running statistics by their average over batches; other layers stay in their mode.

    Args:
        model: Its buffers change.
        batches: The inputs of the model, one tuple or dict per batch.

    >>> layer = nn.BatchNorm1d(1).eval()
    >>> _renew_statistics(layer, [(torch.tensor([[1.0], [3.0]]),)])
    >>> layer.running_mean, layer.running_var, layer.training
    (tensor([2.]), tensor([2.]), False)
    """
    layers = _tracking(model)
    kept = [(layer.training, layer.momentum) for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.training, layer.momentum = True, None  # None averages all batches alike
    like = next(iter(model.parameters()))
    for inputs in batches:
        call(model, inputs, like)
    for layer, (mode, momentum) in zip(layers, kept, strict=True):
        layer.training, layer.momentum = mode, momentum


def _tracking(model: nn.Module) -> list[_BatchNorm]:
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    return [layer for layer in layers if layer.track_running_stats]


def _check(own: Tensor, directions: Tensor, coordinates: Tensor) -> None:
    if directions.ndim != 2 or directions.shape[1] != len(own):
        raise InputError(
            f"directions must hold one row of {len(own)} numbers each, got the shape "
            f"{tuple(directions.shape)}. Flatten the weights in the order of the model's parameters."
        )
    if coordinates.ndim != 2 or coordinates.shape[1] != len(directions):
        raise InputError(
            f"coordinates must hold {len(directions)} numbers per point, got the shape "
            f"{tuple(coordinates.shape)}. Pass one factor per direction."
        )


def _stacks(flat: FlatLoss, points: int) -> bool:
    """Stack weights of small networks without convolutions, whose calls cost more than their work."""
    convolutions = any(hasattr(layer, "kernel_size") for layer in flat.model.modules())
    return not convolutions and points > 1 and sum(flat.sizes) * flat.samples <= _STACKED


def _stacked(
    flat: FlatLoss, center: Tensor, directions: Tensor, coordinates: Tensor, progress: bool
) -> Tensor:
    rows = min(flat.subject.batch_size, flat.samples)
    share = max(1, _STACKED // (sum(flat.sizes) + _WIDTH * rows))
    parts, total = coordinates.split(share), list[Tensor]()
    with Progress(len(coordinates), unit="point", title="landscape", shown=progress) as bar:
        for part in parts:
            weights = torch.addmm(center, part, directions)
            total.append(sum(_sums(flat, weights, batch) for batch in flat.batches()))  # type: ignore[arg-type]
            bar.advance(by=len(part))
    return torch.cat(total) / flat.samples


def _sums(flat: FlatLoss, weights: Tensor, batch: Batch) -> Tensor:
    return vmap_or_loop(lambda one: flat.losses(one, batch), weights).double().sum(1)


def _moved(
    flat: FlatLoss, center: Tensor, directions: Tensor, coordinates: Tensor, progress: bool
) -> Tensor:
    moving = _moving(flat, center, directions)
    total = torch.zeros(len(coordinates), dtype=torch.float64)
    bar = Progress(flat.samples, unit="sample", title="landscape", shown=progress)
    with bar:
        for batch in flat.batches(size=_chunk(flat)):
            moving.take(batch.inputs)
            for place, point in enumerate(coordinates):
                total[place] += _sum(flat, moving.outputs(point), batch.target)
            bar.advance(by=len(batch.target))
    return total / flat.samples


def _recomputed(
    flat: FlatLoss, center: Tensor, directions: Tensor, coordinates: Tensor, progress: bool
) -> Tensor:
    """Read the data twice per point: for the statistics of batch normalization, and for the loss."""
    moving = _moving(flat, center, directions)
    total = torch.zeros(len(coordinates), dtype=torch.float64)
    with Progress(len(coordinates), unit="point", title="landscape", shown=progress) as bar:
        for place, point in enumerate(coordinates):
            moving.move(point)
            _renew_statistics(moving.model, (batch.inputs for batch in flat.batches()))
            for batch in flat.batches():
                output = call(moving.model, batch.inputs, center)
                total[place] += _sum(flat, output, batch.target)
            bar.advance()
    return total / flat.samples


def _sum(flat: FlatLoss, outputs: Tensor, target: Tensor) -> float:
    return float(flat.subject.loss(outputs, target).sum(dtype=torch.float64))


def _moving(flat: FlatLoss, center: Tensor, directions: Tensor) -> Moving:
    shapes = {name: weight.shape for name, weight in flat.named.items()}
    return Moving(flat.model, shapes, center, directions)


def _chunk(flat: FlatLoss) -> int:
    """Samples per chunk."""
    first = values(next(flat.batches(size=1)).inputs)[0]
    size = flat.subject.batch_size
    return min(size, _IMAGES) if first.ndim == 4 else size


def surface(flat: FlatLoss, directions: Tensor, x: Tensor, y: Tensor, **settings: Any) -> Tensor:
    """Compute the losses on a grid of a plane: one row per y, one column per x.

    Args:
        flat: The loss.
        directions: Two directions, one per row.
        x: Places along the first direction.
        y: Places along the second.
        **settings: Those of :func:`losses_at`.

    >>> from mindgap.core import Subject
    >>> subject = Subject(nn.Linear(2, 1, bias=False), "mse", (torch.eye(2), torch.zeros(2, 1)))
    >>> axis = torch.tensor([0.0, 1.0])
    >>> surface(FlatLoss(subject), torch.eye(2), axis, axis, center=torch.zeros(2)).tolist()
    [[0.0, 0.5], [0.5, 1.0]]
    """
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    places = torch.stack([columns.flatten(), rows.flatten()], 1)
    return losses_at(flat, directions, places, **settings).view(len(y), len(x))
