"""The bound of a network that was compressed to few numbers."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mindgap.core import Bound, InputError, Subject, Terms, kl_inverse, option
from mindgap.ops.compression.project import matrix_project, rounded
from mindgap.ops.evidence.passes import some_places
from mindgap.ops.paths.chain import Chain, Rectifier, Step, Weights
from mindgap.ops.paths.subject import chain_of, inputs_of

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of a layer's weights, from which the best is taken
SAMPLES = 2000  # on which the shares are compared
SIGNS = 2**27  # random signs per layer: below a second
SCALES = 2 * 32 * math.log(2)  # nats for the scales of weights and biases of a layer


class CompressedNetwork(Bound):
    r"""Bound the risk of the network that random projections compress this one to.

    Formula: $R(\hat f) \le \max\left\{ p : \mathrm{kl}\left( \hat R(\hat f) \,\Vert\, p \right) \le
    \frac{q \ln r + 64\, d \ln 2 + \ln(5/\delta)}{n} \right\}$

    Reading: Algorithm 1 of Arora et al. writes every layer as few numbers: its projections on
    random matrices, rounded to r levels, and its rounded biases, q in all. There are finitely many
    such networks, so that the training error of one bounds its risk. This is their Theorem 2.1 with
    all constants, the kl divergence in the place of Hoeffding's inequality, and a network that was
    really compressed in the place of Theorem 4.1, whose constants are not explicit. It says nothing
    about the network before compression. It is vacuous unless there are many more samples than
    numbers.

    Assumes: Independent training samples, and a seed and an architecture that were chosen before
    the data were seen. Five shares of numbers are tried, for which ln 5 pays.

    >>> bound = CompressedNetwork(levels=16)
    >>> round(float(bound.evaluate(empirical=0.1, samples=60_000, numbers=1_000, layers=3)), 4)
    0.2179
    """

    method = ("E11",)
    cites = ("arora2018stronger",)
    direction = "lower"
    needs = frozenset({"classification"})
    invariant_to = frozenset({"sample-order", "relu-rescaling", "output-scaling"})
    cost = "moderate"

    levels: int = option(16, help="values r that a rounded number can have", low=2)
    seed: int = option(0, help="seed of the projections, chosen before seeing the data", low=0)

    def formula(self, *, empirical: float, samples: int, numbers: int, layers: int) -> Terms:
        """Evaluate the finite-class bound; one of the shares was chosen after seeing the data."""
        if not 0 <= empirical <= 1:
            raise InputError(
                f"empirical must be a number from 0 to 1, got {empirical}. Pass an error rate."
            )
        nats = numbers * math.log(self.levels) + layers * SCALES
        bound = kl_inverse(empirical, (nats + math.log(len(SHARES) / self.delta)) / samples)
        return Terms(
            empirical=empirical,
            complexity=bound - empirical,
            others={"numbers": numbers, "nats": nats},
        )

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Compress with every share, and return what gives the smallest bound.

        Shares are compared on some samples, which is allowed because ln 5 pays for any choice.
        """
        some = some_places(subject, "train", SAMPLES)
        tried = [self._compressed(subject, share) for share in SHARES]
        rates = [_error(subject, chain, some) for chain, _ in tried]
        told = [
            {"samples": len(subject.train), "numbers": numbers, "layers": len(chain.layers)}
            for chain, numbers in tried
        ]
        pairs = zip(rates, told, strict=True)
        totals = [self.formula(empirical=rate, **row).total for rate, row in pairs]
        best = totals.index(min(totals))
        every = torch.arange(len(subject.train))
        return {"empirical": _error(subject, tried[best][0], every), **told[best]}

    def _compressed(self, subject: Subject, share: float) -> tuple[Chain, int]:
        """Return the network made of rounded numbers, and how many these are."""
        chain, numbers, steps = chain_of(subject), 0, list[Any]()
        for place, step in enumerate(chain.steps):
            if isinstance(step, Weights):
                step, count = self._layer(step, share, 1000 * self.seed + place)
                numbers += count
            steps.append(step)
        return dataclasses.replace(chain, steps=tuple(steps)), numbers

    def _layer(self, layer: Weights, share: float, seed: int) -> tuple[Weights, int]:
        """Return the layer made of rounded numbers, and how many these are."""
        size = layer.weight.numel()
        count = max(1, min(round(share * size), SIGNS // size))
        weight = matrix_project(layer.weight, count, seed, levels=self.levels).float()
        if layer.bias is None:
            return dataclasses.replace(layer, weight=weight), count
        bias = rounded(layer.bias, self.levels).float()
        return dataclasses.replace(layer, weight=weight, bias=bias), count + len(bias)

    def provenance(self, subject: Subject) -> dict[str, Any]:
        """Add that the bound is about the compressed network."""
        return {**super().provenance(subject), "risk_of": "the compressed network"}


def _error(subject: Subject, chain: Chain, samples: Tensor) -> float:
    """Return the error of a chain on some training samples, batch by batch."""
    labels, wrong = subject.targets("train").cpu(), 0
    for places in samples.split(subject.batch_size):
        units = chain.shaped(inputs_of(subject, "train", places)).float()
        for step in chain.steps:  # chain.run would keep all gates as well, in double precision
            units = _applied(step, units)
        wrong += int((units.flatten(1).argmax(1) != labels[places]).sum())
    return wrong / len(samples)


def _applied(step: Step, units: Tensor) -> Tensor:
    if isinstance(step, Rectifier):
        return functional.leaky_relu(units, step.slope)
    return step(units)
