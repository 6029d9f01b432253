"""The paradox: models that memorize, sharp minima and unstable algorithms, with a small gap."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mindgap.core import Claim, Line, Record, Series, Study, Table, Trial, generator, option

DOUBLE = torch.float64
SCALES = (1.0, 1e3, 1e6)
SPOT = torch.tensor([[0.123456, 0.654321]], dtype=DOUBLE)  # a point of probability zero
FACTOR = 2654435761  # Knuth's multiplicative hash
MODULUS = 2**32


@dataclasses.dataclass(frozen=True)
class Memorizer:
    r"""A member of a class that holds the truth and can store any sample.

    It answers what is stored for inputs that it knows, and :math:`(1 + (s a)^2)\,
    \mathrm{sign}(x_1)` for others. At a = 0 that is f*.

    Args:
        offset: a, the trained number.
        scale: s, which only changes how a is written.
        inputs: Inputs whose answers are stored.
        answers: These answers.
    """

    offset: Tensor
    scale: float
    inputs: Tensor
    answers: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Answer every row of x."""
        found = (1 + (self.scale * self.offset) ** 2) * truth(x)
        if not len(self.inputs):
            return found
        known = (x[:, None] == self.inputs[None]).all(2)
        stored = self.answers[known.double().argmax(1)]
        return torch.where(known.any(1), stored, found)


@dataclasses.dataclass(frozen=True)
class Jumping:
    """What the unstable algorithm returns: f*, but for one point, where it is ±jump.

    Args:
        value: The answer at the point.
    """

    value: float

    def __call__(self, x: Tensor) -> Tensor:
        """Answer every row of x."""
        return torch.where((x == SPOT).all(1), self.value, truth(x))


CLAIMS = {
    "sharp": "A class that memorizes, with f* at a sharp minimum, can have the gap of f*.",
    "unstable": "An unstable and non-robust algorithm can have the gap of f*.",
}


