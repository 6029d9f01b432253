"""Parameters that the compression theorem would leave of a network."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mindgap.core import Bar, Estimate, Measure, Series, Subject, Undefined, option
from mindgap.ops.compression.convolved import (
    convolved_cushions,
    convolved_smoothness,
    convolved_work,
)
from mindgap.ops.compression.cushions import Cushions, cushions, jacobian_work
from mindgap.ops.compression.dense import DenseNet, dense_net, is_dense
from mindgap.ops.compression.project import (
    Plan,
    compressed,
    compressed_chain,
    lowest,
    plan_of,
    smoothness,
)
from mindgap.ops.evidence.passes import some_places
from mindgap.ops.paths.chain import Chain
from mindgap.ops.paths.subject import chain_of, inputs_of

SAMPLES, WORK = 1000, 2**33  # samples, and multiplications for their Jacobians: a few seconds
SIGNS = 2**29  # random signs per layer that one run of Algorithm 1 draws: a second
QUANTILES = (0.0, 0.1, 0.5)


class Compression(Measure):
    r"""Parameters that suffice for a network of the same outputs, by Arora et al., up to constants.

    Formula: $c^2 d^2 \sum_{i=1}^{d} \frac{\beta^2 \lceil \kappa_i / s_i \rceil^2}{\mu_i^2
    \mu_{i\to}^2}$

    Reading: The theorem compresses every layer by random projections, and needs this many numbers,
    times a constant and a logarithm, over ε², for outputs right up to ε‖f(x)‖. Compare it with the
    number of parameters, and with networks that learned random labels. It is no bound: with its
    constants (``projections``) it exceeds the parameters of every network we have seen, so that
    nothing is compressed. Algorithm 1 is run once as well, with a share of the weights (fewer for
    large layers: 2²⁹ random signs each), and its error is told next to the ε that the theorem
    promises for it.

    Assumes: A chain of dense layers, convolutions, ReLU and pooling, no residual sums; batch
    normalization is folded. With biases, the outputs of layers take the place of the products that
    the paper writes. The theorem takes the least cushion over the samples (quantile 0), which a
    single sample decides. For convolutions it is Theorem 5.1, with filters of width κ and stride s,
    and β for Jacobians that are not spread evenly over an image (``spread``); both are 1 for dense
    layers. Its algorithm, with other filters at every place, is not run: Algorithm 1 projects a
    kernel as a whole, for which no ε is promised. ``cushion_error`` is the relative standard error of
    cushions whose Jacobian was sampled.

    >>> from mindgap.nets import MLP
    >>> data = torch.eye(2), torch.tensor([0, 1])
    >>> net = MLP((2, 2), bias=False)
    >>> _ = torch.nn.init.eye_(net[1].weight)
    >>> round(float(Compression()(Subject(net, "cross_entropy", data))), 6)
    4.0
    """

    method = ("E11",)
    cites = ("arora2018stronger",)
    direction = "lower"
    cost = "moderate"
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )

    quantile: float = option(
        0.0, help="share of samples with less of a cushion; 0 is the theorem's", low=0, below=1
    )
    kept: float = option(
        0.5, help="share of each layer's weights that Algorithm 1 keeps as numbers", above=0
    )
    delta: float = option(0.05, help="probability with which ε may be exceeded", above=0, below=1)
    seed: int = option(0, help="seed of the random projections", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Return the number, the cushions by layer, and what a run of Algorithm 1 gives."""
        chain = chain_of(subject)
        net = dense_net(subject) if is_dense(chain) else None
        # A convolution multiplies a few numbers at a time, which takes longer than a matrix product.
        work = 4 * convolved_work(chain) if net is None else jacobian_work(net)
        most = min(SAMPLES, max(16, WORK // max(1, work)))
        inputs = inputs_of(subject, "train", some_places(subject, "train", most))
        inputs = inputs.detach().cpu().double()
        found = (
            convolved_cushions(chain, inputs, self.seed)
            if net is None
            else cushions(net, inputs.flatten(1))
        )
        plan = plan_of(found, self.quantile, self.delta)
        spread = -float(lowest(-found.spread[None], self.quantile))
        parts = _parts(plan, [spread * overlap for overlap in found.overlap])
        if not math.isfinite(sum(parts)):
            raise Undefined(
                "needs units that fire for every sample and outputs that are not zero; with "
                "quantile=0.01 a hundredth of the samples may lack them"
            )
        return Estimate(
            value=sum(parts),
            status="estimate" if found.error else "exact",
            terms={
                "parameters": sum(layer.weight.numel() for layer in chain.layers),
                "contraction": plan.contraction,
                "samples": len(inputs),
                **({"cushion_error": found.error} if found.error else {}),
                **({"spread": spread} if net is None else {}),
                **self._margin(subject, plan, sum(parts), net),
                **self._run(chain, net, plan, inputs),
            },
            details=self._details(found, plan, parts),
            charts=_charts(found, self.quantile),
        )

    def _margin(
        self, subject: Subject, plan: Plan, total: float, net: DenseNet | None
    ) -> dict[str, float]:
        """Tell the theorem's number for the margin; it is for dense layers."""
        epsilon = None if net is None else self._epsilon(subject)
        return {} if epsilon is None else _with_margin(plan, total, epsilon)

    def _epsilon(self, subject: Subject) -> float | None:
        """The relative error that leaves nine of ten training samples right, or None."""
        if subject.task != "classification":
            return None
        margins = subject.margins("train").double()
        largest = float(subject.outputs("train").double().norm(dim=1).max())
        return float(lowest(margins[None], 0.1)) / (math.sqrt(2) * largest)

    def _run(
        self, chain: Chain, net: DenseNet | None, plan: Plan, inputs: Tensor
    ) -> dict[str, float]:
        """Compress the network once, and compare outputs and decisions."""
        counts = [_count(layer.weight.numel(), self.kept) for layer in chain.layers]
        if net is None:
            before, after, smooth = _convolved_run(chain, counts, self.seed, inputs)
        else:
            before, after, smooth = _dense_run(net, counts, self.seed, inputs)
        error = (after - before).norm(dim=1) / before.norm(dim=1)
        changed = (before.argmax(1) != after.argmax(1)).double().mean()
        return {
            "kept": sum(counts),
            "error": float(error.mean()),
            "largest_error": float(error.max()),
            # The lemma behind it asks for noise that is independent from place to place.
            **({} if net is None else {"promised_error": plan.promise(counts)}),
            "smoothness": float(lowest(smooth[None], self.quantile)),
            "smoothness_needed": 3.0 * len(counts),
            **({"changed_decisions": float(changed)} if before.shape[1] > 1 else {}),
        }

    def _details(self, found: Cushions, plan: Plan, parts: list[float]) -> Mapping[str, Any]:
        return {
            "layers": [
                {"layer": k, "cushion": one, "minimal_interlayer_cushion": two, "parameters": part}
                for k, (one, two, part) in enumerate(
                    zip(plan.layer, plan.minimal, parts, strict=True), 1
                )
            ],
            "interlayer_cushions": {
                f"{i} to {j}": float(lowest(row[None], self.quantile))
                for (i, j), row in found.interlayer.items()
            },
            "quantile": self.quantile,
        }


Run = tuple[Tensor, Tensor, Tensor]  # outputs before and after compression, and smoothness


def _dense_run(net: DenseNet, counts: Sequence[int], seed: int, inputs: Tensor) -> Run:
    seen, other = net.run(inputs.flatten(1)), compressed(net, counts, seed)
    after = other.run(seen.entered[0]).left[-1]
    return seen.left[-1], after, smoothness(net, other, seen)


def _convolved_run(chain: Chain, counts: Sequence[int], seed: int, inputs: Tensor) -> Run:
    other = compressed_chain(chain, counts, seed)
    smooth = convolved_smoothness(chain, other, inputs)
    return chain.run(inputs)[0], other.run(inputs)[0], smooth


def _count(weights: int, share: float) -> int:
    return max(1, min(round(share * weights), SIGNS // weights))


def _parts(plan: Plan, shared: Sequence[float]) -> list[float]:
    """Return what every layer needs; ``shared`` is β ⌈κ/s⌉, the toll of shared filters."""
    scale = plan.contraction * len(plan.layer)
    rows = zip(plan.layer, plan.minimal, shared, strict=True)
    return [
        (scale * toll / (one * two)) ** 2 if one * two > 0 else math.inf for one, two, toll in rows
    ]


def _with_margin(plan: Plan, total: float, epsilon: float) -> dict[str, float]:
    """Tell the theorem's number for the margin, where nine of ten samples have one."""
    if epsilon <= 0:
        return {"epsilon": epsilon}
    projections = sum(plan.counts(min(epsilon, 1.0)))
    return {
        "epsilon": epsilon,
        "as_in_the_theorem": total / (2 * epsilon**2),
        "projections": projections,
    }


def _charts(found: Cushions, quantile: float) -> tuple[Bar, ...]:
    """Draw both cushions by layer: as the theorem has them, and as most samples do."""
    shares = sorted({quantile, *QUANTILES})
    names = [str(number) for number in range(1, len(found.widths) + 1)]

    def bars(title: str, values: torch.Tensor, label: str, noise: Sequence[float]) -> Bar:
        rows = [
            Series(name=_share(share), x=names, y=_known(lowest(values, share))) for share in shares
        ]
        return Bar(
            title=title,
            x_label="layer",
            y_label=label,
            y_scale="log",
            series=[*rows, Series(name="random noise", x=names, y=[w**-0.5 for w in noise])],
        )

    return (
        bars("Layer cushion by layer", found.layer, "μ", found.fans),
        bars("Minimal interlayer cushion by layer", found.minimal, "μ→", found.widths),
    )


def _share(share: float) -> str:
    return "least sample (theorem)" if share == 0 else f"{100 * share:g} % of the samples below"


def _known(values: torch.Tensor) -> list[float | None]:
    return [value if math.isfinite(value) and value > 0 else None for value in values.tolist()]
