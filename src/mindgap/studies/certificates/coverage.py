"""How often certificates fail on problems whose risk is known."""

import math
from collections.abc import Sequence
from typing import Any, Self

from mindgap.core import (
    Bar,
    InputError,
    Record,
    Series,
    Study,
    Table,
    Trial,
    option,
    proportion_interval,
)
from mindgap.core.chart.numbers import round_down, round_up
from mindgap.studies.certificates.problems import ATTACKS, DRAWS, PROBLEMS, Draw, combinations
from mindgap.training.certify.job import certify

SUMS = ("risk", "error", "certificate", "KL")


class CertificateCoverage(Study):
    r"""How often certificates fail, on draws of problems whose risk is known.

    Formula: $P\left( \mathbb{E}_{w \sim Q} L(w) > B \right) \le \delta$

    Reading: Every draw is a new training set, on which a linear classifier is certified. In the
    half-space problem the label is the side of a plane, and a tenth of the labels are flipped. The
    risk of a linear classifier then follows exactly from an angle. The risk of the stochastic
    classifier is its mean over draws from the posterior. In the coins problem labels are random, so
    every risk is one half. A certificate fails if it is valid and below the risk, which may happen
    in at most a share δ of the draws. The control is the error on the bound data, read as if it
    were a bound.

    The mixture is never tight for a single classifier, so two problems look at the kl bound of the
    same certificate, which shares its δ. They have four bound samples and a classifier of fixed
    risk. In the tight one a true bound fails about as often as the theorem allows, in δ/ξ(n) of the
    draws. In the sensitive one it never does, but one whose δ is wrong by a factor of 18 fails in
    3δ of them. The held-out and the progressive mode certify fixed models, whose risk is exact; the
    tight held-out problem fails in δ/2 of the draws. The attacks carry coin labels into the prior: by sample weights
    computed from all labels, by held-out data that are the training data in another precision, by
    state outside the state dict. None may get a valid certificate.

    Assumes: Independent samples, as generated here.

    >>> len(CertificateCoverage(draws=100, block=50).trials())
    36
    """

    method = ("P1",)
    cites = ("perezortiz2021tighter", "dziugaite2017computing")

    draws: int = option(1000, help="training sets for every problem, prior and posterior", low=2)
    block: int = option(50, help="training sets per trial", low=1)
    samples: int = option(100, help="samples per training set", low=10)
    delta: float = option(
        0.04, help="probability with which a certificate may fail", above=0, below=1
    )

    def trials(self) -> Sequence[Trial]:
        """Blocks of training sets, for every problem, prior and posterior."""
        names = ("problem", "prior", "posterior", "first")
        return [
            Trial(parameters=dict(zip(names, (*case, first), strict=True)))
            for case in combinations()
            for first in range(0, self.draws, self.block)
        ]

    def run(self, trial: Trial) -> Record:
        """Certify every training set of the block and compare with the risk."""
        seeds = range(trial["first"], min(trial["first"] + self.block, self.draws))
        rows = [row for seed in seeds if (row := self._certified(trial, seed)) is not None]
        sums = {name: math.fsum(row[name] for row in rows) for name in SUMS}
        valid = [row for row in rows if row["valid"]]
        return {
            **sums,
            "draws": len(seeds),
            "certified": len(rows),
            "valid": len(valid),
            "failed": sum(row["certificate"] < row["risk"] for row in valid),
            "error below": sum(row["error"] < row["risk"] for row in rows),
        }

    def _certified(self, trial: Trial, seed: int) -> dict[str, float] | None:
        """Return the numbers of one certificate, or None for an attack that is refused."""
        name = trial["problem"]
        case = {**PROBLEMS, **ATTACKS}[name](
            Draw(samples=self.samples, delta=self.delta, seed=seed)
        )
        common: dict[str, Any] = {}
        if trial["posterior"] != "none":
            common = {
                "posterior": trial["posterior"],
                "monte_carlo_delta": self.delta / 10,
                "epochs": 10,
                "batch_size": 50,
                "learning_rate": 0.05,
                "scale": 0.3,
                "draws": DRAWS,
            }
        try:
            found = certify(
                case.subject,
                prior=trial["prior"],
                delta=self.delta,
                seed=seed,
                **{**common, **case.settings},
            )
        except InputError:
            if name in ATTACKS:
                return None
            raise
        return {
            "risk": case.risk(found),
            "error": found.error,
            "certificate": found.bounds[case.theorem] if case.theorem else found.bound,
            "KL": found.kl,
            "valid": found.valid,
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per problem, prior and posterior."""
        cases: dict[tuple[str, ...], list[Record]] = {}
        for trial, record in records:
            cases.setdefault((trial["problem"], trial["prior"], trial["posterior"]), []).append(
                record
            )
        rows = tuple((*case, *_row(blocks)) for case, blocks in cases.items())
        return Table(
            title=f"Certificates with δ = {self.delta:g} on draws of problems with known risk",
            columns=(
                *("problem", "prior", "posterior", "draws", *SUMS),
                *("error below risk", "valid", "failed", "95 % interval"),
            ),
            rows=rows,
            notes=(
                "Failed: the certificate is valid and below the risk of the stochastic classifier; "
                f"{self._verdict(rows)}.",
                "Risk, error on the bound data, certificate and KL are means over the draws, "
                "without those that are refused. The risk is exact for one classifier; for the "
                f"posterior it is a mean over {DRAWS:,} classifiers. The interval is the "
                "Clopper–Pearson interval of the failure rate, rounded outwards.",
                "Control: the share of draws in which the error on the bound data is below the "
                "risk. That is how often it would fail as a bound.",
            ),
            charts=(_chart([row for row in rows if row[4] is not None]),),
        )

    def _verdict(self, rows: Sequence[tuple[Any, ...]]) -> str:
        """Say whether too many certificates fail, and whether an attack gets a valid one."""
        often = max(row[10] / row[3] for row in rows)
        fooled = [row[0] for row in rows if row[0] in ATTACKS and row[9]]
        words = "none fails too often" if often <= self.delta else "some fail too often"
        return f"{words} (at most {100 * self.delta:.0f} % of the draws)" + (
            f", and {', '.join(fooled)} gets valid certificates" if fooled else ""
        )

    def tiny(self) -> Self:
        """Use two training sets per case."""
        return self.replace(draws=2, block=2, samples=20)


def _row(blocks: Sequence[Record]) -> tuple[Any, ...]:
    draws, certified, valid, failed, below = (
        sum(block[name] for block in blocks)
        for name in ("draws", "certified", "valid", "failed", "error below")
    )
    sums = [math.fsum(block[name] for block in blocks) for name in SUMS]
    interval = proportion_interval(failed, draws)
    low, high = round_down(100 * interval.low, 2), round_up(100 * interval.high, 2)
    return (
        draws,
        *(total / certified if certified else None for total in sums),
        f"{100 * below / certified:.0f} %" if certified else None,
        valid,
        failed,
        f"[{low:.2f}, {high:.2f}] %",
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
