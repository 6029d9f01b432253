"""PAC-Bayes bounds against integration, brute force and problems whose risk is known."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from ops.helpers import DELTAS, on_grid
from scipy import integrate, optimize, special, stats

from mindgap.core.errors import InputError
from mindgap.ops.pac_bayes import bounds as pb
from mindgap.ops.pac_bayes.bounds import (
    gaussian_kl,
    truncated_gaussian_kl,
    truncated_kl_limit,
    uniform_kl,
)
from mindgap.ops.pac_bayes.truncated import truncation_point

BOUNDS = (pb.hoeffding, pb.mixture, pb.small_kl, pb.mcallester, pb.quadratic, pb.catoni)


def integral(own: object, prior: object, low: float, high: float) -> float:
    """KL of one density from another on an interval."""
    return integrate.quad(
        lambda x: own(x) * math.log(own(x) / prior(x)), low, high, epsabs=1e-12, limit=200
    )[0]


class TestDivergences:
    @pytest.mark.parametrize(
        ("mean", "scale", "start", "width"), [(0.3, 0.5, -0.2, 1.3), (1.0, 2.0, 1.0, 0.7)]
    )
    def test_gaussian_equals_the_integral(
        self, mean: float, scale: float, start: float, width: float
    ) -> None:
        own, prior = stats.norm(mean, scale).pdf, stats.norm(start, width).pdf
        expected = integral(own, prior, mean - 12 * scale, mean + 12 * scale)
        assert gaussian_kl(mean, scale, start, width) == pytest.approx(expected, rel=1e-8)
        assert gaussian_kl([mean] * 3, scale, start, [width] * 3) == pytest.approx(
            3 * expected, rel=1e-8
        )

    def test_uniform_equals_the_integral_and_must_be_contained(self) -> None:
        expected = integral(lambda _: 1 / 0.8, lambda _: 1 / 5.0, 0.6, 1.4)
        assert uniform_kl([1.0], [0.4], [2.5]) == pytest.approx(expected, rel=1e-10)
        with pytest.raises(InputError, match="must contain the noise"):
            uniform_kl([1.0], [0.4], [1.3])

    @pytest.mark.parametrize(
        ("mean", "scale", "radius"), [(0.5, 0.3, 0.4), (-1.0, 0.3, 3.0), (0.1, 2.0, 0.5)]
    )
    def test_truncated_gaussian_equals_the_integral(
        self, mean: float, scale: float, radius: float
    ) -> None:
        whole = stats.norm(mean, scale)
        mass = whole.cdf(mean + radius) - whole.cdf(mean - radius)
        expected = integral(
            lambda x: whole.pdf(x) / mass,
            stats.norm(0, math.sqrt(1.7)).pdf,
            mean - radius,
            mean + radius,
        )
        assert truncated_gaussian_kl(mean, scale, radius, 1.7) == pytest.approx(expected, rel=1e-8)

    @pytest.mark.parametrize("count", [1, 3, 30, 1000])
    def test_inequality_12_holds_where_half_of_the_mass_is_kept(self, count: int) -> None:
        for ratio in (0.01, 0.3, 1.0, 3.0):
            scale = ratio / truncation_point(count)
            whole = gaussian_kl(torch.zeros(count), scale, 0.0, 1.0)
            cut = truncated_gaussian_kl(torch.zeros(count), scale, ratio, 1.0)
            assert cut <= truncated_kl_limit(whole)

    def test_bad_shapes_and_scales(self) -> None:
        with pytest.raises(InputError, match="one entry per weight"):
            gaussian_kl([1.0, 2.0], [1.0, 2.0, 3.0], 0.0, 1.0)
        with pytest.raises(InputError, match="above 0, got 0"):
            gaussian_kl([1.0], [0.0], 0.0, 1.0)


class TestTheorem1:
    @pytest.mark.parametrize("sharp", [False, True])
    @pytest.mark.parametrize("delta", DELTAS)
    def test_grid_minimum_equals_brute_force(self, sharp: bool, delta: float) -> None:
        for kl, samples in itertools.product((0.0, 1.0, 50.0, 1e5, 1e12), (1, 100, 60_000)):
            assert pb.hoeffding(0.1, kl, samples, delta, sharp=sharp) == pytest.approx(
                0.1 + on_grid(kl, samples, delta, 8 if sharp else 2), rel=1e-12
            )

    def test_given_eta(self) -> None:
        expected = 0.2 + (7 + math.log(20)) / 90 + 90 / 2000
        assert pb.hoeffding(0.2, 7.0, 1000, 0.05, eta=90.0) == pytest.approx(expected)
        assert pb.hoeffding(0.2, 7.0, 1000, 0.05, eta=90.0, sharp=True) == pytest.approx(
            expected - 90 / 2000 * 3 / 4
        )
        with pytest.raises(InputError, match="eta must be"):
            pb.hoeffding(0.2, 7.0, 1000, 0.05, eta=0.0)


class TestComparators:
    def test_maurers_constant_holds_for_every_number_of_samples(self) -> None:
        for samples in range(1, 200):
            k = np.arange(samples + 1)
            moment = stats.binom.pmf(k, samples, k / samples).sum()
            assert pb.maurer_constant(samples) == pytest.approx(moment, rel=1e-12)
            assert moment <= 2 * math.sqrt(samples) * (1 + 1e-12)

    @pytest.mark.parametrize("samples", [1, 2, 7, 60])
    def test_maurers_constant_equals_the_sum_of_fractions(self, samples: int) -> None:
        exact = sum(
            math.comb(samples, k)
            * Fraction(k, samples) ** k
            * Fraction(samples - k, samples) ** (samples - k)
            for k in range(samples + 1)
        )
        assert pb.maurer_constant(samples) == pytest.approx(float(exact), rel=1e-15)

    def test_maurers_constant_of_many_samples_equals_its_expansion(self) -> None:
        # Ramanujan's Q: ξ(n) = 1 + Q(n) = √(πn/2) + 2/3 + √(π/2n)/12 - 4/(135n) + O(n^-1.5)
        for samples in (10**5, 10**7):
            series = (
                math.sqrt(math.pi * samples / 2)
                + 2 / 3
                + math.sqrt(math.pi / (2 * samples)) / 12
                - 4 / (135 * samples)
            )
            assert pb.maurer_constant(samples) == pytest.approx(series, rel=1e-10)

    @pytest.mark.parametrize("kl", [0.0, 5.0, 300.0])
    @pytest.mark.parametrize("empirical", [0.0, 0.01, 0.3])
    def test_kl_inverse_is_the_upper_end_and_below_its_relaxations(
        self, empirical: float, kl: float
    ) -> None:
        value = pb.small_kl(empirical, kl, 1000, 0.05)
        term = (kl + math.log(pb.maurer_constant(1000) / 0.05)) / 1000
        excess = lambda p: stats.entropy([empirical, 1 - empirical], [p, 1 - p]) - term  # noqa: E731
        assert value == pytest.approx(
            optimize.brentq(excess, empirical + 1e-12, 1 - 1e-12, xtol=1e-14), rel=1e-9
        )
        assert value > empirical
        assert value <= pb.quadratic(empirical, kl, 1000, 0.05)
        assert value <= pb.mcallester(empirical, kl, 1000, 0.05)

    @pytest.mark.parametrize("empirical", [0.01, 0.2])
    def test_catonis_best_inverse_temperature_gives_the_kl_inverse(self, empirical: float) -> None:
        best = optimize.minimize_scalar(
            lambda c: pb.catoni(empirical, 30.0, 1000, 0.05, inverse_temperature=c),
            bounds=(1e-3, 20),
            method="bounded",
        )
        term = (30 + math.log(20)) / 1000
        excess = lambda p: stats.entropy([empirical, 1 - empirical], [p, 1 - p]) - term  # noqa: E731
        assert best.fun == pytest.approx(
            optimize.brentq(excess, empirical + 1e-9, 1 - 1e-9), rel=1e-6
        )

    def test_catoni_over_the_grid_pays_for_every_member(self) -> None:
        grid = pb.catoni_grid(1000)
        values = [
            pb.catoni(0.1, 30.0, 1000, 0.05 / len(grid), inverse_temperature=member)
            for member in grid
        ]
        assert pb.catoni(0.1, 30.0, 1000, 0.05) == pytest.approx(min(values), rel=1e-12)
        assert min(grid) <= 1 / math.sqrt(1000) < 2 * min(grid)

    def test_monte_carlo_limit_covers_the_mean(self) -> None:
        means = np.random.default_rng(0).binomial(50, 0.3, size=2000) / 50
        limits = np.array([pb.monte_carlo(mean, 50, 0.1) for mean in means])
        assert (limits >= 0.3).mean() >= 0.9
        assert (means >= 0.3).mean() < 0.7

    @pytest.mark.parametrize("bound", BOUNDS)
    def test_monotone_in_divergence_samples_confidence_and_train_error(self, bound: object) -> None:
        value = lambda **changes: bound(  # noqa: E731
            *{"empirical": 0.05, "kl": 20.0, "samples": 2000, "delta": 0.05, **changes}.values()
        )
        for name, rising in (
            ("empirical", (0.0, 0.05, 0.2)),
            ("kl", (0.0, 20.0, 21.0, 500.0)),
            ("samples", (10**6, 5000, 2000, 100)),
            ("delta", (0.9, 0.05, 1e-6)),
        ):
            values = [value(**{name: item}) for item in rising]
            assert values == sorted(values)
            assert len(set(values)) == len(values)

    @pytest.mark.parametrize("bound", BOUNDS)
    def test_bad_numbers_are_named(self, bound: object) -> None:
        bad = {
            "empirical": (1.5, 1, 10, 0.1),
            "kl": (0.1, -1, 10, 0.1),
            "samples": (0.1, 1, 0, 0.1),
            "delta": (0.1, 1, 10, 0.0),
        }
        for name, numbers in bad.items():
            with pytest.raises(InputError, match=f"{name} must"):
                bound(*numbers)


def log_mean(q: mpmath.mpf, p: mpmath.mpf, n: int, constant: mpmath.mpf) -> mpmath.mpf:
    """The function that the mixture inverts, by powers of high precision."""
    tilts = [mpmath.mpf(5) / 100 * (mpmath.mpf(3) / 2) ** step for step in range(9)]
    total = sum(mpmath.exp(-t * n * q) * (1 - p + p * mpmath.exp(-t)) ** (-n) for t in tilts)
    ratio = (q / p) ** (n * q) * ((1 - q) / (1 - p)) ** (n * (1 - q))
    return mpmath.log((total + ratio / constant) / 10)


def abel(n: int) -> mpmath.mpf:
    """Maurer's ξ(n); the products beyond 12√n are below e^-70."""
    total = term = mpmath.mpf(1)
    for j in range(min(n, 20 + 12 * math.isqrt(n))):
        term *= 1 - mpmath.mpf(j) / n
        total += term
    return total


