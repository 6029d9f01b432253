"""PAC-Bayes certificates of small networks on images and tables, in minutes on one core."""

import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from mindgap.core import (
    Bar,
    Certificate,
    Line,
    Recipe,
    Record,
    Series,
    Study,
    Subject,
    Table,
    Trial,
    option,
)
from mindgap.core.chart.numbers import round_up, upper
from mindgap.data.catalog import load
from mindgap.data.digits import images
from mindgap.data.mnist import read_idx
from mindgap.data.store import find
from mindgap.studies.certificates.cases import CASES, SLOW, Case
from mindgap.studies.certificates.networks import freeze_normalization
from mindgap.training.certify.job import certify
from mindgap.training.certify.material import parted
from mindgap.training.certify.transform import standardize
from mindgap.training.fit import fit

FIELDS = (
    *("bound", "error", "error_limit", "kl", "paid", "samples", "delta", "draws"),
    *("test_error", "prior_error", "prior_bound", "verdict"),
)
COLUMNS = (
    *("data", "network", "prior", "share", "epochs", "seeds", "published"),
    *("certificate", "least", "largest", "held-out bound", "test error"),
    *("error", "error limit", "KL", "paid", "samples", "draws", "CPU minutes"),
)
Data = tuple[Tensor, Tensor]
FOLDERS = ("fashion-mnist",)  # of idx files, which count only where the user has them


