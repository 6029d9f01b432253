"""PAC-Bayes certificates on MNIST with learned and initial priors."""

import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import (
    Bar,
    Certificate,
    Recipe,
    Record,
    Series,
    Study,
    Subject,
    Table,
    Trial,
    option,
)
from mindgap.core.chart.numbers import upper
from mindgap.data import mnist
from mindgap.nets import MLP
from mindgap.training.certify.job import certify
from mindgap.training.fit import fit

COLUMNS = {
    "certificate": "bound",
    "held-out bound": "prior_bound",
    "test error": "test_error",
    "error": "error",
    "error limit": "error_limit",
    "KL": "kl",
    "samples": "samples",
    "draws": "draws",
    "δ": "delta",
    "CPU minutes": "cpu_minutes",
}
FIELDS = (
    *("bound", "error", "error_limit", "kl", "samples", "delta", "draws"),
    *("test_error", "prior_error", "prior_bound", "verdict"),
)
DRAWS = {"gaussian": 4, "uniform": 2}  # passes over the bound data; a uniform draw costs more


class Certificates(Study):
    r"""PAC-Bayes certificates of small networks on MNIST, in minutes on one core.

    Formula: $\mathbb{E}_{w \sim Q} L(w) \le \mathrm{kl}^{-1}\left( \hat p \,\Vert\,
    \frac{\mathrm{KL}(Q \Vert P) + \ln(2\sqrt{n}/\delta)}{n} \right)$

    Reading: A certificate holds for a stochastic classifier, which draws its weights for every
    prediction. With a learned prior, one half of the training data trains the prior and the other
    half computes the bound. The control is the prior's mean network without noise, with its
    held-out bound (binomial tail) on the same data at the same δ. If the certificate is below that
    bound, the difference is the gain of PAC-Bayes. If it is above, the learned prior does all the
    work. A prior at the initial weights has no such control, and all training data compute the
    bound.

    Assumes: Independent training samples. The architecture and epochs of the convolutional network
    and the scale of the learned priors were chosen on a hold-out part of the prior's half. The
    scale around the initial weights was fixed before any certificate was computed. The training of
    the posterior needs no such care. Test data are used for the test error only.

    >>> len(Certificates().trials())
    3
    """

    method = ("P1",)
    cites = ("perezortiz2021tighter", "dziugaite2017computing")
    expected: ClassVar[Mapping[str, float]] = {"CNN, learned, gaussian": 0.0155}

    size: int = option(60_000, help="training samples", low=100)
    test_size: int = option(10_000, help="test samples", low=10)
    prior_epochs: int = option(15, help="epochs of the learned prior", low=1)
    learned_epochs: int = option(1, help="epochs of the posterior around a learned prior", low=0)
    initial_epochs: int = option(
        20, help="epochs of the posterior around the initial weights", low=0
    )
    delta: float = option(
        0.05, help="probability with which a certificate may fail", above=0, below=1
    )

    def trials(self) -> Sequence[Trial]:
        """Every network and prior; posteriors of one learned prior share it."""
        pairs = (("MLP", "learned"), ("CNN", "learned"), ("MLP", "initial"))
        return [Trial(parameters={"network": network, "prior": prior}) for network, prior in pairs]

    def run(self, trial: Trial) -> Record:
        """Train the prior once, then certify every posterior."""
        found = mnist(self.size, self.test_size)
        common = {"model": NETWORKS[trial["network"]], "test": found.test, "batch_size": 64}
        recipe = Recipe(train=found.train, **common)  # type: ignore[arg-type]
        began = time.process_time()
        if trial["prior"] == "initial":
            settings = {
                "epochs": self.initial_epochs,
                "learning_rate": 0.03,
                "batch_size": 256,
                "scale": 0.05,
            }
            one = certify(
                recipe,
                prior="initial",
                delta=self.delta,
                draws=self.size,
                seed=trial.seed,
                **settings,  # type: ignore[arg-type]
            )
            return {"gaussian": _summary(one, time.process_time() - began)}
        order = torch.randperm(self.size, generator=torch.Generator().manual_seed(trial.seed))
        mine, rest = ((found.inputs[part], found.targets[part]) for part in order.chunk(2))
        fitted = fit(self._prior(recipe, mine), seed=trial.seed, evaluate_every=0)
        subject = Subject(fitted.model, "cross_entropy", mine, found.test)
        spent = time.process_time() - began
        return {
            kind: _summary(found, spent + found.cost["cpu_seconds"])
            for kind, found in (
                (kind, self._learned(subject, rest, kind, trial.seed)) for kind in DRAWS
            )
        }

    def _prior(self, recipe: Recipe, mine: tuple[Tensor, Tensor]) -> Recipe:
        falling = functools.partial(
            torch.optim.lr_scheduler.CosineAnnealingLR, T_max=self.prior_epochs
        )
        return recipe.replace(
            train=mine, test=None, epochs=self.prior_epochs, learning_rate=2e-3, schedule=falling
        )

    def _learned(
        self, subject: Subject, rest: tuple[Tensor, Tensor], kind: Any, seed: int
    ) -> Certificate:
        draws = DRAWS[kind] * len(rest[1])
        return certify(
            subject,
            held_out=rest,
            posterior=kind,
            scale=0.005 * (1 if kind == "gaussian" else math.sqrt(3)),  # boxes of the same variance
            epochs=self.learned_epochs,
            delta=self.delta,
            draws=draws,
            seed=seed,
        )

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per network, prior and posterior."""
        rows = tuple(
            self._row(trial, kind, found)
            for trial, record in records
            for kind, found in record.items()
        )
        return Table(
            title="PAC-Bayes certificates on MNIST (kl inverse) and held-out bounds of the priors",
            columns=("network", "prior", "posterior", "published", *COLUMNS),
            rows=rows,
            notes=(
                *_verdicts(records),
                "Error: error of the stochastic classifier on the bound data. Its limit includes "
                "the Monte Carlo uncertainty, for which δ' = 0.01 of δ is reserved.",
                "CPU minutes are rounded up. Each row includes the training of the prior, which "
                "two posteriors share.",
                "Published: Pérez-Ortiz et al. (2021), a CNN with a learned prior in a different "
                "setting.",
            ),
            charts=tuple(
                _chart(prior, [row for row in rows if row[1] == prior])
                for prior in ("learned", "initial")
            ),
        )

    def _row(self, trial: Trial, kind: str, found: Mapping[str, Any]) -> tuple[Any, ...]:
        key = f"{trial['network']}, {trial['prior']}, {kind}"
        head = (trial["network"], trial["prior"], kind, self.expected.get(key))
        bounds = {name: found[name] for name in ("bound", "prior_bound", "error_limit")}
        rounded = {name: value and upper(value) for name, value in bounds.items()}
        shown = {**found, **rounded, "kl": round(found["kl"], 3)}
        return (*head, *(shown[name] for name in COLUMNS.values()))

    def tiny(self) -> Self:
        """Use few images and one epoch."""
        return self.replace(
            size=200, test_size=100, prior_epochs=1, learned_epochs=1, initial_epochs=1
        )


def _summary(found: Certificate, seconds: float) -> dict[str, Any]:
    return {
        **{name: getattr(found, name) for name in FIELDS},
        "cpu_minutes": math.ceil(seconds / 60),
    }


def _verdicts(records: Sequence[tuple[Trial, Record]]) -> list[str]:
    found = [one["verdict"] for _, record in records for one in record.values()]
    kinds = sorted(set(found))
    return [
        f"{sum(one == kind for one in found)} of {len(found)} certificates: {kind}."
        for kind in kinds
    ]


def _chart(prior: str, rows: Sequence[tuple[Any, ...]]) -> Bar:
    places = {
        "certificate": 4,
        "held-out bound of the prior": 5,
        "test error": 6,
        "error on the bound data": 7,
    }
    shown = {name: place for name, place in places.items() if prior == "learned" or place != 5}
    names = [f"{row[0]}, {row[2]}" for row in rows]
    return Bar(
        title=f"Certificate and errors, {prior} prior",
        x_label="network and posterior",
        y_label="error rate",
        series=[
            Series(name=name, x=names, y=[row[place] for row in rows])
            for name, place in shown.items()
        ],
    )


class Shift(nn.Module):
    """Shifts every image by up to two pixels in training mode only."""

    far = 2

    def forward(self, inputs: Tensor) -> Tensor:
        """Shift images of shape (samples, channels, height, width)."""
        if not self.training:
            return inputs
        count, _, height, width = inputs.shape
        down, right = torch.randint(0, 2 * self.far + 1, (2, count, 1, 1))
        rows, columns = down + torch.arange(height)[:, None], right + torch.arange(width)
        padded = F.pad(inputs, [self.far] * 4).movedim(1, 3)
        return padded[torch.arange(count)[:, None, None], rows, columns].movedim(3, 1)


def _mlp() -> nn.Module:
    return nn.Sequential(Shift(), MLP(widths=(784, 100, 100, 10)))


def _cnn() -> nn.Module:
    first = (nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(
        Shift(),
        *first,
        *second,
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )


NETWORKS = {"MLP": _mlp, "CNN": _cnn}
