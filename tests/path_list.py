"""All paths of a small network, listed one by one: the reference for what is computed without a list."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import nn


class Paths:
    """Weights (paths × outputs) and features (samples × paths), in NumPy.

    A unit holds a list of (weight, feature) of the paths that end in it. Layers lengthen the lists.
    """

    def __init__(self, model: nn.Sequential, inputs: torch.Tensor) -> None:
        self.inputs = inputs.double()
        units = {
            place: [(1.0, self.inputs[(slice(None), *place)].numpy())]
            for place in itertools.product(*map(range, self.inputs.shape[1:]))
        }
        values = self.inputs
        for layer in model:
            after = layer(values).detach()
            units = self.passed(layer, units, values, after)
            values = after
        outputs = [units[k,] for k in range(values.shape[1])]
        self.outputs = values.numpy()
        self.weights = np.array([[weight for weight, _ in paths] for paths in outputs])
        self.features = np.array([feature for _, feature in outputs[0]]).T

    def passed(
        self, layer: nn.Module, units: dict, values: torch.Tensor, after: torch.Tensor
    ) -> dict:
        if isinstance(layer, nn.ReLU | nn.LeakyReLU):
            gate = np.where(values.numpy() > 0, 1.0, getattr(layer, "negative_slope", 0.0))
            return {
                place: [(w, z * gate[(slice(None), *place)]) for w, z in paths]
                for place, paths in units.items()
            }
        if isinstance(layer, nn.Flatten):
            order = sorted(units)
            return {(k,): units[place] for k, place in enumerate(order)}
        if isinstance(layer, nn.Linear):
            return {
                (k,): [
                    (w * float(layer.weight.detach()[k, j]), z)
                    for j in range(layer.in_features)
                    for w, z in units[j,]
                ]
                + self.start(layer, k)
                for k in range(layer.out_features)
            }
        return self.windowed(layer, units, values, after)

    def start(self, layer: nn.Module, k: int) -> list:
        one = np.ones(len(self.inputs))
        return [] if layer.bias is None else [(float(layer.bias.detach()[k]), one)]

    def windowed(
        self, layer: nn.Module, units: dict, values: torch.Tensor, after: torch.Tensor
    ) -> dict:
        pair = lambda v: (v, v) if isinstance(v, int) else v  # noqa: E731
        size, stride, padding = pair(layer.kernel_size), pair(layer.stride), pair(layer.padding)
        found = {}
        for c, i, j in itertools.product(*map(range, after.shape[1:])):
            rows = [i * stride[0] - padding[0] + u for u in range(size[0])]
            columns = [j * stride[1] - padding[1] + v for v in range(size[1])]
            window = [
                (u, v, a, b)
                for u, a in enumerate(rows)
                for v, b in enumerate(columns)
                if (0, a, b) in units
            ]
            if isinstance(layer, nn.Conv2d):
                found[c, i, j] = [
                    (w * float(layer.weight.detach()[c, e, u, v]), z)
                    for e in range(layer.in_channels)
                    for u, v, a, b in window
                    for w, z in units[e, a, b]
                ] + self.start(layer, c)
            elif isinstance(layer, nn.AvgPool2d):
                found[c, i, j] = [
                    (w / (size[0] * size[1]), z) for _, _, a, b in window for w, z in units[c, a, b]
                ]
            else:
                seen = np.array([values[:, c, a, b].numpy() for _, _, a, b in window])
                first = seen.argmax(0)
                found[c, i, j] = [
                    (w, z * (first == k))
                    for k, (_, _, a, b) in enumerate(window)
                    for w, z in units[c, a, b]
                ]
        return found
