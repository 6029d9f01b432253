"""A guaranteed upper bound of the norm of a convolution, from its Fourier transform.

With zeros around its input, a convolution is a part of a circular one on a grid of n + k − 1
points, which the Fourier transform splits into one small matrix per frequency. A stride of s keeps
every s-th output: s frequencies then share one output frequency, and their matrices, side by side
and divided by √s, are one matrix (the polyphase form). A part of a map has no larger norm than the
map.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

# Double precision leaves relative errors of about 1e-13 here; the rest is reserve.
MARGIN = 1 + 1e-9


def convolution_bound(
    weight: Tensor,
    sizes: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    *,
    groups: int = 1,
    circular: bool = False,
) -> float:
    r"""Bound the operator norm of a convolution from above.

    Formula: $\max_\omega \lVert [\hat K(\omega_1), \ldots, \hat K(\omega_s)] \rVert_2 / \sqrt{s}$

    Args:
        weight: Of shape (outputs, inputs per group, *kernel).
        sizes: Height, width … of the input.
        stride: One number per dimension.
        dilation: One number per dimension.
        groups: Independent groups of channels; the largest norm counts.
        circular: Whether the input is taken to be periodic, and every stride divides its size. The
            bound then is the norm itself.

    >>> mean = torch.full((1, 1, 3), 1 / 3)
    >>> round(convolution_bound(mean, (8,), (1,), (1,)), 6)
    1.0
    """
    spans = [step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True)]
    reach = [size + (0 if circular else span) for size, span in zip(sizes, spans, strict=True)]
    grid = [step * math.ceil(size / step) for step, size in zip(stride, reach, strict=True)]
    waves = [
        _waves(points, step, size, gap)
        for points, step, size, gap in zip(grid, stride, weight.shape[2:], dilation, strict=True)
    ]
    kernels = weight.detach().double().cpu().chunk(groups)
    largest = max(_largest(part) for kernel in kernels for part in _matrices(kernel, waves))
    return MARGIN * math.sqrt(max(largest, 0.0))


def _waves(points: int, step: int, size: int, gap: int) -> Tensor:
    """The waves at the kernel's places, of shape (output frequencies, step, size)."""
    places = torch.arange(size, dtype=torch.double) * gap
    frequencies = torch.arange(points, dtype=torch.double).view(step, points // step).T
    angles = (frequencies[..., None] * places) % points * (-2 * math.pi / points)
    return torch.polar(torch.ones_like(angles), angles) / math.sqrt(step)


def _matrices(kernel: Tensor, waves: list[Tensor]) -> Iterator[Tensor]:
    """Yield the matrices of all frequencies, in portions of one frequency of the first dimension."""
    first, *others = waves
    # Opposite frequencies have conjugate matrices, so that half of them is enough.
    for row in first[: len(first) // 2 + 1]:
        # (outputs, inputs, k1, k2 …) → (outputs, inputs, k2 …, s1) → (outputs, inputs, s1, f2, s2 …)
        found = torch.tensordot(kernel.to(row), row, dims=([2], [1]))
        for wave in others:
            found = torch.tensordot(found, wave, dims=([2], [2]))
        yield _gathered(found, len(others))


def _gathered(found: Tensor, others: int) -> Tensor:
    """Bring (outputs, inputs, s1, f2, s2 …) into the form (frequencies, outputs, inputs · strides)."""
    places = [3 + 2 * number for number in range(others)]
    rest = [place for place in range(2, found.ndim) if place not in places]
    moved = found.permute(*places, 0, 1, *rest)
    outputs = found.shape[0]
    return moved.reshape(math.prod(found.shape[place] for place in places), outputs, -1)


def _largest(matrices: Tensor) -> float:
    """Return the largest squared singular value in a batch."""
    wide = matrices.shape[1] <= matrices.shape[2]
    gram = matrices @ matrices.mH if wide else matrices.mH @ matrices
    return float(torch.linalg.eigvalsh(gram)[..., -1].max())
