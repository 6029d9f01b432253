"""The data-independent bound of two-phase training."""

import contextlib
import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.bounds.margin_bound import MarginBound, rounded_norm
from mindgap.core import InputError, Subject, Terms, Undefined, binomial_tail_inverse, option
from mindgap.ops.evidence.passes import some_places
from mindgap.ops.models.phases import Gated, gates_of
from mindgap.ops.paths.chain import Chain, read_chain
from mindgap.ops.paths.gram import squared_norms
from mindgap.ops.paths.norms import log_path_norms, path_distance
from mindgap.ops.paths.subject import chain_of, inputs_of

BATCH = 2_000  # samples whose gates are in memory at once
FLAGGED = 2_000  # samples that a bound is evaluated on where it does not hold anyway


class DataIndependent(MarginBound):
    r"""Bound the error rate of a network whose gates were fixed on other samples.

    Formula: $R \le \hat R_\rho + \frac{4 \sqrt{d_y} B C_\sigma}{\rho \sqrt{n}} + 3
    \sqrt{\frac{\ln(2/\delta)}{2n}}, \quad B = \lVert W - W_1 \rVert_F, \quad C_\sigma^2 =
    \frac{1}{n} \sum_i \lVert z_i \rVert_2^2$

    Reading: With fixed gates a network is linear in the weights of its paths. B is how far phase 2
    moved them from phase 1. As published the term is 2 d_y² C_σ C_w / (ρ √n), with
    the norm C_w of an output's path weights; "four-classes" has 4 d_y for 2 d_y². As a certificate
    the samples of phase 2 are worth more held out: ``held_out`` is the bound of the phase-1 network
    on the same samples.

    Assumes: Independent samples of phase 2, which are the subject's training data and were not used
    in phase 1, nor to choose its share, nor to normalize (``TwoPhase().places`` tells which). The
    model is one of two-phase training, or has no gates at all; then ``initial`` are the weights of
    phase 1. Other models are flagged, and 2,000 of their samples are looked at. ρ and the norm are
    powers of two with their shares of δ. The published forms need a C_σ for all inputs: with the
    largest one seen they are flagged.

    >>> published = DataIndependent(delta=0.1, form="as-published")
    >>> numbers = {"empirical": 0.0, "outputs": 10, "margin": 1.0, "samples": 45_000}
    >>> f"{float(published.evaluate(radius=0.5, norm=0.5, **numbers)):.6f}"
    '0.240760'
    >>> f"{float(published.evaluate(radius=0.1, norm=0.1, **numbers)):.7f}"
    '0.0144862'
    """

    method = ("K6",)
    cites = ("kawaguchi2017generalization", "mohri2018foundations", "maurer2016vector")
    invariant_to = frozenset({"sample-order", "relu-rescaling"})
    cost = "moderate"

    form: str = option(
        "shifted",
        help="the theorem: relative to phase 1, with 4 d_y, or with 2 d_y² as published",
        choices=("shifted", "four-classes", "as-published"),
    )

    def formula(
        self,
        *,
        empirical: float,
        radius: float,
        norm: float,
        outputs: int,
        margin: float,
        samples: int,
        share: float = 1.0,
        held_out: float = 1.0,
    ) -> Terms:
        """Evaluate the theorem; ``held_out`` is only shown with it."""
        factors = {"shifted": 4 * math.sqrt(outputs), "four-classes": 4.0 * outputs}
        grown = factors.get(self.form, 2.0 * outputs**2) * radius * norm
        slack = self.deviation(samples, share, expected=self.form != "shifted")
        return self.terms(
            empirical,
            grown / (margin * math.sqrt(samples)) + slack,
            radius=radius,
            norm=norm,
            margin=margin,
            held_out=held_out,
        )

    def complexity(self, subject: Subject) -> Mapping[str, Any]:
        """Measure path features and path weights, and the phase-1 network on the same samples."""
        live, frozen = _phases(subject)
        places = self._places(subject)
        inputs = inputs_of(subject, "train", places)
        parts = [squared_norms(frozen, part) for part in inputs.split(BATCH)]
        squares = torch.cat([part.matrix for part in parts]) * _exp(parts[0].log_scale)
        answers = torch.cat([frozen.run(part)[0].argmax(1) for part in inputs.split(BATCH)])
        wrong = int((answers != subject.targets("train").cpu()[places]).sum())
        shifted = self.form == "shifted"
        size = path_distance(live, frozen) if shifted else _largest_norm(live)
        norm, share = rounded_norm(size)
        return {
            "radius": math.sqrt(float(squares.mean() if shifted else squares.max())),
            "norm": norm,
            "outputs": subject.outputs("train").shape[1],
            "samples": len(subject.train),
            "share": share,
            "held_out": binomial_tail_inverse(wrong, len(inputs), self.delta),
        }

    def _places(self, subject: Subject) -> Tensor:
        """List the samples to look at; path features of all are only worth their time in a proof."""
        return some_places(
            subject, "train", FLAGGED if _learned_gates(subject) else len(subject.train)
        )

    def broken(self, subject: Subject) -> str:
        """Say so if the gates were learned from the same samples, or C_σ is only what was seen."""
        if _learned_gates(subject):
            return (
                "the gates of the network are not frozen, so they were learned from these samples"
            )
        if self.form != "shifted":
            return "C_σ must hold for all inputs, and is the largest that was seen"
        return ""


def _learned_gates(subject: Subject) -> bool:
    return not _in_phase_2(subject.model) and not chain_of(subject).is_linear


def _in_phase_2(model: nn.Module) -> bool:
    return isinstance(model.forward, Gated) and model.forward.frozen


def _phases(subject: Subject) -> tuple[Chain, Chain]:
    """Return the network that was trained last, and the one of phase 1 that holds the gates."""
    model, second = subject.model, _in_phase_2(subject.model)
    if not second and subject.initial is None:
        raise Undefined("needs the weights from before training (initial=state_dict)")
    shape = tuple(inputs_of(subject, "train", torch.arange(1)).shape[1:])
    try:
        live, before = _own_chain(model, shape), copy.deepcopy(model)
        kept = gates_of(model).first() if second else dict(subject.initial or {})
        before.load_state_dict(kept, strict=not second)  # a plain model has no buffers of phases
        return live, _own_chain(before, shape)
    except InputError as error:
        raise Undefined(str(error)) from error


def _own_chain(model: nn.Module, shape: tuple[int, ...]) -> Chain:
    """Read the layers of a network with the gates that its own weights give."""
    released = gates_of(model).released() if _in_phase_2(model) else contextlib.nullcontext()
    with released:
        return read_chain(model, shape)


def _largest_norm(chain: Chain) -> float:
    return _exp(float(log_path_norms(chain, 2).max()) / 2)


def _exp(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 700 else math.inf
