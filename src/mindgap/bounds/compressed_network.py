"""The bound of a network that was compressed to few numbers."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch

from mindgap.core import Bound, InputError, Subject, Terms, kl_inverse, option
from mindgap.ops.compression.project import matrix_project, rounded
from mindgap.ops.paths.chain import Chain, Weights
from mindgap.ops.paths.subject import chain_of, inputs_of

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of a layer's weights, from which the best is taken
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
        """Compress with every share, and return what gives the smallest bound."""
        tried = [self._compressed(subject, share) for share in SHARES]
        return min(tried, key=lambda numbers: self.formula(**numbers).total)

    def _compressed(self, subject: Subject, share: float) -> dict[str, Any]:
        chain, numbers, steps = chain_of(subject), 0, list[Any]()
        for place, step in enumerate(chain.steps):
            if isinstance(step, Weights):
                step, count = self._layer(step, share, 1000 * self.seed + place)
                numbers += count
            steps.append(step)
        return {
            "empirical": _error(subject, dataclasses.replace(chain, steps=tuple(steps))),
            "samples": len(subject.train),
            "numbers": numbers,
            "layers": len(chain.layers),
        }

    def _layer(self, layer: Weights, share: float, seed: int) -> tuple[Weights, int]:
        """Return the layer made of rounded numbers, and how many these are."""
        size = layer.weight.numel()
        count = max(1, min(round(share * size), SIGNS // size))
        weight = matrix_project(layer.weight, count, seed, levels=self.levels)
        if layer.bias is None:
            return dataclasses.replace(layer, weight=weight), count
        bias = rounded(layer.bias, self.levels)
        return dataclasses.replace(layer, weight=weight, bias=bias), count + len(bias)

    def provenance(self, subject: Subject) -> dict[str, Any]:
        """Add that the bound is about the compressed network."""
        return {**super().provenance(subject), "risk_of": "the compressed network"}


def _error(subject: Subject, chain: Chain) -> float:
    """Return the training error of a chain, batch by batch."""
    labels, wrong = subject.targets("train").cpu(), 0
    for places in torch.arange(len(labels)).split(subject.batch_size):
        outputs, _ = chain.run(inputs_of(subject, "train", places))
        wrong += int((outputs.argmax(1) != labels[places]).sum())
    return wrong / len(labels)
