"""Eigenpairs, trace and spectral density of a symmetric matrix that is known by its products."""

import dataclasses
import math
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import choice, generator, implements, integer, number
from mindgap.ops.curvature.lanczos import lanczos
from mindgap.ops.curvature.products import Operator

DENSE = 256  # rows; so small a matrix is written out, and everything about it is exact
TOLERANCE = 1e-3  # residual as a part of the largest eigenvalue
DEPENDENT = 1e-10  # a vector that keeps so small a part of its length is a combination of others
WIDTH = 0.01  # of the density's kernel, as a part of the range of the eigenvalues


def dense(matrix: Operator) -> Tensor:
    """Write a small matrix out, made exactly symmetric.

    Args:
        matrix: The operator.
    """
    whole = matrix(torch.eye(matrix.size, dtype=torch.float64))
    return (whole + whole.T) / 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Density:
    """How the eigenvalues of a matrix are distributed: points with weights, one row per probe.

    Attributes:
        nodes: Places on the axis of eigenvalues.
        weights: The share of the eigenvalues at each; every row sums to one.
        products: How many products they took.

    >>> density = Density(nodes=torch.tensor([[0.0, 4.0]]), weights=torch.tensor([[0.75, 0.25]]))
    >>> density.moment(1), density.moment(2)
    (1.0, 4.0)
    """

    nodes: Tensor
    weights: Tensor
    products: int = 0

    def moment(self, order: int) -> float:
        """Return the mean of a power of the eigenvalues.

        Args:
            order: The power.
        """
        return float((self.weights * self.nodes**order).sum(1).mean())

    def curve(self, points: int = 200, width: float = WIDTH) -> tuple[Tensor, Tensor]:
        """Smooth the points with a Gaussian kernel; return places and the density there.

        Args:
            points: How many places.
            width: Standard deviation of the kernel as a part of the range of the eigenvalues.
        """
        low, high = float(self.nodes.min()), float(self.nodes.max())
        spread = number("width", width) * max(high - low, 1e-12 + 1e-6 * abs(high))
        places = torch.linspace(low - 4 * spread, high + 4 * spread, points, dtype=torch.float64)
        scaled = (places[:, None, None] - self.nodes) / spread
        bells = torch.exp(-scaled.square() / 2) / (spread * math.sqrt(2 * math.pi))
        return places, (bells * self.weights).sum(2).mean(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eigenpairs:
    """Some eigenvalues of a symmetric matrix, in descending order.

    Attributes:
        values: The eigenvalues.
        vectors: The eigenvectors, one per row.
        residuals: ‖Hv − λv‖ of each pair; an eigenvalue lies within this distance of λ.
        products: How many products they took.
        converged: Whether all residuals are within the tolerance.
        space: An orthonormal basis of the space that was searched, one vector per row.
        diagonal: The diagonal of the matrix within that space; it sums to that part of the trace.
        density: How all eigenvalues are distributed, as far as the initial vectors tell.
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    products: int
    converged: bool
    space: Tensor
    diagonal: Tensor
    density: Density


@implements("E4", cites=("lanczos1950iteration", "golub1977block"))
def top_eigenpairs(
    matrix: Operator,
    count: int = 1,
    *,
    smallest: int = 0,
    tolerance: float = TOLERANCE,
    most: int = 200,
    block: int = 0,
    seed: int = 0,
) -> Eigenpairs:
    r"""Compute the largest and the smallest eigenvalues by the block Lanczos method.

    Formula: $H v_k = \lambda_k v_k, \quad \lambda_1 \ge \lambda_2 \ge \dots, \quad |\lambda -
    \lambda_k| \le \lVert H v_k - \lambda_k v_k \rVert \;\text{for some eigenvalue}\; \lambda$

    Reading: Every residual bounds the distance to an eigenvalue. As many vectors start together as
    pairs are wanted, so that an eigenvalue that occurs several times is found as often. They are
    random directions, so the search estimates the density of all eigenvalues at no further cost.

    Assumes: A symmetric matrix. A matrix of at most 256 rows is written out and solved exactly.

    Args:
        matrix: The operator.
        count: How many of the largest eigenvalues are wanted.
        smallest: How many of the smallest are wanted too; they come last.
        tolerance: Residual to reach, as a part of the largest absolute eigenvalue.
        most: Largest number of products.
        block: Vectors per step; as many as ``count`` if 0.
        seed: Seed of the initial vectors.

    >>> diagonal = torch.linspace(-1, 8, 300).double()
    >>> found = top_eigenpairs(
    ...     Operator(size=300, multiply=lambda rows: rows * diagonal), smallest=1
    ... )
    >>> found.converged, found.values.round(decimals=2).tolist()
    (True, [8.0, -1.0])
    """
    count, smallest = integer("count", count), integer("smallest", smallest, 0)
    if matrix.size <= max(DENSE, count + smallest):
        return _all_known(matrix, count, smallest)
    limit, source = min(integer("most", most), matrix.size), generator(seed)
    width = min(integer("block", block, 0) or count, limit)
    basis = images = torch.zeros(0, matrix.size, dtype=torch.float64)
    fresh = _normal(width, matrix.size, source)
    while True:
        rows = _orthonormal(fresh, basis)
        if not len(rows):  # the space is closed; other eigenvectors are orthogonal to it
            rows = _orthonormal(_normal(width, matrix.size, source), basis)
        fresh = matrix(rows[: limit - len(basis)])
        basis, images = torch.cat([basis, rows[: len(fresh)]]), torch.cat([images, fresh])
        width = width if len(basis) > len(fresh) else len(fresh)
        found = _ritz(basis, images, count, smallest, number("tolerance", tolerance), width)
        if found.converged or len(basis) == limit:
            return found


def _all_known(matrix: Operator, count: int, smallest: int) -> Eigenpairs:
    whole = dense(matrix)
    values, columns = torch.linalg.eigh(whole)
    kept = _ends(len(values), count, smallest)
    return Eigenpairs(
        values=values[kept],
        vectors=columns.T[kept],
        residuals=torch.zeros(len(kept), dtype=torch.float64),
        products=matrix.size,
        converged=True,
        space=torch.eye(matrix.size, dtype=torch.float64),
        diagonal=whole.diagonal(),
        density=_known_density(values),
    )


def _known_density(values: Tensor) -> Density:
    weights = torch.full_like(values, 1 / len(values))
    return Density(nodes=values[None], weights=weights[None], products=len(values))


def _ends(size: int, count: int, smallest: int) -> Tensor:
    """Return the places of the wanted eigenvalues among ascending ones, the largest first."""
    order = torch.arange(size - 1, -1, -1)
    return (
        order if count + smallest >= size else torch.cat([order[:count], order[size - smallest :]])
    )


def _ritz(
    basis: Tensor, images: Tensor, count: int, smallest: int, tolerance: float, first: int
) -> Eigenpairs:
    """Solve the eigenvalue problem within the space of the basis; its images are known.

    The first vectors of the basis are uniform on the sphere. As in quadrature with one of them, the
    squared parts of it along the eigenvectors of the small problem are the density's weights.
    """
    small = basis @ images.T
    values, inner = torch.linalg.eigh((small + small.T) / 2)
    kept = _ends(len(values), count, smallest)
    chosen, mixing = values[kept], inner.T[kept]
    vectors = mixing @ basis
    residuals = (mixing @ images - chosen[:, None] * vectors).norm(dim=1)
    close = bool((residuals <= tolerance * values.abs().max()).all())
    return Eigenpairs(
        values=chosen,
        vectors=vectors,
        residuals=residuals,
        products=len(basis),
        converged=close and len(basis) >= count + smallest,
        space=basis,
        diagonal=(basis * images).sum(0),
        density=Density(
            nodes=values.expand(first, -1), weights=inner[:first].square(), products=len(basis)
        ),
    )


def _normal(count: int, size: int, source: torch.Generator) -> Tensor:
    return torch.randn(count, size, generator=source, dtype=torch.float64)


def _orthonormal(rows: Tensor, basis: Tensor) -> Tensor:
    """Orthonormalize rows against a basis and each other; dependent ones are left out."""
    for _ in range(2):  # once would leave rounding errors of the first projection
        before = rows.norm(dim=1)
        rest = rows - (rows @ basis.T) @ basis
        columns, triangle = torch.linalg.qr(rest.T)
        rows = columns.T[triangle.diagonal().abs() > DEPENDENT * before]
    return rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceEstimate:
    """A trace with its standard error.

    Attributes:
        value: The trace.
        standard_error: Its standard error; zero if the value is exact.
        diagonal: An estimate of the diagonal, which sums to the value.
        products: How many products it took.
    """

    value: float
    standard_error: float
    diagonal: Tensor
    products: int


@implements("E4", cites=("hutchinson1989stochastic", "meyer2021hutch"))
def trace(
    matrix: Operator,
    products: int = 60,
    *,
    method: Literal["hutch++", "hutchinson"] = "hutch++",
    known: Eigenpairs | None = None,
    seed: int = 0,
) -> TraceEstimate:
    r"""Estimate the trace from products with random signs.

    Formula: $\mathrm{tr}(H) = \mathrm{tr}(Q^\top H Q) + \mathbb{E}\, g^\top (I - Q Q^\top) H (I - Q
    Q^\top) g, \quad g_i = \pm 1$

    Reading: Unbiased. Hutchinson's estimate has no Q. Hutch++ spends a third of the products on the
    range Q of H, where most of the trace is, and a third on its part of the trace. The space
    that a search for eigenpairs left serves as Q for nothing.

    Assumes: A symmetric matrix. It is exact if the products suffice for every row.

    Args:
        matrix: The operator.
        products: How many products it may take, at least two.
        method: ``"hutch++"`` or ``"hutchinson"``.
        known: Eigenpairs of the matrix; the space that was searched for them serves as Q.
        seed: Seed of the signs.

    >>> diagonal = torch.tensor([1.0, 2.0, 4.0]).double()
    >>> trace(Operator(size=3, multiply=lambda rows: rows * diagonal)).value
    7.0
    """
    choice("method", method, ("hutch++", "hutchinson"))
    if matrix.size <= max(integer("products", products, 2), DENSE):
        return _estimate(dense(matrix).diagonal(), torch.zeros(1), matrix.size)
    source, spent = generator(seed), 0
    basis = torch.zeros(0, matrix.size, dtype=torch.float64)
    inner = torch.zeros(matrix.size, dtype=torch.float64)
    if known is not None:
        basis, inner = known.space, known.diagonal
    elif method == "hutch++":
        third = min(products // 3, (products - 2) // 2)  # two draws at least tell the error
        basis = _orthonormal(matrix(_signs(third, matrix.size, source)), basis)
        inner, spent = (basis * matrix(basis)).sum(0), 2 * third
    rows = _signs(products - spent, matrix.size, source)
    rows = rows - (rows @ basis.T) @ basis
    outer = rows * matrix(rows)
    return _estimate(inner + outer.mean(0), outer.sum(1), products)


def _estimate(diagonal: Tensor, draws: Tensor, products: int) -> TraceEstimate:
    error = float(draws.std()) / math.sqrt(len(draws)) if len(draws) > 1 else 0.0
    return TraceEstimate(
        value=float(diagonal.sum()), standard_error=error, diagonal=diagonal, products=products
    )


def _signs(count: int, size: int, source: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(0, 2, (count, size), generator=source).double() - 1


@implements("E4", cites=("ghorbani2019investigation", "ubaru2017fast"))
def density(matrix: Operator, *, probes: int = 4, steps: int = 30, seed: int = 0) -> Density:
    r"""Estimate the distribution of all eigenvalues by stochastic Lanczos quadrature.

    Formula: $\phi(t) = \frac{1}{P} \sum_i \delta(t - \lambda_i) \approx \frac{1}{k} \sum_{l=1}^{k}
    \sum_{j=1}^{m} \tau_{lj}^2\, \delta(t - \theta_{lj})$

    Reading: Each probe gives m places θ with weights τ² whose first 2m − 1 moments are those that
    the probe sees of H. The moments are unbiased: the first is the trace divided by the number of
    rows.

    Assumes: A symmetric matrix. A matrix of at most 256 rows is written out and solved exactly.

    Args:
        matrix: The operator.
        probes: Random initial vectors.
        steps: Products per probe.
        seed: Seed of the initial vectors.

    >>> diagonal = torch.tensor([1.0, 2.0, 4.0]).double()
    >>> density(Operator(size=3, multiply=lambda rows: rows * diagonal)).nodes.tolist()
    [[1.0, 2.0, 4.0]]
    """
    if matrix.size <= DENSE:
        return _known_density(torch.linalg.eigvalsh(dense(matrix)))
    start = _signs(integer("probes", probes), matrix.size, generator(seed)).T
    nodes, vectors = lanczos(lambda columns: matrix(columns.T).T, start, integer("steps", steps))
    return Density(nodes=nodes, weights=vectors[:, 0].square(), products=probes * nodes.shape[1])
