"""A 25 × 25 loss surface of LeNet-5 on 2,000 MNIST images, against the loss-landscapes package.

The peer draws its own filter-normalized plane. Its weights at every point are taken from its own
loop, our grid is placed on them, and the losses must agree (asserted to 1e-4). Both sides use one
thread. The peer is stopped after five of its 25 columns, and a plain loop passes three of the 25
rows; their times are scaled. The peer needs an environment of its own beside the same version of torch:

    python -m venv --system-site-packages peers && peers/bin/pip install --no-deps loss-landscapes
    python benchmarks/landscape.py --peers peers/lib/python3.11/site-packages --json landscape.json
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import resource
import sys
from typing import Any

import numpy as np
import timing
import torch
from torch import Tensor, nn

from mindgap import Recipe, Subject, fit
from mindgap.data import mnist
from mindgap.nets import LeNet5
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.landscape.directions import random_directions
from mindgap.ops.landscape.points import losses_at, surface

POINTS, COLUMNS, SAMPLES, TOLERANCE = 25, 5, 2_000, 1e-4


class Enough(Exception):  # noqa: N818
    """The peer has done its part."""


def trained(samples: int) -> Subject:
    data = mnist(samples, 10)
    recipe = Recipe(model=LeNet5, train=data.train, epochs=5, batch_size=64)
    return fit(recipe, seed=0, evaluate_every=0).subject()


def flat_of(parameters: Any) -> Tensor:
    return torch.cat([p.detach().flatten() for p in parameters])


def by_peer(subject: Subject) -> tuple[np.ndarray, list[Tensor]]:
    """Their losses in the first columns, and the weights at three corners of their walk."""
    import loss_landscapes
    from loss_landscapes.metrics import Loss

    inputs, targets = subject.train.inputs[0], subject.train.target
    corners, losses = list[Tensor](), list[float]()

    class Watched(Loss):
        """Their metric; it copies the weights at three corners, which costs nothing."""

        def __call__(self, model: Any) -> float:
            if len(losses) in (0, POINTS - 1, COLUMNS * POINTS - 1):
                corners.append(flat_of(model.modules[0].parameters()).clone())
            losses.append(super().__call__(model))
            if len(losses) == COLUMNS * POINTS:
                raise Enough
            return losses[-1]

    metric = Watched(nn.CrossEntropyLoss(), inputs, targets)
    model = copy.deepcopy(subject.model).eval()
    with contextlib.suppress(Enough):
        loss_landscapes.random_plane(
            model, metric, distance=1, steps=POINTS, normalization="filter", deepcopy_model=True
        )
    walked = np.array(losses).reshape(COLUMNS, POINTS)
    walked[1::2] = walked[1::2, ::-1]  # odd columns are walked downwards
    return walked, corners


def by_hand(subject: Subject, directions: Tensor, axis: Tensor, rows: Tensor) -> Tensor:
    """The loop that a user would write: set the weights, pass all images, take the mean loss."""
    model, center = copy.deepcopy(subject.model).eval(), flat_of(subject.model.parameters())
    inputs, targets = subject.train.inputs[0], subject.train.target
    found = torch.empty(len(rows), len(axis), dtype=torch.float64)
    with torch.no_grad():
        for row, y in enumerate(rows.tolist()):
            for column, x in enumerate(axis.tolist()):
                point = center + x * directions[0] + y * directions[1]
                nn.utils.vector_to_parameters(point, model.parameters())
                found[row, column] = nn.functional.cross_entropy(model(inputs), targets)
    return found


def on_their_plane(subject: Subject, corners: list[Tensor]) -> np.ndarray:
    """Our losses at their points, which follow from three corners of their walk.

    They walk up every even column and down every odd one, and take a step before each loss. So their
    odd columns lie one step lower than their even ones, which their result does not tell.
    """
    first, end, last = corners
    directions = torch.stack([(end - first) / (POINTS - 1), (last - end) / (COLUMNS - 1)])
    columns, rows = torch.meshgrid(torch.arange(COLUMNS), torch.arange(POINTS), indexing="ij")
    places = torch.stack([(rows - columns % 2).flatten(), columns.flatten()], 1).double()
    losses = losses_at(FlatLoss(subject), directions, places, center=first)
    return losses.view(COLUMNS, POINTS).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--peers", help="folder of packages that holds loss-landscapes")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="images (2000)")
    arguments = parser.parse_args()
    if arguments.peers:
        sys.path.append(arguments.peers)
    torch.set_num_threads(1)
    subject = trained(arguments.samples)
    flat, axis = FlatLoss(subject), torch.linspace(-1, 1, POINTS, dtype=torch.float64)
    directions, rows = random_directions(flat.named), []
    with timing.alone():
        losses_at(flat, directions, torch.zeros(2, 2))
        ours, *own = timing.timed(lambda: surface(flat, directions, axis, axis))
        try:
            (theirs, corners), *peer = timing.timed(lambda: by_peer(subject))
        except ImportError:
            print("loss-landscapes is missing: pass --peers to compare with it.")
        else:
            off = float(np.abs(on_their_plane(subject, corners) - theirs).max() / theirs.max())
            assert off < TOLERANCE, f"the losses differ by {off:.1e}"
            note = f"Losses agree to {off:.0e} of the largest at their points."
            scale = POINTS / COLUMNS
            rows.append(
                timing.figures("loss-landscapes", peer, own, wanted=2, scale=scale, note=note)
            )
        some = torch.arange(0, POINTS, 12)
        loop, *hand = timing.timed(lambda: by_hand(subject, directions, axis, axis[some]))
        off = float((ours[some] - loop).abs().max() / loop.max())
        assert off < TOLERANCE, f"the losses differ by {off:.1e}"
        note = f"Losses agree to {off:.0e} of the largest."
        scale = POINTS / len(some)
        rows.append(
            timing.figures("a loop over the points", hand, own, wanted=2, scale=scale, note=note)
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    for row in rows:
        row |= {"points": POINTS**2, "samples": arguments.samples, "peak_gigabytes": peak}
        timing.show(row)
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