class Certificates(Study):
    r"""PAC-Bayes certificates of small networks on images and tables, in minutes on one core.

    Formula: $\mathbb{E}_{w \sim Q} L(w) \le \max\left\{ p : \ln M(\hat p, p) \le
    \mathrm{KL}(Q \Vert P) + c + \ln\frac{1}{\delta} \right\}$

    Reading: A certificate holds for a stochastic classifier, which draws its weights for every
    prediction. M is the mixture of nine Catoni bounds and Maurer's kl bound, and c the nats that
    pay for choices. A prior around the initial weights knows nothing of the data, and all training
    data compute the bound. With a learned prior, a share of the training data trains the prior and
    the rest computes the bound. The control is then the prior's mean network without noise, with
    its held-out bound (binomial tail) on the same data at the same δ. If the certificate is below
    that bound, the difference is the gain of PAC-Bayes. If it is above, the learned prior does all
    the work. The chart over CPU minutes shows how long the training around initial weights pays.

    Assumes: Independent training samples. Initial priors use no statistic of the data: inputs are
    scaled from [0, 1] to [-1, 1], and the prior's scales are paid for. So is the choice of the
    network, as one of ten. Learned priors pay the same on MNIST, where others were tried before,
    and on the digits, where the rule for the noise of learned priors was found. All else was chosen
    on parts of the prior's data, or on other data sets. How a posterior is trained needs no such
    care. Test data are used for the test error only.

    >>> len(Certificates().trials())
    25
    """

    method = ("P1",)
    cites = ("perezortiz2021tighter", "dziugaite2017computing")
    expected: ClassVar[Mapping[str, float]] = {"learned CNN": 0.0155}

    cases: tuple[str, ...] = option(
        tuple(name for name in CASES if name not in SLOW),
        help="what is certified",
        choices=tuple(CASES),
    )
    size: int = option(60_000, help="the most training samples", low=100)
    test_size: int = option(10_000, help="the most test samples", low=10)
    most_epochs: int = option(100, help="the most epochs of any training", low=0)
    most_passes: int = option(1000, help="the most draws of the weights per bound sample", low=1)
    delta: float = option(
        0.05, help="probability with which a certificate may fail", above=0, below=1
    )

    def trials(self) -> Sequence[Trial]:
        """Every case with its seeds."""
        return [
            Trial(parameters={"case": name}, seed=seed)
            for name in self.cases
            for seed in range(CASES[name].seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Certify one case, or say why not."""
        case = CASES[trial["case"]]
        found = _loaded(case.data, case.above)
        if found is None:
            return {"skipped": f"{case.data}: no such folder of idx files among the user's data"}
        train, test = (
            _first(data, most)
            for data, most in zip(found, (self.size, self.test_size), strict=True)
        )
        recipe = Recipe(model=case.network, train=train, test=test)
        began = time.process_time()
        maker = self._initial if case.prior == "initial" else self._learned
        if case.remedies:
            maker = self._treated
        return _summary(maker(case, recipe, trial.seed), time.process_time() - began)

    def _initial(self, case: Case, recipe: Recipe, seed: int) -> Certificate:
        return certify(
            recipe,
            prior="initial",
            epochs=min(case.epochs, self.most_epochs),
            **self._common(case, len(recipe.train[1]), seed),
        )

    def _learned(self, case: Case, recipe: Recipe, seed: int) -> Certificate:
        bound = len(recipe.train[1]) - round(case.share * len(recipe.train[1]))
        return certify(
            self._trained(case, recipe),
            prior_share=case.share,
            transform=None if case.above is None else standardize,
            **self._common(case, bound, seed),
        )

    def _treated(self, case: Case, recipe: Recipe, seed: int) -> Certificate:
        """Train the prior with remedies, which a recipe does not hold."""
        mine, rest = (
            (recipe.train[0][part], recipe.train[1][part])
            for part in parted(len(recipe.train[1]), case.share, seed)
        )
        prior = self._trained(case, recipe).replace(train=mine, test=None)
        fitted = fit(prior, case.remedies, seed=seed, evaluate_every=0)
        model = freeze_normalization(fitted.model)
        return certify(
            Subject(model, "cross_entropy", mine, recipe.test),
            held_out=rest,
            scale=case.scale,
            epochs=case.moved,
            **self._common(case, len(rest[1]), seed),
        )

    def _trained(self, case: Case, recipe: Recipe) -> Recipe:
        """Return how a learned prior is trained."""
        epochs = min(case.epochs, self.most_epochs)
        schedule = functools.partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=_falling(epochs))
        settings = {"learning_rate": 2e-3, **case.recipe}
        return recipe.replace(**settings, epochs=epochs, schedule=schedule)

    def _common(self, case: Case, bound: int, seed: int) -> dict[str, Any]:
        draws = case.passes and min(case.passes, self.most_passes) * bound
        most = min(1_000_000, self.most_passes * bound)
        return {
            "delta": self.delta,
            "draws": draws,
            "most_draws": most,
            "tried": case.tried,
            "seed": seed,
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per case, with means over its seeds."""
        cases: dict[str, list[Record]] = {}
        for trial, record in records:
            if "skipped" not in record:
                cases.setdefault(trial["case"], []).append(record)
        skipped = sorted({record["skipped"] for _, record in records if "skipped" in record})
        return Table(
            title=f"PAC-Bayes certificates at δ = {self.delta:g}, and held-out bounds of the priors",
            columns=COLUMNS,
            rows=tuple(self._row(name, found) for name, found in cases.items()),
            notes=(
                *_verdicts([record for found in cases.values() for record in found]),
                "Numbers are means over seeds, upper bounds rounded up. Least and largest are over "
                "seeds too. Epochs are those of the posterior around initial weights, and of the "
                "prior where it is learned.",
                "Error: error of the stochastic classifier on the bound data. Its limit includes "
                "the Monte Carlo uncertainty, for which δ' = 0.01 of δ is reserved.",
                "Paid: nats for the learned scales of the prior and for the choice of the network.",
                "CPU minutes are the most of any seed, for everything from the training of the "
                "prior to the error on the test data.",
                "Published: Pérez-Ortiz et al. (2021), a CNN with a learned prior in a different "
                "setting.",
                "UCI tables: is the quality of a red wine above 5, and is a protein's deviation "
                "above 5 Å? Many wines equal another one, and their certificate is about wines that "
                "repeat as often.",
                *(f"Skipped {why}." for why in skipped),
            ),
            charts=(*_bars(cases), *_curve(cases)),
        )

    def _row(self, name: str, found: Sequence[Record]) -> tuple[Any, ...]:
        case, bounds = CASES[name], [record["bound"] for record in found]
        control = [record["prior_bound"] for record in found if record["prior_bound"] is not None]
        mean = {
            key: statistics.fmean(record[key] for record in found)
            for key in ("test_error", "error", "error_limit", "kl")
        }
        paid = statistics.fmean(math.fsum(record["paid"].values()) for record in found)
        return (
            *(case.data, case.label, case.prior, case.share if case.prior == "learned" else None),
            *(min(case.epochs, self.most_epochs), len(found)),
            self.expected.get(name),
            *(upper(value) for value in (statistics.fmean(bounds), min(bounds), max(bounds))),
            upper(statistics.fmean(control)) if control else None,
            mean["test_error"],
            mean["error"],
            upper(mean["error_limit"]),
            round(mean["kl"], 3),
            round(paid, 1),
            found[0]["samples"],
            found[0]["draws"],
            round_up(max(record["cpu_minutes"] for record in found), 2),
        )

    def tiny(self) -> Self:
        """Use few images, few draws and one epoch, without the color images."""
        cases = ("short", "learned CNN", "digits", "clothes")
        return self.replace(cases=cases, size=200, test_size=100, most_epochs=1, most_passes=2)


def _loaded(name: str, above: float | None = None) -> tuple[Data, Data] | None:
    """Load training and test data; None if they are a folder that the user does not have."""
    if name not in FOLDERS:
        found = load(name)
        assert found.test is not None
        if above is None:
            return found.train, found.test
        train, test = (
            (inputs, (targets.flatten() > above).long())
            for inputs, targets in (found.train, found.test)
        )
        return train, test
    parts = [
        [find(f"{name}/{part}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1")]
        for part in ("train", "t10k")
    ]
    if any(path is None for files in parts for path in files):
        return None
    train, test = (
        images(read_idx(pixels)[:, None], read_idx(labels), None, 0, "size")
        for pixels, labels in parts
        if pixels is not None and labels is not None
    )
    return train, test


def _first(data: Data, most: int) -> Data:
    """Take all samples, or a random part of them."""
    if len(data[1]) <= most:
        return data
    some = torch.randperm(len(data[1]), generator=torch.Generator().manual_seed(0))[:most]
    return data[0][some], data[1][some]


def _falling(epochs: int) -> Callable[[int], float]:
    """Make a factor of the learning rate that rises in the first epochs and then falls."""
    risen = max(1, epochs // 6)
    return lambda epoch: min((epoch + 1) / risen, (epochs - epoch) / (epochs - risen + 1))


def _summary(found: Certificate, seconds: float) -> dict[str, Any]:
    return {**{name: getattr(found, name) for name in FIELDS}, "cpu_minutes": seconds / 60}


def _verdicts(records: Sequence[Record]) -> list[str]:
    kinds = sorted({record["verdict"] for record in records})
    counts = [
        f"{sum(record['verdict'] == kind for record in records)} of {len(records)} certificates: "
        f"{kind}."
        for kind in kinds
    ]
    inside = sum(record["test_error"] <= record["bound"] for record in records)
    return [*counts, f"The test error is inside {inside} of {len(records)} certificates."]


def _named(case: Case) -> str:
    how = f"{case.epochs} epochs" if case.prior == "initial" else f"share {case.share:g}"
    return f"{case.data}, {case.label}, {how}"


def _bars(cases: Mapping[str, Sequence[Record]]) -> list[Bar]:
    """Draw certificates and errors, one chart per prior."""
    shown = {
        "certificate": "bound",
        "held-out bound of the prior": "prior_bound",
        "test error": "test_error",
        "error on the bound data": "error",
    }
    charts = []
    for prior in ("initial", "learned"):
        own = {name: found for name, found in cases.items() if CASES[name].prior == prior}
        names = [_named(CASES[name]) for name in own]
        series = [
            Series(
                name=label,
                x=names,
                y=[statistics.fmean(record[key] for record in found) for found in own.values()],
            )
            for label, key in shown.items()
            if prior == "learned" or key != "prior_bound"
        ]
        if own:
            charts.append(
                Bar(
                    title=f"Certificate and errors, {prior} prior",
                    x_label="data, network",
                    y_label="error rate",
                    series=series,
                )
            )
    return charts


def _curve(cases: Mapping[str, Sequence[Record]]) -> list[Line]:
    """Draw the certificate around initial weights on MNIST over CPU minutes."""
    points: dict[str, list[tuple[float, ...]]] = {}
    for name, found in cases.items():
        case, bounds = CASES[name], [record["bound"] for record in found]
        if case.prior == "initial" and case.data == "mnist":
            spent = statistics.fmean(record["cpu_minutes"] for record in found)
            row = (spent, statistics.fmean(bounds), min(bounds), max(bounds))
            points.setdefault(case.label, []).append(row)
    if not points:
        return []
    series = []
    for label, rows in points.items():
        minutes, means, least, largest = zip(*sorted(rows), strict=True)
        series.append(Series(name=label, x=minutes, y=means, low=least, high=largest))
    return [
        Line(
            title="Certificate around initial weights over CPU minutes, MNIST",
            x_label="CPU minutes",
            y_label="certificate",
            series=series,
            caption="Means over seeds; the band is from the least to the largest.",
        )
    ]
