"""Certificate: what a PAC-Bayes bound promises about a random model, with all that is needed to check it."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

from mindgap.core.errors import InputError
from mindgap.core.plain import plain, unworded

SCHEMA = 1
THEOREMS = {
    "kl": "kl inverse (Langford and Seeger, Maurer)",
    "quadratic": "quadratic (Rivasplata et al.)",
    "mcallester": "square root (McAllester, Maurer)",
    "catoni": "exponential (Catoni, grid)",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """An upper limit of the risk of a model whose weights are drawn anew for every answer.

    With probability ``1 - delta`` over the draw of the bound data and of the Monte-Carlo weights,
    the 0-1 risk is at most ``bound``, the kl inverse. ``bounds`` holds the same by other theorems
    and ``loss_bounds`` those of the bounded cross entropy; each holds with that probability on its
    own. ``error_limit`` is the upper limit of the error on the bound data by ``draws`` independent
    draws, which takes ``monte_carlo_delta`` of ``delta``. ``guess`` is the error of always
    answering the bound data's most frequent class. ``prior_error`` and ``prior_bound`` are the
    control: a learned prior's own mean weights on the bound data, and the held-out bound on them.
    ``broken`` names what breaks the theorem. ``model`` is the random model itself; JSON does not
    hold it.

    >>> common = {
    ...     "bounds": {},
    ...     "loss_bounds": {},
    ...     "kl": 3.0,
    ...     "samples": 100,
    ...     "error": 0.1,
    ...     "error_limit": 0.12,
    ... }
    >>> found = Certificate(bound=0.3, loss=0.1, loss_limit=0.1, draws=1000, guess=0.9, **common)
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
    guess: float
    delta: float = 0.05
    monte_carlo_delta: float = 0.01
    name: str = ""
    prior: str = ""
    posterior: str = ""
    scale: float = 0.0
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
        """Whether guessing promises as much."""
        return self.bound >= min(1.0, self.guess)

    @property
    def verdict(self) -> str:
        """``valid, non-vacuous``, or why not."""
        if self.broken:
            return f"not valid ({self.broken})"
        if not self.vacuous:
            return "valid, non-vacuous"
        return f"valid, vacuous ({self._why_vacuous()})"

    def _why_vacuous(self) -> str:
        if self.error_limit >= self.guess:
            return f"the random model errs on {self.error:.1%} of the bound data, guessing on {self.guess:.1%}"
        return f"the KL of {self.kl:,.0f} nats is too much for {self.samples:,} samples"

    @property
    def promise(self) -> str:
        """The certificate in one sentence."""
        return (
            f"With a confidence of {1 - self.delta:.4g}, at most {self.bound:.2%} of the answers "
            "on unseen data of the "
            "same kind are wrong, if the weights are drawn anew for every answer."
        )

    def __str__(self) -> str:
        draws = (
            f"at most {self.error_limit:.2%} by {self.draws:,} draws of the weights, "
            f"δ' = {self.monte_carlo_delta:g}"
        )
        others = ", ".join(
            f"{name} {min(value, 9.99):.2%}" for name, value in self.bounds.items() if name != "kl"
        )
        lines = [
            f"{self.name or 'certificate'}: {self.verdict}",
            self.promise if self.valid else "No promise follows from these numbers.",
            f"  bound         {self.bound:.2%}  (kl inverse, δ = {self.delta:g}; {others})",
            f"  error         {self.error:.2%}  on {self.samples:,} bound samples ({draws})",
            f"  KL            {self.kl:,.1f} nats, {self.posterior} posterior from the "
            f"{self.prior} prior",
        ]
        if self.prior_error is not None and self.prior_bound is not None:
            lines.append(
                f"  prior alone   {self.prior_error:.2%}  (held-out bound {self.prior_bound:.2%}, "
                "no noise)"
            )
        if self.test_error is not None:
            lines.append(
                f"  test error    {self.test_error:.2%}  on {self.sizes.get('test', 0):,} samples"
            )
        return "\n".join([*lines, *(f"  note          {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, without the model."""
        fields = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "model"
        }
        return {"schema": SCHEMA, "verdict": self.verdict, **plain(fields, fallback=repr)}

    def to_json(self) -> str:
        """One line of strict JSON."""
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
            name: unworded(value)
            for name, value in data.items()
            if name not in ("schema", "verdict")
        }
        return cls(**{**fields, "notes": tuple(fields.get("notes", ()))})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read back what :meth:`to_json` wrote."""
        return cls.from_dict(json.loads(text))
