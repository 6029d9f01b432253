"""Operator norms of all layers of trained networks, against one epoch of their training.

The norms are compared with those of explicit sparse matrices, by ARPACK in double precision (asserted
to 1e-4), and with what ``torch.nn.utils.parametrizations.spectral_norm`` takes for the norm: that of
the kernel as a matrix. Times are CPU seconds with one thread. ResNet-20 is trained on a tenth of
CIFAR-10, and its epoch is scaled.

    MINDGAP_DATA=~/data python benchmarks/norms.py --json norms.json
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import timing
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from mindgap.core import Recipe
from mindgap.data import load
from mindgap.nets import LeNet5, ResNet20
from mindgap.ops.norms.layer_norms import LayerNorm, layer_norms
from mindgap.ops.norms.watch import watched
from mindgap.training.fit import fit
from mindgap.training.fitted import Fitted

TOLERANCE = 1e-4


def matrix(layer: nn.Module, shape: tuple[int, ...]) -> sparse.csr_matrix:
    """The layer as an explicit matrix: one row per output unit."""
    weight = layer.weight.detach().double().flatten(1)
    if isinstance(layer, nn.Linear):
        return sparse.csr_matrix(weight.numpy())
    size = int(np.prod(shape))
    numbers = torch.arange(1, size + 1, dtype=torch.double).view(1, *shape)
    seen = functional.unfold(
        numbers, layer.kernel_size, layer.dilation, layer.padding, layer.stride
    )[0].long()
    taps, places = (seen > 0).nonzero(as_tuple=True)
    columns = seen[taps, places] - 1
    rows = torch.arange(len(weight))[:, None] * seen.shape[1] + places
    values = weight[:, taps]
    parts = (rows.flatten(), columns.repeat(len(weight)))
    total = (len(weight) * seen.shape[1], size)
    return sparse.csr_matrix((values.flatten(), parts), shape=total)


def by_arpack(layer: nn.Module, shape: tuple[int, ...]) -> float:
    whole = matrix(layer, shape)
    if min(whole.shape) <= 200:
        return float(np.linalg.norm(whole.toarray(), 2))
    start = np.random.default_rng(0).standard_normal(min(whole.shape))
    found = sparse.linalg.svds(whole, 1, tol=1e-10, v0=start, return_singular_vectors=False)
    return float(found[0])


def by_torch(layer: nn.Module) -> float:
    """What torch divides by: power iteration on the kernel as a matrix."""
    weight = layer.weight.detach().clone()
    twin = nn.Linear(*weight.flatten(1).shape[::-1], bias=False)
    twin.weight.data.copy_(weight.flatten(1))
    parametrizations.spectral_norm(twin, n_power_iterations=200)
    divided = twin.weight.detach().flatten()
    place = divided.abs().argmax()
    return float(weight.flatten()[place] / divided[place])


def compared(model: nn.Module, image: Tensor, found: list[LayerNorm]) -> dict[str, Any]:
    calls = [
        seen for seen in watched(model, image)[0] if isinstance(seen.module, nn.Conv2d | nn.Linear)
    ]
    own = [row for row in found if row.kind in ("convolution", "dense")]
    true = [by_arpack(seen.module, seen.shape) for seen in calls]
    wrong = [by_torch(seen.module) for seen in calls]
    error = max(abs(row.exact - value) / value for row, value in zip(own, true, strict=True))
    assert error < TOLERANCE, f"the norms differ by {error:.1e}"
    assert all(row.upper >= value for row, value in zip(own, true, strict=True))
    small = [value / other for value, other in zip(true, wrong, strict=True)]
    convolutions = [
        ratio for ratio, row in zip(small, own, strict=True) if row.kind == "convolution"
    ]
    loose = max(row.upper / value for row, value in zip(own, true, strict=True))
    return {
        "largest_relative_error": error,
        "largest_residual": max(row.residual for row in own),
        "upper_over_exact": loose,
        "exact_over_torch": {"lowest": min(convolutions), "highest": max(convolutions)},
        "norms": {row.name: row.exact for row in own},
        "torch_spectral_norms": {row.name: value for row, value in zip(own, wrong, strict=True)},
    }


def trained(model: Any, train: Any, test: Any, epochs: int) -> tuple[Fitted, float, float]:
    recipe = Recipe(
        model=model, train=train, test=test, epochs=epochs, batch_size=128, learning_rate=0.002
    )
    fitted, cpu, wall = timing.timed(lambda: fit(recipe, evaluate_every=0))
    return fitted, cpu / epochs, wall / epochs


def measured(name: str, fitted: Fitted, image: Tensor, epoch: Any, scale: float) -> dict[str, Any]:
    model = fitted.model.eval()
    found, *own = timing.timed(lambda: layer_norms(model, image))
    more = compared(model, image, found)
    span = more["exact_over_torch"]
    note = (
        f"Norms agree to {more['largest_relative_error']:.0e}; torch's spectral_norm is too small by "
        f"{span['lowest']:.2f} to {span['highest']:.2f} times for the convolutions."
    )
    return timing.figures(
        f"{name}: operator norms of all layers against one epoch of training",
        epoch, own, wanted=1, scale=scale, note=note, **more,
    )  # fmt: skip


def lenet() -> dict[str, Any]:
    data = load("mnist")
    fitted, *epoch = trained(lambda: LeNet5(), data.train, data.test, 2)
    return measured("LeNet-5", fitted, data.train[0][:1], epoch, 1.0)


def resnet() -> dict[str, Any]:
    data = load("cifar10")
    train = data.train[0][:5000], data.train[1][:5000]
    fitted, *epoch = trained(lambda: ResNet20(), train, data.test, 1)
    return measured("ResNet-20", fitted, train[0][:1], epoch, len(data.train[1]) / 5000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with timing.alone():
        for benchmark in (lenet, resnet):
            rows.append(benchmark())
            timing.show(rows[-1])
    if arguments.json:
        timing.write(arguments.json, rows)


if __name__ == "__main__":
    main()
