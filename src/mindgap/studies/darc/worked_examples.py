"""The slides' worked examples of bounds: the printed numbers, and ours from the theorems."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from mindgap.bounds import DataIndependent, ValidationSetGuarantee
from mindgap.core import Bound, Claim, Record, Study, Table, Trial

DELTA = 0.1
# As printed: the last digit says how exact the number is.
PRINTED = {
    "validation set": "0.069396461",
    "data-independent, worse case": "0.240760",
    "data-independent, optimal case": "0.0144862",
}
TWO_PHASE = {"outputs": 10, "margin": 1.0, "samples": 45_000}
NUMBERS: Mapping[str, Mapping[str, Any]] = {
    "validation set": {"samples": 10_000},
    "data-independent, worse case": {**TWO_PHASE, "radius": 0.5, "norm": 0.5},
    "data-independent, optimal case": {**TWO_PHASE, "radius": 0.1, "norm": 0.1},
}


class WorkedExamples(Study):
    r"""Compute the bounds that the slides on generalization in deep learning work out.

    Formula: $\frac{2 \ln(|F| / \delta)}{3 n} + \sqrt{\frac{2 \ln(|F| / \delta)}{n}}, \qquad \frac{2
    d_y^2 C_\sigma C_w}{\rho \sqrt{n}} + \sqrt{\frac{\ln(1 / \delta)}{2 n}}$

    Reading: The slides print what is added to an empirical risk: 6.94 % for ten thousand validation
    samples and a billion models, and 24 % or 1.4 % after two-phase training on CIFAR-10. The bounds
    of the catalog must give the same digits.

    Assumes: The constants of the slides: δ = 0.1, C = γ² = 1, ten classes, α = 0.1 and ρ = 1.

    >>> len(WorkedExamples().trials())
    3
    """

    method = ("K2", "K6")
    cites = ("kawaguchi2017generalization",)
    expected: ClassVar[Mapping[str, float]] = {name: float(text) for name, text in PRINTED.items()}
    reproduces = ("darc: Worked examples",)

    def trials(self) -> Sequence[Trial]:
        """One trial per example."""
        return [Trial(parameters={"example": name}) for name in PRINTED]

    def run(self, trial: Trial) -> Record:
        """Evaluate the bound at an empirical risk of zero."""
        name = trial["example"]
        bound: Bound = (
            ValidationSetGuarantee(delta=DELTA, hypotheses=10**9)
            if name == "validation set"
            else DataIndependent(delta=DELTA, form="as-published")
        )
        return {"value": bound.evaluate(empirical=0.0, **NUMBERS[name]).value}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per example."""
        rows = tuple(
            (trial["example"], float(PRINTED[trial["example"]]), record["value"])
            for trial, record in records
        )
        return Table(
            title="Worked examples of bounds: what is added to the empirical risk",
            columns=("example", "published", "ours"),
            rows=rows,
            claims=tuple(
                Claim.shown(f"{name.capitalize()}: {PRINTED[name]}.", _same(PRINTED[name], value))
                for name, _, value in rows
            ),
        )

    def tiny(self) -> Self:
        """Return itself: the study is arithmetic."""
        return self


def _same(printed: str, value: float) -> bool:
    """Whether a number is printed with these digits, the last one rounded or cut off.

    >>> _same("0.24", 0.2491), _same("0.24", 0.2351), _same("0.24", 0.2500001)
    (True, True, False)
    """
    unit = 10.0 ** -len(printed.partition(".")[2])
    return -unit / 2 <= value - float(printed) < unit