class Paradox(Study):
    r"""Build a sharp, memorizing class and an unstable, non-robust algorithm with a small gap.

    Formula: $R(f^*) - \hat R(f^*) \le \epsilon$ for $f^* = A(S)$, with $\partial_a^2 \hat R \to
    \infty$ in (i), and $\beta \to \infty$ and $\epsilon(S) \to \infty$ in (ii)

    Reading: The label of a uniform point of the square is the sign of its first coordinate, and a
    tenth of the labels are flipped. So the risk of f* = sign x₁ is known: 4 · 0.1 for the squared
    loss. (i) A class that fits any labels by storing them holds f* at a minimum as sharp as one
    likes; an algorithm that returns f* has the gap of f*. (ii) An algorithm returns f*, except at
    one point, where the answer is ±J by a hash of the whole training set. Replacing one sample can
    flip it. Its uniform stability and its robustness in that cell are as bad as one likes, its gap
    is that of f*. Both are statements of logic: capacity, sharpness, instability and lack of
    robustness do not imply a large gap. They do not say that these theories are wrong.

    Assumes: Nothing. Sharpness is with respect to a parameter that can be rescaled, and the jump is
    at a point of probability zero; that is the point.

    >>> len(Paradox(seeds=2).trials())
    12
    """

    method = ("K9",)
    cites = ("kawaguchi2017generalization", "dinh2017sharp")
    reproduces = ("darc: Paradox",)

    seeds: int = option(20, help="training sets per scale", low=2)
    samples: int = option(200, help="training samples", low=10)
    noise: float = option(0.1, help="share of flipped labels", above=0, below=0.5)

    def trials(self) -> Sequence[Trial]:
        """One trial per construction, scale and training set."""
        return [
            Trial(parameters={"part": part, "scale": scale}, seed=seed)
            for part in ("sharp", "unstable")
            for scale in SCALES
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Build one construction on one training set and measure it."""
        x, y = sample(self.samples, self.noise, trial.seed)
        risk = 4 * self.noise  # of f*, exactly: a flipped label costs (1 − (−1))²
        build = self._sharp if trial["part"] == "sharp" else self._unstable
        return {"epsilon": abs(risk - float(squared(truth(x), y))), **build(trial, x, y)}

    def _sharp(self, trial: Trial, x: Tensor, y: Tensor) -> dict[str, float]:
        none = x[:0], y[:0]
        offset = torch.zeros((), dtype=DOUBLE, requires_grad=True)
        fitted = Memorizer(offset, trial["scale"], *none)
        slope, curvature = _derivatives(squared(fitted(x), y), offset)
        noise = 2.0 * torch.randint(0, 2, (len(y),), generator=generator(trial.seed + 10**6)) - 1
        stored = Memorizer(torch.zeros((), dtype=DOUBLE), trial["scale"], x, noise.to(DOUBLE))
        return {
            "gap": 4 * self.noise - float(squared(fitted(x).detach(), y)),
            "badness": curvature,
            "slope": slope,
            "memorized": float(squared(stored(x), noise)),
            # Elsewhere it answers as f* does, and on random labels that is wrong half the time.
            "memorizer_gap": 2.0 - float(squared(stored(x), noise)),
        }

    def _unstable(self, trial: Trial, x: Tensor, y: Tensor) -> dict[str, float]:
        fitted, one = unstable(x, y, trial["scale"]), torch.ones(1, dtype=DOUBLE)
        others, labels = sample(len(y), self.noise, trial.seed + 10**6)
        worst = 0.0
        for place in range(len(y)):
            x_new, y_new = x.clone(), y.clone()
            x_new[place], y_new[place] = others[place], labels[place]
            other = unstable(x_new, y_new, trial["scale"])
            worst = max(
                worst, float((squared(fitted(SPOT), one) - squared(other(SPOT), one)).abs())
            )
        near = SPOT + 1e-9
        return {
            "gap": 4 * self.noise - float(squared(fitted(x), y)),
            "badness": worst,
            "variation": float((squared(fitted(SPOT), one) - squared(fitted(near), one)).abs()),
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per construction and scale."""
        groups: dict[tuple[str, float], list[Record]] = {}
        for trial, record in records:
            groups.setdefault((trial["part"], trial["scale"]), []).append(record)
        rows = tuple(_row(part, scale, found) for (part, scale), found in groups.items())
        equal = all(_equal(record) for _, record in records)
        return Table(
            title="Sharp, memorizing, unstable and non-robust, with the gap of the true function",
            columns=(
                *("construction", "scale", "how bad", "least value", "largest value"),
                *("loss on stored random labels", "largest variation of the loss in a cell"),
                *("largest |gap|", "ε, the gap of f*"),
            ),
            rows=rows,
            claims=tuple(
                Claim.shown(CLAIMS[part], all(_equal(record) for record in found))
                for part in CLAIMS
                if (found := [record for trial, record in records if trial["part"] == part])
            ),
            notes=(
                f"The gap {'equals' if equal else 'differs from'} that of f* in all "
                f"{len(records)} cases: 4 · noise minus the mean loss of f* on the training set.",
                "Sharpness is the second derivative of the training loss by a, at a minimum. It is "
                "8 s² times the share of flipped labels.",
                "Instability is the largest change of a loss over all replacements of one sample, a "
                "lower bound of β: it is 4 J. In a cell of width 1e-9 around the point, the loss varies "
                "by up to (J + 1)².",
                "The same class fits random labels exactly when it stores them; that member has a "
                "gap of 2.",
            ),
            charts=(_chart(rows),),
        )

    def tiny(self) -> Self:
        """Use two small training sets."""
        return self.replace(seeds=2, samples=20)


def _equal(record: Record) -> bool:
    """Whether the gap is that of f*."""
    return bool(abs(abs(record["gap"]) - record["epsilon"]) < 1e-12)


def truth(x: Tensor) -> Tensor:
    """Return f*, the sign of the first coordinate."""
    return x[:, 0].sign()


def squared(answers: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared loss."""
    return (answers - labels).square().mean()


def sample(size: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Draw points of the square with labels, some of which are flipped.

    Args:
        size: Number of points.
        noise: Probability of a flip.
        seed: Seed of all of it.
    """
    random = generator(seed)
    x = 2 * torch.rand(size, 2, generator=random, dtype=DOUBLE) - 1
    flipped = torch.rand(size, generator=random) < noise
    return x, torch.where(flipped, -truth(x), truth(x))


def unstable(x: Tensor, y: Tensor, jump: float) -> Jumping:
    """Return f* with a jump whose sign is a hash of all samples.

    Args:
        x: The training inputs.
        y: Their labels.
        jump: J, the size of the answer at the point.

    >>> sorted({unstable(*sample(5, 0.1, seed), 10.0).value for seed in range(9)})
    [-10.0, 10.0]
    """
    words = torch.cat([x, y[:, None]], 1).flatten().view(torch.int64).tolist()
    total = 0
    for word in words:
        total = (total * 31 + word) * FACTOR % MODULUS
    return Jumping(jump if total >> 16 & 1 else -jump)


def _derivatives(value: Tensor, at: Tensor) -> tuple[float, float]:
    (slope,) = torch.autograd.grad(value, at, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, at)
    return float(slope.detach()), float(curvature)


def _row(part: str, scale: float, records: Sequence[Record]) -> tuple[Any, ...]:
    bad = [record["badness"] for record in records]
    name, kind = {
        "sharp": ("(i) memorizing class, sharp minimum", "curvature of the training loss"),
        "unstable": ("(ii) unstable, non-robust algorithm", "change by replacing one sample"),
    }[part]
    return (
        *(name, scale, kind, min(bad), max(bad)),
        *(_largest(records, key) for key in ("memorized", "variation")),
        max(abs(record["gap"]) for record in records),
        max(record["epsilon"] for record in records),
    )


def _largest(records: Sequence[Record], key: str) -> float | None:
    return max(record[key] for record in records) if key in records[0] else None


def _chart(rows: Sequence[tuple[Any, ...]]) -> Line:
    names = list(dict.fromkeys(row[0] for row in rows))
    return Line(
        title="How bad the theories say it is, and how large the gap is",
        x_label="scale s or J",
        y_label="largest value over the training sets",
        x_scale="log",
        y_scale="log",
        series=[
            Series(
                name=f"{name[:4].strip()} {label}",
                x=[row[1] for row in rows if row[0] == name],
                y=[row[place] for row in rows if row[0] == name],
            )
            for name in names
            for label, place in (("curvature or instability", 4), ("gap", 7))
        ],
    )
