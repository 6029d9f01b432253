"""Samples as rows of numbers, whatever the model takes: images, tables, sequences or tokens."""

import dataclasses
import math
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import Inputs, Subject, Which
from mindgap.ops.samples import shown_inputs

MOST = 10_000  # samples per split that diagnoses look at; more would only sharpen p-values
FEW_COLUMNS = 64  # up to here every input is a column of its own, with its own scale
COMPONENTS = 50  # principal components that describe wider inputs
POOL = 6_000  # samples from which principal components are computed
LIMIT = 6.0  # standard deviations at which a column is cut, so that no outlier rules a distance
CODES = 128  # random directions that stand for tokens, and as many for tokens at their places
CELLS = 4096  # into which pairs of place and token are hashed
FREQUENCIES = 24  # of the spectrum that describes a sequence

RowKind = Literal["image", "table", "sequence", "tokens"]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Up to :data:`MOST` samples of a split.

    Args:
        places: Their places in the split, ascending.
        values: One row of numbers per sample.
        shape: The shape of one sample, as the model takes it.
        kind: What the samples are. ``values`` of tokens are random codes, not columns.
    """

    places: Tensor
    values: Tensor
    shape: tuple[int, ...]
    kind: RowKind

    @property
    def inputs(self) -> Tensor:
        """The values in the shape of the samples; only for a single tensor of numbers."""
        return self.values.view(len(self.values), *self.shape)

    @property
    def named(self) -> bool:
        """Whether every column is an input of its own, few enough to be named."""
        return self.kind == "table" and self.values.shape[1] <= FEW_COLUMNS


def rows(subject: Subject, which: Which) -> Rows:
    """Return the samples of a split as rows, once per subject.

    Args:
        subject: With inputs of any kind.
        which: The split.

    >>> data = (torch.zeros(6, 1, 4, 4), torch.tensor([0, 1, 0, 1, 0, 1]))
    >>> found = rows(Subject(torch.nn.Flatten(), "cross_entropy", data), "train")
    >>> found.kind, tuple(found.values.shape)
    ('image', (6, 16))
    """
    return subject.cached(("rows", which), lambda: _rows(subject, which))


def _rows(subject: Subject, which: Which) -> Rows:
    split = subject.split(which)
    random = torch.Generator().manual_seed(1 if which == "train" else 2)
    places = torch.randperm(len(split), generator=random)[:MOST].sort().values
    inputs = split.take(places).inputs
    shown = shown_inputs(inputs).detach().cpu()
    kind = _kind(shown)
    if kind == "tokens":
        values = _codes(shown.flatten(1))
    else:
        values = torch.cat([part.detach().cpu().flatten(1).float() for part in _parts(inputs)], 1)
    single = values.shape[1] == shown[0].numel() and kind != "tokens"
    return Rows(places, values, tuple(shown.shape[1:]) if single else values.shape[1:], kind)


def _parts(inputs: Inputs) -> list[Tensor]:
    tensors = list(inputs.values()) if isinstance(inputs, dict) else list(inputs)
    numbers = [tensor for tensor in tensors if tensor.is_floating_point()]
    return numbers or tensors


def _kind(shown: Tensor) -> RowKind:
    whole = not shown.is_floating_point() and shown.dtype != torch.uint8
    if shown.ndim == 2 and whole and shown.numel() and int(shown.min()) >= 0:
        return "tokens"
    if shown.ndim == 4 and min(shown.shape[2:]) > 1:
        return "image"
    return "sequence" if shown.ndim == 3 and min(shown.shape[1:]) >= 1 else "table"


def _codes(tokens: Tensor) -> Tensor:
    """Return random codes whose inner products count equal tokens, and equal ones at equal places."""
    random = torch.Generator().manual_seed(0)
    table = torch.randn(2 * CELLS, CODES, generator=random) / math.sqrt(CODES)
    places = torch.arange(tokens.shape[1])
    # Odd multipliers spread pairs over the cells; a rare collision only adds noise.
    bags = (tokens * 40503 % CELLS, CELLS + (tokens * 40503 + places * 30013) % CELLS)
    scale = math.sqrt(tokens.shape[1])
    return torch.cat([_summed(table, bag) / scale for bag in bags], 1)


def _summed(table: Tensor, bag: Tensor) -> Tensor:
    return torch.nn.functional.embedding_bag(bag, table, mode="sum")


def standardized(subject: Subject) -> tuple[Tensor, Tensor]:
    """Return training and test rows, centered and scaled by the pool of both.

    Few columns get a scale each; the pixels of an image share one. A scale from the training data
    alone would make every test set look shifted.

    Args:
        subject: With test data.
    """
    return subject.cached("standardized rows", lambda: _standardized(subject))


def _standardized(subject: Subject) -> tuple[Tensor, Tensor]:
    train, test = rows(subject, "train"), rows(subject, "test")
    pool = torch.cat([train.values, test.values])
    pool = pool - pool.mean(0)
    spread = pool.std(0) if pool.shape[1] <= FEW_COLUMNS else pool.std()
    pool = (pool / torch.where(spread > 1e-12, spread, torch.ones_like(spread))).clamp(
        -LIMIT, LIMIT
    )
    return pool[: len(train.values)], pool[len(train.values) :]


def components(subject: Subject) -> tuple[Tensor, Tensor]:
    """Return the leading principal components of training and test rows, fitted on the pool.

    Args:
        subject: With test data.
    """
    return subject.cached("principal components", lambda: _components(*standardized(subject)))


def _components(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    pool = torch.cat([train, test])
    random = torch.Generator().manual_seed(0)
    part = pool[torch.randperm(len(pool), generator=random)[:POOL]]
    count = min(COMPONENTS, part.shape[1], len(part))
    basis = principal_axes(part, count, random)
    return train @ basis, test @ basis


def principal_axes(values: Tensor, count: int, random: torch.Generator) -> Tensor:
    """Compute leading right singular vectors by subspace iteration (Halko et al., 2011).

    Args:
        values: One sample per row, centered.
        count: The number of axes.
        random: Draws the starting subspace of wide inputs.

    >>> values = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    >>> principal_axes(values, 1, torch.Generator()).abs().round().flatten().tolist()
    [1.0, 0.0, 0.0]
    """
    width = values.shape[1]
    if width <= 4 * FEW_COLUMNS:
        axes: Tensor = torch.linalg.eigh(values.T @ values)[1].flip(1)
        return axes[:, :count]
    start = torch.randn(width, min(count + 10, width), generator=random)
    for _ in range(2):
        start = torch.linalg.qr(values.T @ (values @ start))[0]
    turn: Tensor = torch.linalg.svd(values @ start, full_matrices=False)[2].T
    return start @ turn[:, :count]


def spectra(inputs: Tensor) -> Tensor:
    """Describe sequences (n, steps, features) by their power at each frequency, and its spread.

    >>> waves = torch.sin(torch.arange(32) * 2 * math.pi / 8)[None, :, None]
    >>> int(spectra(waves)[0, :17].argmax())
    4
    """
    power = torch.fft.rfft(inputs - inputs.mean(1, keepdim=True), dim=1).abs().square()
    shape = torch.log1p(power)[:, :FREQUENCIES]
    return torch.cat([shape.mean(2), inputs.mean(2).std(1, keepdim=True), inputs.mean(1)], 1)
