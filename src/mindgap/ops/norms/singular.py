"""The largest singular value of a linear map, and an upper bound of it for convolutions.

The value comes from the whole matrix or by Lanczos iteration, which approaches it from below. The
bound comes from the Fourier transform. With zeros around its input, a convolution is a part of a
circular one on a grid of n + k − 1 points, which the transform splits into one small matrix per
frequency. A stride of s keeps every s-th output: s frequencies then share one output frequency, and
their matrices, side by side and divided by √s, are one matrix (the polyphase form). A part of a map
has no larger norm than the map.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from mindgap.core import generator

Map = Callable[[Tensor], Tensor]
TOLERANCE = 1e-5  # of the relative residual of the eigenvalue σ²; the error of σ is half as large
STEPS = 400
WHOLE = 512  # rows or columns up to which the whole matrix is decomposed
ENTRIES = 2**24
# Double precision leaves relative errors of about 1e-13 here; the rest is reserve.
MARGIN = 1 + 1e-9


@dataclasses.dataclass(frozen=True)
class Singular:
    """A singular value and how well it satisfies its equation.

    Args:
        value: σ.
        residual: ‖AᵀAv − σ²v‖ / σ² for a unit vector v: some singular value of A is at most
            σ · residual away. Zero if A is.
        whole: Whether the whole matrix was decomposed, so that no singular value can be larger.
    """

    value: float
    residual: float
    whole: bool = False


def of_map(
    forward: Map, shape: tuple[int, ...], *, tolerance: float = TOLERANCE, steps: int = STEPS
) -> Singular:
    """Compute the largest singular value of a linear map in double precision.

    A map with few inputs or outputs is written out as a matrix. Others are known by what they do:
    Lanczos iteration on AᵀA approaches σ from below, so that its answer is no upper bound.

    Args:
        forward: Takes inputs of shape (batch, *shape), is linear, and can be differentiated.
        shape: The shape of one input.
        tolerance: The relative residual at which the iteration ends.
        steps: The largest number of steps.

    >>> matrix = torch.tensor([[3.0, 0.0], [0.0, -5.0]], dtype=torch.double)
    >>> of_map(lambda rows: rows @ matrix.T, (2,)).value
    5.0
    """
    start = torch.zeros(1, *shape, dtype=torch.double, requires_grad=True)
    with torch.enable_grad():
        end = forward(start)
    inputs, outputs = start.numel(), end.numel()
    if min(inputs, outputs) <= WHOLE and inputs * outputs <= ENTRIES:
        return of_matrix(_matrix(forward, shape, start, end))

    def gram(vector: Tensor) -> Tensor:
        with torch.no_grad():
            image = forward(vector.view(1, *shape))
        # The map is linear, so that one graph, made once, serves all vectors.
        (back,) = torch.autograd.grad(end, start, image, retain_graph=True)
        return back.flatten()

    value, residual = _lanczos(gram, inputs, tolerance, steps)
    return Singular(math.sqrt(max(value, 0.0)), residual)


def of_matrix(matrix: Tensor) -> Singular:
    """Compute the largest singular value from the Gram matrix of the shorter side.

    >>> of_matrix(torch.eye(3, 2, dtype=torch.double)).value
    1.0
    """
    matrix = matrix.detach().double().cpu()
    gram = matrix @ matrix.T if len(matrix) < matrix.shape[1] else matrix.T @ matrix
    if len(gram) > 2 * WHOLE:
        found = _lanczos(lambda vector: gram @ vector, len(gram), TOLERANCE, STEPS)
        return Singular(math.sqrt(max(found[0], 0.0)), found[1])
    values, vectors = torch.linalg.eigh(gram)
    value, vector = float(values[-1]), vectors[:, -1]
    rest = float((gram @ vector - value * vector).norm())
    return Singular(math.sqrt(max(value, 0.0)), rest / value if value > 0 else 0.0, whole=True)


def _matrix(forward: Map, shape: tuple[int, ...], start: Tensor, end: Tensor) -> Tensor:
    """Write the map out: a column per input, or a row per output where these are fewer."""
    if start.numel() <= end.numel():
        with torch.no_grad():
            units = torch.eye(start.numel(), dtype=torch.double).view(-1, *shape)
            return forward(units).flatten(1)
    units = torch.eye(end.numel(), dtype=torch.double).view(-1, *end.shape)
    (rows,) = torch.autograd.grad(end, start, units, retain_graph=True, is_grads_batched=True)
    return rows.flatten(1)


def _lanczos(gram: Map, size: int, tolerance: float, steps: int) -> tuple[float, float]:
    """Return the largest eigenvalue of a positive map, and its relative residual."""
    basis = torch.empty(min(steps, size) + 1, size, dtype=torch.double)
    basis[0] = torch.nn.functional.normalize(
        torch.randn(size, generator=generator(0), dtype=torch.double), dim=0
    )
    diagonal, beside = list[float](), list[float]()
    value, residual = 0.0, 0.0
    for step in range(len(basis) - 1):
        rest = gram(basis[step])
        diagonal.append(float(rest @ basis[step]))
        # Rounding would let the basis lose its orthogonality; two passes restore it.
        for _ in range(2):
            known = basis[: step + 1]
            rest = rest - known.T @ (known @ rest)
        beside.append(float(rest.norm()))
        last = step + 2 == len(basis) or beside[-1] <= 1e-14 * max(diagonal)
        if last or step % 5 == 4:
            value, residual = _ritz(diagonal, beside)
            if last or residual <= tolerance:
                break
        basis[step + 1] = rest / beside[-1]
    return value, residual


def _ritz(diagonal: list[float], beside: list[float]) -> tuple[float, float]:
    off = torch.tensor(beside[:-1], dtype=torch.double)
    small = torch.diag(torch.tensor(diagonal, dtype=torch.double))
    small += torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(small)
    value = float(values[-1])
    return value, abs(beside[-1] * float(vectors[-1, -1])) / value if value > 0 else 0.0


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
