"""What the PAC-Bayes bounds share: Gaussian noise around the final and the initial weights."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from mindgap.core import Bound, Estimate, Subject, Terms, Undefined, option, standard_error
from mindgap.core.bound import as_estimate
from mindgap.ops.models.parameters import displacement
from mindgap.ops.pac_bayes.bounds import gaussian_kl, monte_carlo
from mindgap.ops.pac_bayes.noisy_errors import perturbed_errors


class PacBayesBound(Bound, abc.ABC, abstract=True):
    """A bound on the risk of a stochastic model, which has noise on its weights.

    The posterior is N(w, scale² I), the prior N(initial, scale² I). The training error of the
    stochastic model is estimated by sampling. The upper confidence limit of that error takes a
    share of ``delta``, so that the bound as a whole holds with probability 1 - ``delta``.
    """

    direction = "lower"
    needs = frozenset({"initial"})
    invariant_to = frozenset({"sample-order"})
    cost = "expensive"

    scale: float = option(
        0.05, help="standard deviation of the noise, chosen before seeing the data", above=0
    )
    draws: int = option(200, help="number of noisy models whose training error is averaged", low=1)
    monte_carlo_share: float = option(
        0.1, help="share of delta spent on sampling the noise", above=0, below=1
    )
    seed: int = option(0, help="seed of the noise", low=0)

    @abc.abstractmethod
    def value(self, empirical: float, kl: float, samples: int) -> float:
        """Compute the theorem's right-hand side."""

    def formula(self, *, empirical: float, kl: float, samples: int) -> Terms:
        """Evaluate the theorem for a known training error and divergence."""
        return Terms(
            empirical=empirical,
            complexity=self.value(empirical, kl, samples) - empirical,
            others={"kl": kl},
        )

    def evidence(self, subject: Subject) -> Mapping[str, Any]:
        """Compute the limit of the training error, the divergence and the sample size."""
        return self._numbers(subject, self.rates(subject))

    def _numbers(self, subject: Subject, rates: torch.Tensor) -> dict[str, Any]:
        assert subject.initial is not None
        mean = float(rates.mean())
        moved = torch.cat(
            [
                part.flatten().double()
                for part in displacement(subject.model, subject.initial).values()
            ]
        )
        return {
            "empirical": monte_carlo(mean, self.draws, self.delta * self.monte_carlo_share),
            "kl": gaussian_kl(moved, self.scale, 0.0, self.scale),
            "samples": len(subject.train),
        }

    def rates(self, subject: Subject) -> torch.Tensor:
        """Compute the training error of the stochastic model, draw by draw."""
        if subject.task == "regression":
            raise Undefined("needs a loss in [0, 1], and a regression loss has no upper limit")
        return perturbed_errors(subject, self.scale, draws=self.draws, seed=self.seed)

    def compute(self, subject: Subject) -> Estimate:
        """Evaluate the theorem, and report how the training error was sampled."""
        rates = self.rates(subject)
        # A union bound: sampling the noise uses a share of delta, the theorem gets the rest.
        rest = self.replace(delta=self.delta * (1 - self.monte_carlo_share))
        terms = rest.formula(**self._numbers(subject, rates))
        mean = float(rates.mean())
        sampled = {"monte_carlo_mean": mean, "monte_carlo_slack": terms.empirical - mean}
        found = as_estimate(dataclasses.replace(terms, others={**terms.others, **sampled}))
        error = standard_error(rates.numpy()) if self.draws > 1 else None
        return dataclasses.replace(found, status="estimate", standard_error=error)

    def provenance(self, subject: Subject) -> dict[str, Any]:
        """Add that the bound is about the stochastic model."""
        return {**super().provenance(subject), "risk_of": "the model with noise on its weights"}

    def broken(self, subject: Subject) -> str:
        """Name a buffer that was learned from the data: it has no prior, so the KL misses it."""
        start = subject.initial or {}
        moved = [
            name
            for name, value in subject.model.named_buffers()
            if name in start
            and value.is_floating_point()
            and not torch.equal(value, start[name].to(value))
        ]
        return (
            f"the buffer {moved[0]} was learned from the data and carries no noise" if moved else ""
        )
