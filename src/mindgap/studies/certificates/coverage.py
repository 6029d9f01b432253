"""How often certificates fail on problems whose risk is known."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from mindgap.core import (
    Bar,
    Certificate,
    Recipe,
    Record,
    Series,
    Study,
    Table,
    Trial,
    generator,
    option,
    proportion_interval,
)
from mindgap.training.certify.job import certify

FEATURES = 5
NOISE = 0.1  # share of the half-space labels that are flipped
SUMS = ("risk", "error", "certificate", "KL")
PRIORS, POSTERIORS = ("learned", "initial"), ("gaussian", "uniform")


def half_space(count: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw Gaussian inputs and labels: the sign of the first input, flipped with rate ``NOISE``."""
    inputs = torch.randn(count, FEATURES, generator=source)
    turned = torch.rand(count, generator=source) < NOISE
    return inputs, ((inputs[:, 0] > 0) ^ turned).long()


def coins(count: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw Gaussian inputs and random labels that do not depend on them."""
    return torch.randn(count, FEATURES, generator=source), torch.randint(
        0, 2, (count,), generator=source
    )


def half_space_risk(weights: Tensor) -> float:
    """Return the exact mean risk of linear classifiers on the half-space.

    A classifier disagrees with the true half-space with probability angle/π, where the angle is
    that between the two normals.

    Args:
        weights: Weights of the classifiers, ``(classifiers, 2, features)``.

    >>> right = torch.eye(FEATURES)[:1] * torch.tensor([[-1.0], [1.0]])
    >>> half_space_risk(right[None]), half_space_risk(-right[None])
    (0.1, 0.9)
    """
    normal = (weights[:, 1] - weights[:, 0]).double()
    cosine = normal[:, 0] / torch.linalg.vector_norm(normal, dim=1)
    apart = torch.arccos(cosine.clamp(-1, 1)) / math.pi
    return float((NOISE + (1 - 2 * NOISE) * apart).mean())


PROBLEMS: Mapping[
    str, tuple[Callable[[int, torch.Generator], tuple[Tensor, Tensor]], Callable[[Tensor], float]]
] = {
    "half-space": (half_space, half_space_risk),
    "coins": (coins, lambda _: 0.5),
}


class CertificateCoverage(Study):
    r"""How often certificates fail, on draws of problems whose risk is known.

    Formula: $P\left( \mathbb{E}_{w \sim Q} L(w) > B \right) \le \delta$

    Reading: Every draw is a new training set, on which a linear classifier is certified. In the
    half-space problem the label is the side of a plane, and a tenth of the labels are flipped. The
    risk of a linear classifier then follows exactly from an angle. The risk of the stochastic
    classifier is its mean over draws from the posterior. In the coins problem labels are random, so
    every risk is one half. A certificate fails if it is below the risk, which may happen in at most
    a share δ of the draws. The control is the error on the bound data, read as if it were a bound.

    Assumes: Independent samples, as generated here.

    >>> len(CertificateCoverage(draws=100, block=50).trials())
    16
    """

    method = ("P1",)
    cites = ("perezortiz2021tighter", "dziugaite2017computing")

    draws: int = option(1000, help="training sets for every problem, prior and posterior", low=2)
    block: int = option(50, help="training sets per trial", low=1)
    samples: int = option(100, help="samples per training set", low=10)
    delta: float = option(
        0.1, help="probability with which a certificate may fail", above=0, below=1
    )

    def trials(self) -> Sequence[Trial]:
        """Blocks of training sets, for every problem, prior and posterior."""
        cases = itertools.product(PROBLEMS, PRIORS, POSTERIORS, range(0, self.draws, self.block))
        names = ("problem", "prior", "posterior", "first")
        return [Trial(parameters=dict(zip(names, case, strict=True))) for case in cases]

    def run(self, trial: Trial) -> Record:
        """Certify every training set of the block and compare with the risk."""
        seeds = range(trial["first"], min(trial["first"] + self.block, self.draws))
        rows = [self._certified(trial, seed) for seed in seeds]
        sums = {name: math.fsum(row[name] for row in rows) for name in SUMS}
        return {
            **sums,
            "draws": len(rows),
            "failed": sum(row["certificate"] < row["risk"] for row in rows),
            "error below": sum(row["error"] < row["risk"] for row in rows),
        }

    def _certified(self, trial: Trial, seed: int) -> dict[str, float]:
        make, risk = PROBLEMS[trial["problem"]]
        recipe = Recipe(
            model=lambda: nn.Linear(FEATURES, 2, bias=False),
            train=make(self.samples, generator(seed)),
            epochs=3,
            batch_size=50,
            learning_rate=0.1,
        )
        found = certify(
            recipe,
            prior=trial["prior"],
            posterior=trial["posterior"],
            delta=self.delta,
            monte_carlo_delta=self.delta / 10,
            epochs=10,
            batch_size=50,
            learning_rate=0.05,
            scale=0.3,
            draws=4000,
            seed=seed,
        )
        known = risk(drawn(found, 4000, seed))
        return {"risk": known, "error": found.error, "certificate": found.bound, "KL": found.kl}

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per problem, prior and posterior."""
        cases: dict[tuple[str, ...], list[Record]] = {}
        for trial, record in records:
            cases.setdefault((trial["problem"], trial["prior"], trial["posterior"]), []).append(
                record
            )
        rows = tuple((*case, *_row(blocks)) for case, blocks in cases.items())
        worst = max(row[-2] / row[3] for row in rows)
        verdict = "none fails too often" if worst <= self.delta else "some fail too often"
        return Table(
            title=f"Certificates with δ = {self.delta:g} on draws of problems with known risk",
            columns=(
                *("problem", "prior", "posterior", "draws", *SUMS),
                *("error below risk", "failed", "95 % interval"),
            ),
            rows=rows,
            notes=(
                "Failed: the certificate is below the risk of the stochastic classifier; "
                f"{verdict} (at most {self.delta:.0%} of the draws).",
                "Risk, error on the bound data, certificate and KL are means over the draws. The "
                "risk is exact for one classifier; for the posterior it is a mean over 4,000 "
                "classifiers. The interval is the Clopper–Pearson interval of the failure rate.",
                "Control: the share of draws in which the error on the bound data is below the "
                "risk. That is how often it would fail as a bound.",
            ),
            charts=(_chart(rows),),
        )

    def tiny(self) -> Self:
        """Use two training sets per case."""
        return self.replace(draws=2, block=2, samples=20)


def drawn(found: Certificate, count: int, seed: int) -> Tensor:
    """Draw the weights of classifiers from the posterior, ``(classifiers, 2, features)``.

    Args:
        found: The certificate with its posterior.
        count: Number of classifiers.
        seed: For the draws.
    """
    with torch.no_grad():
        weights: Tensor = found.model.draw(generator(seed), count)["weight"]
    return weights


def _row(blocks: Sequence[Record]) -> tuple[Any, ...]:
    draws, failed, below = (
        sum(block[name] for block in blocks) for name in ("draws", "failed", "error below")
    )
    means = (math.fsum(block[name] for block in blocks) / draws for name in SUMS)
    interval = proportion_interval(failed, draws)
    share = f"{100 * below / draws:.0f} %"
    return (
        draws,
        *means,
        share,
        failed,
        f"[{100 * interval.low:.2f}, {100 * interval.high:.2f}] %",
    )


def _chart(rows: Sequence[tuple[Any, ...]]) -> Bar:
    names = [", ".join(row[:3]) for row in rows]
    return Bar(
        title="Risk, error on the bound data and certificate, means over the draws",
        x_label="problem, prior, posterior",
        y_label="error rate",
        series=[
            Series(name=name, x=names, y=[row[4 + SUMS.index(name)] for row in rows])
            for name in SUMS[:3]
        ],
    )