class TestMixture:
    @pytest.mark.parametrize(
        ("empirical", "kl", "samples"),
        [
            (0.0, 0.0, 1),
            (0.0, 0.0, 100),
            (0.0065, 0.087, 30_000),
            (0.0209, 2250.0, 60_000),
            (0.5, 3.0, 1000),
            (0.99, 0.5, 500),
            (0.999, 40.0, 100_000),
            (1e-6, 0.2, 10_000_000),
            (0.3, 17.0, 10_000_000),
            (0.9999, 1.0, 10_000_000),
        ],
    )
    def test_equals_mpmath(self, empirical: float, kl: float, samples: int) -> None:
        with mpmath.workdps(40):
            q, budget = mpmath.mpf(empirical), kl - mpmath.log(mpmath.mpf(0.05))
            low, high, constant = q, mpmath.mpf(1), abel(samples)
            for _ in range(70):
                middle = (low + high) / 2
                inside = log_mean(q, middle, samples, constant) <= budget
                low, high = (middle, high) if inside else (low, middle)
            found = pb.mixture(empirical, kl, samples, 0.05)
            assert found == pytest.approx(float(high), rel=1e-10, abs=0)

    def test_costs_at_most_ln_10_nats_over_every_member(self) -> None:
        """Over Maurer's kl bound everywhere, and over Catoni's at each of the nine λ."""
        for empirical, kl, samples, delta in itertools.product(
            (0.0, 1e-4, 0.01, 0.3, 0.9),
            (0.0, 0.1, 30.0, 3000.0),
            (1, 30, 3000, 10**6),
            (0.05, 1e-6),
        ):
            found = pb.mixture(empirical, kl, samples, delta)
            members = [
                pb.catoni(empirical, kl + math.log(10), samples, delta, inverse_temperature=rate)
                for rate in pb.RATES
            ]
            members.append(pb.small_kl(empirical, kl + math.log(10), samples, delta))
            assert found <= min(members) * (1 + 1e-12)
            # And it saves no more than that all nine are as good as the best.
            assert (
                found
                >= min(
                    pb.catoni(empirical, kl, samples, delta, inverse_temperature=rate)
                    for rate in (*pb.RATES, *np.geomspace(1e-4, 30, 400))
                )
                - 1e-9
            )

    def test_is_below_the_others_at_a_small_divergence(self) -> None:
        for empirical, samples in ((0.0065, 30_000), (0.0212, 30_000), (0.046, 649)):
            mixture, kl = (f(empirical, 0.09, samples, 0.04) for f in (pb.mixture, pb.small_kl))
            assert mixture < kl < pb.quadratic(empirical, 0.09, samples, 0.04)

    DRAWS, SAMPLES, DELTA = 10_000, 100, 0.05

    def excess(self, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        """F at the true risk: the bound fails exactly where it is above KL + ln(1/δ)."""
        q, p = np.broadcast_arrays(q, p)
        members = [self.SAMPLES * (-t * q - np.log1p(np.expm1(-t) * p)) for t in pb.RATES]
        members.append(
            self.SAMPLES * (special.rel_entr(q, p) + special.rel_entr(1 - q, 1 - p))
            - math.log(pb.maurer_constant(self.SAMPLES))
        )
        found: np.ndarray = special.logsumexp(members, axis=0) - math.log(10)
        return found

    def test_holds_on_simulated_draws_of_one_classifier(self) -> None:
        source = np.random.default_rng(0)
        for risk in (0.01, 0.04, 0.2, 0.5):
            rates = source.binomial(self.SAMPLES, risk, self.DRAWS) / self.SAMPLES
            seen, places = np.unique(rates, return_inverse=True)
            values = np.array([pb.mixture(q, 0.0, self.SAMPLES, self.DELTA) for q in seen.tolist()])
            failed = values[places] < risk
            assert failed.mean() <= self.DELTA
            wanted = self.excess(seen, np.full_like(seen, risk)) > math.log(1 / self.DELTA)
            assert ((values < risk) == (wanted & (seen < risk))).all()

    def test_holds_for_posteriors_that_an_adversary_picks_after_the_data(self) -> None:
        """Gibbs posteriors by F at the true risks are the worst, by Donsker and Varadhan."""
        source, models = np.random.default_rng(1), 300
        risks = source.beta(1, 8, size=models)
        wrong = source.binomial(self.SAMPLES, risks, (self.DRAWS, models))
        rates = wrong / self.SAMPLES
        table = self.excess(np.arange(self.SAMPLES + 1)[:, None] / self.SAMPLES, risks[None])
        surplus = np.where(rates < risks, table[wrong, np.arange(models)], 0)
        failed, unpaid = np.zeros(self.DRAWS, bool), np.zeros(self.DRAWS, bool)
        for heat in (1.0, 0.5, 2.0, 1000.0):  # the last: all on one model
            weights = special.softmax(heat * surplus, axis=1)
            kl = special.rel_entr(weights, 1 / models).sum(1)
            q, p = (weights * rates).sum(1), (weights * risks).sum(1)
            above = np.where(q < p, self.excess(q, p), 0)
            failed |= above > kl + math.log(1 / self.DELTA)
            unpaid |= above > math.log(1 / self.DELTA)
        assert failed.mean() <= self.DELTA
        assert unpaid.mean() > 2 * self.DELTA  # without the KL the same adversary wins


class TestSimulation:
    """A thousand draws of a problem with a known risk."""

    DRAWS, SAMPLES, DELTA = 1000, 200, 0.1

    def thresholds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Threshold classifiers with Gaussian noise: training error, risk and KL of each draw."""
        random, noise, truth, spread, width = np.random.default_rng(0), 0.1, 0.37, 0.05, 0.3
        x = random.uniform(size=(self.DRAWS, self.SAMPLES))
        y = (x > truth) ^ (random.uniform(size=x.shape) < noise)
        grid = np.linspace(0, 1, 51)
        center = grid[np.stack([((x > w) != y).mean(1) for w in grid]).argmin(0)]
        above = stats.norm.cdf(
            (x - center[:, None]) / spread
        )  # chance that the noisy threshold lies below x
        empirical = np.where(y, 1 - above, above).mean(1)

        def primitive(t: float) -> np.ndarray:
            """The integral of the cumulative distribution of the noisy threshold."""
            z = (t - center) / spread
            return spread * (z * stats.norm.cdf(z) + stats.norm.pdf(z))

        below = primitive(truth) - primitive(0)
        over = (1 - truth) - (primitive(1) - primitive(truth))
        risk = noise + (1 - 2 * noise) * (below + over)
        kl = math.log(width / spread) + (spread**2 + (center - 0.5) ** 2) / (2 * width**2) - 0.5
        return empirical, risk, kl

    def best_of_many(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The best of 500 guesses at random labels: the risk is ½ whatever the training error says."""
        rates = (
            np.random.default_rng(1).binomial(self.SAMPLES, 0.5, size=(self.DRAWS, 500)).min(1)
            / self.SAMPLES
        )
        return rates, np.full(self.DRAWS, 0.5), np.full(self.DRAWS, math.log(500))

    @pytest.mark.parametrize("bound", BOUNDS)
    def test_holds(self, bound: object) -> None:
        for problem in (self.thresholds, self.best_of_many):
            empirical, risk, kl = problem()
            numbers = zip(
                empirical.tolist(), np.broadcast_to(kl, empirical.shape).tolist(), strict=True
            )
            values = np.array(
                [bound(rate, term, self.SAMPLES, self.DELTA) for rate, term in numbers]
            )
            assert (values >= risk).mean() >= 1 - self.DELTA

    def test_would_find_a_bound_that_forgets_the_divergence(self) -> None:
        empirical, risk, _ = self.best_of_many()
        values = np.array(
            [pb.small_kl(rate, 0.0, self.SAMPLES, self.DELTA) for rate in empirical.tolist()]
        )
        assert (values >= risk).mean() < 1 - self.DELTA - 3 * math.sqrt(
            self.DELTA * (1 - self.DELTA) / self.DRAWS
        )

    def test_the_known_risk_is_right(self) -> None:
        random = np.random.default_rng(3)
        x = random.uniform(size=400_000)
        y = (x > 0.37) ^ (random.uniform(size=x.shape) < 0.1)
        _, risk, _ = self.thresholds()
        center = 0.37  # a draw whose fitted threshold is nearest to the truth has the least risk
        sampled = ((x > center + 0.05 * random.normal(size=x.shape)) != y).mean()
        assert risk.min() == pytest.approx(sampled, abs=0.005)
