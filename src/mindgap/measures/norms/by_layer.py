"""What the measures of layers' norms share: conventions, margins, logarithms and figures."""

import abc
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from mindgap.core import Bar, Estimate, Measure, Subject, Undefined, option
from mindgap.measures.margins.margin import at
from mindgap.ops.norms.network import network_of

Convention = Literal["operator", "kernel"]
MARGIN = 0.1  # the quantile of the training margins that Jiang et al. take


class ByLayer(Measure, abc.ABC, abstract=True):
    """A measure that is made of one norm per layer.

    Dense layers and convolutions count, with batch normalization folded into them; ``details`` says
    what else has weights and was skipped. Biases do not count.
    """

    method = ("E10",)
    direction = "lower"

    convention: Convention = option(
        "operator",
        help="norms of the map at its real input (operator), or of the kernel as a matrix (kernel)",
    )
    as_published: bool = option(
        False,
        help=(
            "as the code of Dziugaite et al.: every convolution circular, of stride 1 and at the "
            "image's size, Frobenius norms of kernels, and the margin without its sign"
        ),
    )

    @property
    def spectral(self) -> str:
        """The convention of spectral norms."""
        return "image" if self.as_published else self.convention

    @property
    def entries(self) -> str:
        """The convention of norms that only sum up entries."""
        return "kernel" if self.as_published else self.convention

    def estimate(
        self,
        subject: Subject,
        value: float,
        parts: Sequence[float],
        title: str,
        *,
        converged: bool | None = None,
        **others: Any,
    ) -> Estimate:
        """Return a value with one bar per layer, and what counted.

        A value that leaves layers out is exact for the others only, which makes it a heuristic.

        Args:
            subject: The model.
            value: The value.
            parts: One number per layer.
            title: That of the figure.
            converged: Whether every search for a norm did; None if there was none.
            **others: Further fields of the estimate.
        """
        network = network_of(subject)
        if network.skipped:
            others["status"] = "heuristic"
        named = dict(zip(unique([layer.name for layer in network.layers]), parts, strict=True))
        chart = Bar.of(named, title=title, y_label=title.lower(), horizontal=True, wide=False)
        reached = {} if converged is None else {"converged": converged}
        details = {"by_layer": named, **reached, **network.support}
        return Estimate(value=value, details=details, charts=(chart,), **others)


class NormProduct(ByLayer, abc.ABC, abstract=True):
    """The product of all layers' norms, or their balanced sum."""

    balanced: ClassVar[bool] = False
    searched: ClassVar[bool] = False  # whether a norm is exact because a search for it converged
    title: ClassVar[str] = ""
    cites = ("jiang2020fantastic", "dziugaite2020search")
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling"})

    margin: bool = option(False, help="divide by the squared margin of the training samples")

    @abc.abstractmethod
    def norms(self, subject: Subject) -> tuple[list[float], bool]:
        """Return the norm of every layer, and whether all are exact."""

    def compute(self, subject: Subject) -> Estimate:
        """Return half the logarithm of the value over n, and the same over the margin."""
        norms, exact = self.norms(subject)
        total = math.fsum(2 * log_of(norm, "the norm of a layer") for norm in norms)
        total = math.log(len(norms)) + total / len(norms) if self.balanced else total
        plain = (total - math.log(len(subject.train))) / 2
        # The published sums are d (∏‖W‖² / γ²)^(1/d), so that a d-th part of the margin is left.
        parts = len(norms) if self.balanced and self.as_published else 1
        terms = {
            "layers": float(len(norms)),
            **over_margin(subject, plain, parts=parts, unsigned=self.as_published),
        }
        if self.margin:
            the_margin(subject, unsigned=self.as_published)
            plain = terms.pop("over_margin")
        status = "exact" if exact else "heuristic"
        reached = exact if self.searched else None
        return self.estimate(
            subject, plain, norms, self.title, converged=reached, terms=terms, status=status
        )


def log_of(value: float, what: str) -> float:
    """Return a logarithm; what is zero has none, and says so."""
    if value <= 0:
        raise Undefined(f"needs a logarithm, and {what} is zero")
    return math.log(value)


def positive_margin(subject: Subject) -> float:
    """Return the tenth percentile of the training margins; raise Undefined if it is not positive."""
    if subject.task != "classification":
        raise Undefined(f"needs a classification for its margin, this is a {subject.task}")
    found = at(subject.margins("train").double(), MARGIN)
    if found <= 0:
        raise Undefined(
            f"needs a positive margin, and the tenth percentile of the training margins is {found:.3g}"
        )
    return found


def published_margin(subject: Subject) -> float:
    """Return the tenth percentile without its sign, as it was published; zero has no inverse.

    It is the smallest margin but ⌊n/10⌋ − 1, and a negative one, of a net with many errors, counts
    as a large one.
    """
    margins = subject.margins("train").double()
    found = abs(float(margins.kthvalue(max(1, len(margins) // 10)).values))
    if found == 0:
        raise Undefined("needs a margin, and the tenth percentile of the training margins is zero")
    return found


def the_margin(subject: Subject, *, unsigned: bool = False) -> float:
    """Return the margin that a value is divided by.

    Args:
        subject: A classification.
        unsigned: Whether its sign is dropped, as published.
    """
    if unsigned and subject.task == "classification":
        return published_margin(subject)
    return positive_margin(subject)


def over_margin(
    subject: Subject, value: float, *, parts: int = 1, unsigned: bool = False
) -> dict[str, float]:
    """Return a logarithmic value divided by the margin, as a term; nothing where none is positive.

    Args:
        subject: The model and its training data.
        value: The logarithm.
        parts: The root of the margin that it is divided by.
        unsigned: Whether the sign of the margin is dropped, as published.
    """
    try:
        return {"over_margin": value - math.log(the_margin(subject, unsigned=unsigned)) / parts}
    except Undefined:
        return {}


def unique(names: Sequence[str]) -> list[str]:
    """Number the second and later calls of a layer.

    >>> unique(["fc", "fc", "out"])
    ['fc', 'fc (2)', 'out']
    """
    seen, found = dict[str, int](), list[str]()
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
