"""Certificate: what PAC-Bayes promises about a stochastic classifier, and the evidence."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

from mindgap.core.chart.numbers import SPACE, at_most, shown_below
from mindgap.core.errors import InputError
from mindgap.core.plain import plain, unworded

SCHEMA = 1
THEOREMS = {
    "mixture": "mixture over λ (Catoni, Maurer)",
    "kl": "kl inverse (Langford and Seeger, Maurer)",
    "quadratic": "quadratic (Rivasplata et al.)",
    "mcallester": "square root (McAllester, Maurer)",
    "catoni": "exponential (Catoni)",
    "binomial": "binomial tail (Clopper and Pearson)",
    "martingale": "martingale (fixed λ; Catoni, Seldin et al.)",
}
PREDICTORS = {
    "pac-bayes": ", if new weights are drawn for every answer",
    "held-out": ", by this one network with its weights as they are",
    "progressive": ", if a model of the stream is drawn for every answer",
}
PAID = {"tried": "the priors that were tried", "scales": "the choice of the prior's scales"}
_JUDGED = {
    "pac-bayes": "the stochastic classifier",
    "held-out": "the network",
    "progressive": "the stream of models",
}
_FORMER_NAMES = {"guess": "baseline"}  # of fields, in certificates that were saved before


def _up(share: float) -> str:
    """Write an upper bound as the other shares here are written, but rounded up."""
    return at_most(share, 2).replace(SPACE, " ")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """A bound on the risk of a stochastic classifier, which draws new weights per answer.

    With probability ``1 - delta`` over the draw of the bound data and of the Monte-Carlo weights,
    the 0-1 risk is at most ``bound``.

    Args:
        bound: The bound by ``theorem``, which is chosen in advance.
        bounds: The same risk by every theorem of ``THEOREMS``. Each bound holds with probability
            ``1 - delta`` on its own.
        loss_bounds: The bounds on the bounded cross entropy, by theorem.
        kl: The divergence of the posterior from the prior, in nats.
        samples: How many samples the bound data hold.
        error: The error rate of the draws on the bound data.
        error_limit: The upper limit of the expected error on the bound data, from ``draws`` draws.
        loss: The bounded cross entropy of the draws on the bound data.
        loss_limit: The upper limit of its expectation, from the same draws.
        draws: How many independent sets of weights were drawn.
        baseline: The error of always answering the most frequent class of the bound data.
        delta: The probability with which the bound may fail.
        monte_carlo_delta: The part of ``delta`` that the draws take.
        theorem: The theorem of ``bound``, a key of ``THEOREMS``.
        paid: Nats beyond the KL, by what they pay for: choices that a union bound covers.
        inverse_temperature: λ of Catoni's bound, from the prior's data; None for a grid.
        mode: ``"pac-bayes"``, ``"held-out"`` or ``"progressive"``.
        recommendation: Which mode suits the problem, and why.
        name: What was certified.
        prior: ``"learned"`` or ``"initial"``.
        posterior: The distribution of the weights, ``"gaussian"`` or ``"uniform"``.
        scale: The scale of the prior's noise; 0 if it is learned.
        scales: The learned scale of every parameter tensor.
        chosen: How the scale was chosen.
        prior_error: The control: the error of a learned prior's mean weights on the bound data.
        prior_bound: The held-out bound on that error.
        test_error: The error on test data, if there are any.
        sizes: How many samples each part of the data has, and how many weights the model.
        digests: A hash of each part of the data.
        settings: The settings of :func:`mindgap.certify`.
        notes: Sentences that a reader should know.
        broken: What breaks the theorem; empty if nothing is known to.
        version: The version of mindgap.
        cost: The CPU seconds that it took.
        model: The stochastic classifier itself. JSON does not hold it.

    >>> common = {
    ...     "bounds": {},
    ...     "loss_bounds": {},
    ...     "kl": 3.0,
    ...     "samples": 100,
    ...     "error": 0.1,
    ...     "error_limit": 0.12,
    ... }
    >>> found = Certificate(bound=0.3, loss=0.1, loss_limit=0.1, draws=1000, baseline=0.9, **common)
    >>> found.verdict, Certificate.from_json(found.to_json()) == found
    ('valid, non-vacuous', True)
    """

    bound: float
    bounds: Mapping[str, float]
    loss_bounds: Mapping[str, float]
    kl: float
    samples: int
    error: float
    error_limit: float
    loss: float
    loss_limit: float
    draws: int
    baseline: float
    delta: float = 0.05
    monte_carlo_delta: float = 0.01
    theorem: str = "kl"  # certificates that were saved before the mixture say nothing
    paid: Mapping[str, float] = dataclasses.field(default_factory=dict)
    inverse_temperature: float | None = None
    mode: str = "pac-bayes"
    recommendation: str = ""
    name: str = ""
    prior: str = ""
    posterior: str = ""
    scale: float = 0.0
    scales: Mapping[str, float] = dataclasses.field(default_factory=dict)
    chosen: str = "one value, taken as fixed without the bound data"
    prior_error: float | None = None
    prior_bound: float | None = None
    test_error: float | None = None
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    broken: str = ""
    version: str = ""
    cost: Mapping[str, float] = dataclasses.field(default_factory=dict, compare=False)
    model: Any = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def valid(self) -> bool:
        """Whether nothing is known to break the theorem."""
        return not self.broken

    @property
    def vacuous(self) -> bool:
        """Whether the majority-class baseline is as good as the bound, as both are shown."""
        return not shown_below(self.bound, min(1.0, self.baseline))

    @property
    def verdict(self) -> str:
        """``valid, non-vacuous``, or why not."""
        if self.broken:
            return f"not valid ({self.broken})"
        if not self.vacuous:
            return "valid, non-vacuous"
        return f"valid, vacuous ({self._why_vacuous()})"

    def _why_vacuous(self) -> str:
        if self.error_limit >= self.baseline:
            return (
                f"{_JUDGED[self.mode]} errs on up to {_up(self.error_limit)} of the bound data, "
                f"the majority class on {100 * self.baseline:.1f} %"
            )
        if self.mode != "pac-bayes":
            return f"{self.samples:,} bound samples are too few for an error of {100 * self.error:.1f} %"
        return f"the KL of {self.kl:,.0f} nats is too much for {self.samples:,} samples"

    @property
    def promise(self) -> str:
        """The certificate in one sentence."""
        return (
            f"With a confidence of {1 - self.delta:.4g}, at most {_up(self.bound)} of the answers "
            f"on unseen data of the same kind are wrong{PREDICTORS[self.mode]}."
        )

    def _short(self) -> str:
        return THEOREMS.get(self.theorem, self.theorem).partition(" (")[0]

    def _drawn(self) -> str:
        if not self.draws:
            return ""
        return (
            f" (at most {_up(self.error_limit)} by {self.draws:,} draws of the weights, "
            f"δ' = {self.monte_carlo_delta:g})"
        )

    def __str__(self) -> str:
        others = ", ".join(
            f"{name} {_up(min(value, 9.99))}"
            for name, value in self.bounds.items()
            if name != self.theorem
        )
        also = f"; {others}" if others else ""
        lines = [
            f"{self.name or 'certificate'}: {self.verdict}",
            self.promise if self.valid else "No promise follows from these numbers.",
            f"  bound         {_up(self.bound)}  ({self._short()}, δ = {self.delta:g}{also})",
            f"  error         {100 * self.error:.2f} %  on {self.samples:,} bound samples"
            f"{self._drawn()}",
        ]
        if self.mode == "pac-bayes":
            lines.append(
                f"  KL            {self.kl:,.1f} nats, {self.posterior} posterior from the "
                f"{self.prior} prior"
            )
        lines += [
            f"  paid          {nats:.1f} nats for {PAID.get(name, name)}"
            for name, nats in self.paid.items()
        ]
        if self.prior_error is not None and self.prior_bound is not None:
            lines.append(
                f"  prior alone   {100 * self.prior_error:.2f} %  (held-out bound {_up(self.prior_bound)}, "
                "no noise)"
            )
        if self.test_error is not None:
            lines.append(
                f"  test error    {100 * self.test_error:.2f} %  on {self.sizes.get('test', 0):,} samples"
            )
        if self.recommendation:
            lines.append(f"  advice        {self.recommendation}")
        return "\n".join([*lines, *(f"  note          {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Make plain data that JSON can hold, without the model."""
        fields = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "model"
        }
        return {"schema": SCHEMA, "verdict": self.verdict, **plain(fields, fallback=repr)}

    def to_json(self) -> str:
        """Write the certificate as one line of strict JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, sort_keys=True)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read back what :meth:`to_dict` wrote."""
        if data.get("schema") != SCHEMA:
            raise InputError(
                f"A certificate must have schema {SCHEMA}, got {data.get('schema')!r}. Upgrade "
                "mindgap."
            )
        fields = {
            _FORMER_NAMES.get(name, name): unworded(value)
            for name, value in data.items()
            if name not in ("schema", "verdict")
        }
        return cls(**{**fields, "notes": tuple(fields.get("notes", ()))})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read back what :meth:`to_json` wrote."""
        return cls.from_dict(json.loads(text))
