"""A network as levels: an affine map of the state, then activations or a max-pooling.

The level of a result is the number of activations behind it. What a later level still needs, such
as the input of a residual block, passes the activations between with a slope of exactly one. So
sums, concatenations and skips are parts of affine maps.
"""

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mindgap.ops.lipschitz.affine import Affine
from mindgap.ops.lipschitz.trace import Node, NotCovered, Trace, traced

ENTRIES = 2**25  # of a matrix, and what a decomposition in every step can take
ROWS = 2600
Map = Callable[[Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class Piece:
    """Units of a level that one function bends; they have a place and channels."""

    node: Node | None
    place: slice
    shape: torch.Size

    def bend(self, units: Tensor) -> Tensor:
        """Apply the function to rows of units."""
        if self.node is None:
            return units
        node = self.node
        return torch.vmap(lambda row: node.alone(row.view(self.shape)).flatten())(units)


@dataclasses.dataclass(frozen=True)
class Level:
    """One affine map, and what bends its results.

    Args:
        affine: From the state before to the units.
        pieces: The functions that bend, in the order of the units.
        low: The smallest slope of each unit; one for units that pass.
        high: The largest slope of each unit.
        channels: Numbers the channel of each new state; a channel shares its multiplier at first.
        sees: For a max-pooling, which units each new state sees, (states, units); else None.
    """

    affine: Affine
    pieces: tuple[Piece, ...]
    low: Tensor
    high: Tensor
    channels: Tensor
    sees: Tensor | None = None

    @property
    def name(self) -> str:
        """What bends, in words."""
        return " and ".join(dict.fromkeys(p.node.name for p in self.pieces if p.node is not None))

    def bend(self, units: Tensor) -> Tensor:
        """Compute the new state of rows of units."""
        return torch.cat([piece.bend(units[:, piece.place]) for piece in self.pieces], 1)


@dataclasses.dataclass(frozen=True)
class Levels:
    """A network: its levels, and the affine map behind the last.

    Args:
        levels: In order.
        last: From the last state to the outputs.
    """

    levels: tuple[Level, ...]
    last: Affine

    @property
    def width(self) -> int:
        """The number of inputs."""
        return int((self.levels[0].affine if self.levels else self.last).matrix.shape[1])

    def run(self, rows: Tensor) -> Tensor:
        """Compute the outputs of flat inputs."""
        for level in self.levels:
            rows = level.bend(level.affine.values(rows))
        return self.last.values(rows)


def read_levels(model: nn.Module, sample: Tensor) -> Levels:
    """Read a model as levels, in double precision; raise NotCovered, with the reason, if it has none.

    Args:
        model: Any module that takes one tensor; it is not changed.
        sample: One input, without the batch.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> [len(level.channels) for level in read_levels(model, torch.zeros(3)).levels]
    [4]
    """
    plan = _Plan(traced(model, sample))
    width, levels = sample.numel(), list[Level]()
    for depth in range(1, plan.depth + 1):
        bent, carried = plan.bent(depth), plan.carried(depth)
        sources = [plan.node(k).refs[0] for k in bent]
        affine = _affine(plan.segment(depth - 1, [*sources, *carried]), plan.size(depth - 1))
        levels.append(_level(affine, [plan.node(k) for k in bent], plan, carried))
        width = len(levels[-1].channels)
    last = _affine(plan.segment(plan.depth, [plan.out]), width)
    found = Levels(tuple(levels), last)
    _compare(found, plan, sample)
    return found


class _Plan:
    """Which results make up the state behind each level, and how to get from one to the next."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.out = trace, trace.out
        self.level = list[int]()
        for node in trace.nodes:
            before = [self.level[k] for k in node.refs] if node else []
            self.level.append(max(before, default=0) + bool(node and node.bends))
        self.depth = self.level[self.out]

    def node(self, place: int) -> Node:
        node = self.trace.nodes[place]
        assert node is not None
        return node

    def bent(self, depth: int) -> list[int]:
        """Return the activations of a level."""
        nodes = enumerate(self.trace.nodes)
        return [k for k, node in nodes if node and node.bends and self.level[k] == depth]

    def carried(self, depth: int) -> list[int]:
        """Return the results from before a level that something behind it takes."""
        behind = [
            k
            for user, node in enumerate(self.trace.nodes)
            if node and self.level[user] - node.bends >= depth
            for k in node.refs
        ]
        return sorted({k for k in behind if self.level[k] < depth})

    def state(self, depth: int) -> list[int]:
        return [*self.bent(depth), *self.carried(depth)] if depth else [0]

    def size(self, depth: int) -> int:
        return sum(self.node(k).shape.numel() for k in self.state(depth))

    def segment(self, depth: int, wanted: Sequence[int]) -> Map:
        """Return the function from rows of the state behind a level to some results."""
        start = self.state(depth)
        shapes = [self.node(k).shape for k in start]
        order = [
            k
            for k, node in enumerate(self.trace.nodes)
            if node and self.level[k] == depth and not node.bends and k not in start
        ]

        def one(row: Tensor) -> Tensor:
            parts = row.split([shape.numel() for shape in shapes])
            known = {k: p.view(s) for k, p, s in zip(start, parts, shapes, strict=True)}
            for k in order:
                known[k] = self.node(k).value(known)
            return torch.cat([known[k].flatten() for k in wanted])

        return torch.vmap(one)


def _affine(function: Map, width: int) -> Affine:
    rows = function(torch.zeros(1, width, dtype=torch.double)).shape[1]
    if rows * width > ENTRIES or min(rows, width) > ROWS:
        raise NotCovered(
            f"a layer with {width:,} inputs and {rows:,} outputs is too large; at most {ROWS:,} on "
            f"the smaller side and {ENTRIES:,} entries"
        )
    return Affine(function, width)


def _level(affine: Affine, bent: list[Node], plan: _Plan, carried: list[int]) -> Level:
    if any(node.pools for node in bent):
        if len(bent) > 1 or carried:
            raise NotCovered("a max-pooling has another way around it")
        return _pooling(affine, bent[0], plan)
    pieces, low, high, channels, start = list[Piece](), list[Tensor](), list[Tensor](), [], 0
    nodes = [*bent, *[None] * len(carried)]
    for node, shape in zip(
        nodes, [*(n.shape for n in bent), *(plan.node(k).shape for k in carried)], strict=True
    ):
        place = slice(start, start + shape.numel())
        ends = node.slopes if node else (1.0, 1.0)
        low.append(torch.full((shape.numel(),), ends[0], dtype=torch.double))
        high.append(torch.full((shape.numel(),), ends[1], dtype=torch.double))
        channels.append(_channels(shape) + start)
        pieces.append(Piece(node, place, shape))
        start = place.stop
    return Level(affine, tuple(pieces), torch.cat(low), torch.cat(high), torch.cat(channels))


def _channels(shape: torch.Size) -> Tensor:
    """Number the units so that all places of a channel have the same number."""
    places = shape[2:].numel() if len(shape) > 2 else 1
    return torch.arange(shape.numel()) // places * places


def _pooling(affine: Affine, node: Node, plan: _Plan) -> Level:
    shape = plan.node(node.refs[0]).shape
    piece = Piece(node, slice(0, shape.numel()), shape)
    ends = torch.full((shape.numel(),), node.gain, dtype=torch.double)
    return Level(affine, (piece,), -ends, ends, _channels(node.shape), _sees(node, shape))


def _sees(node: Node, shape: torch.Size) -> Tensor:
    """Tell which units each output of a max-pooling sees, by lifting one unit at a time."""
    eye = torch.eye(shape[2:].numel(), dtype=torch.double).view(-1, 1, *shape[2:])
    lifted = torch.vmap(lambda image: node.alone(image[None]).flatten())(2 * eye - 1)
    one = (lifted == lifted.max()).double().T
    found: Tensor = torch.block_diag(*[one] * shape[1])
    return found


def _compare(found: Levels, plan: _Plan, sample: Tensor) -> None:
    """Compare the outputs of the levels with the model's own, away from the sample."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(3, sample.numel(), generator=generator, dtype=torch.double)
    rows = sample.detach().cpu().double().flatten() + noise * torch.tensor([[0.0], [1.0], [30.0]])

    def whole(row: Tensor) -> Tensor:
        known = {0: row.view(plan.node(0).shape)}
        for k, node in enumerate(plan.trace.nodes[1:], 1):
            if node:
                known[k] = node.value(known)
        return known[plan.out].flatten()

    wanted = torch.stack([whole(row) for row in rows])
    if not torch.allclose(
        found.run(rows), wanted, rtol=1e-9, atol=1e-9 * float(wanted.abs().max())
    ):
        raise NotCovered("the model does something else than its layers say")
