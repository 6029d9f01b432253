"""Training of posteriors: noise by layer against whole draws, and one certificate by hand."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from mindgap import Certificate, Recipe, certify, data
from mindgap.core.errors import InputError
from mindgap.core.special import bisect
from mindgap.core.split import as_split
from mindgap.core.stats.proportions import kl_inverse
from mindgap.nets import MLP, Transformer
from mindgap.ops.pac_bayes.posterior import StochasticModel, stochastic_model
from mindgap.training.certify.posterior import (
    LOSS_WEIGHT,
    _noisy,
    _Rates,
    exchange_rate,
    rules,
    tangent,
)

SAMPLES = 3


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)
    )


def randomized(net: nn.Module, scale: float | None = None) -> StochasticModel:
    """A posterior that has moved, with a scale of its own for every weight."""
    model, source = stochastic_model(net, "gaussian", scale), torch.Generator().manual_seed(1)
    with torch.no_grad():
        model.shift.copy_(0.3 * torch.randn(model.shift.shape, generator=source))
        model.spread.copy_(-1 + 0.5 * torch.randn(model.shift.shape, generator=source))
    return model


def drawn(model: StochasticModel, inputs: Tensor, by_layer: bool, draws: int = 2000) -> Tensor:
    """Outputs ``(draws, samples, classes)``, with noise by layer or on all weights."""
    source = torch.Generator().manual_seed(2)
    with torch.no_grad():
        if not by_layer:
            return torch.vmap(lambda w: model.outputs(w, (inputs,)))(model.draw(source, draws))
        split = as_split((inputs, torch.zeros(len(inputs)).long()))
        with _noisy(model, split) as outputs_of:
            return torch.stack([outputs_of((inputs,), source) for _ in range(draws)])


def test_noise_by_layer_has_the_distribution_of_whole_draws() -> None:
    model = randomized(small_net())
    inputs = torch.randn(SAMPLES, 1, 3, 3, generator=torch.Generator().manual_seed(3))
    own, whole = (drawn(model, inputs, way) for way in (True, False))
    for place in range(SAMPLES):
        mean, spread = whole[:, place].mean(0), whole[:, place].std(0)
        gap = (own[:, place].mean(0) - mean) / spread
        assert float(gap.abs().max()) < 6 * math.sqrt(2 / 2000)
        ratio = own[:, place].T.cov() / spread.square().max()
        assert torch.allclose(ratio, whole[:, place].T.cov() / spread.square().max(), atol=0.15)


def test_samples_of_a_batch_share_no_noise_of_linear_layers() -> None:
    model = randomized(nn.Sequential(nn.Flatten(), nn.Linear(9, 2)))
    inputs = torch.ones(2, 1, 3, 3)
    for by_layer, low, high in ((True, -0.1, 0.1), (False, 0.999, 1.001)):
        rows = drawn(model, inputs, by_layer)[:, :, 0]
        assert low < float(rows.T.corrcoef()[0, 1]) < high


def test_the_hooks_are_gone_afterwards() -> None:
    model = randomized(small_net())
    inputs = torch.ones(2, 1, 3, 3)
    before = model.mean_outputs((inputs,))
    drawn(model, inputs, by_layer=True, draws=1)
    assert torch.equal(model.mean_outputs((inputs,)), before)


def test_the_tangent_trades_as_the_kl_bound_does() -> None:
    """Its slopes by error and by complexity have the ratio of those of the bound."""
    loss, price = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.2, 0.03))
    tangent(loss, price, exchange_rate(0.05, 0.03)).backward()
    step = 1e-6
    by_error, by_price = (
        kl_inverse(0.05 + a, 0.03 + b) - kl_inverse(0.05 - a, 0.03 - b)
        for a, b in ((step, 0), (0, step))
    )
    assert float(price.grad / loss.grad) * LOSS_WEIGHT == pytest.approx(  # type: ignore[operator]
        by_price / by_error, rel=1e-5
    )


def test_a_posterior_that_stays_at_its_prior_gets_cheap_nats_until_halfway() -> None:
    usual = exchange_rate(0.9, 0.005)
    for nats, cheap in ((1.0, True), (100.0, False)):
        rates = _Rates(100)
        found = [rates.next(0.9, nats, 0.005) for _ in range(100)]
        assert found[:10] == pytest.approx([usual] * 10)
        assert (found[10] > 3.9) is cheap
        assert found[50:] == pytest.approx([usual] * 50)


def test_few_samples_are_learned_around_initial_weights() -> None:
    """Without cheap nats the certificate is vacuous here."""
    found = certify(_recipe(), prior="initial", epochs=60, draws=2000)
    assert found.kl > 100
    assert found.bound < 0.7


def test_rules_keep_the_number_of_steps() -> None:
    for samples in (100, 1300, 60_000):
        rule = rules("initial", None, samples)
        steps = rule["epochs"] * -(-samples // rule["batch_size"])
        assert 8000 <= steps < 8000 + -(-samples // rule["batch_size"])


def test_a_learned_scale_follows_the_posterior() -> None:
    """Weights in other units give scales in other units, and the same divergence."""
    one, ten = randomized(small_net()), randomized(small_net())
    factor = math.exp(46 / 20)  # a whole number of steps of the grid, so that rounding agrees
    with torch.no_grad():
        ten.shift.mul_(factor / 10), ten.spread.add_(math.log(factor / 10))
        one.shift.div_(10), one.spread.sub_(math.log(10))
    assert float(one.divergence().detach()) == pytest.approx(
        float(ten.divergence().detach()), rel=1e-5
    )
    for name, scale in one.prior_scales().items():
        assert ten.prior_scales()[name] == pytest.approx(scale * factor)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(5, 4), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.table(inputs).mean(1))


def _numbers(high: int, *shape: int) -> Tensor:
    source = torch.Generator().manual_seed(0)
    return torch.randint(high, shape, generator=source)


OTHERS: dict[str, tuple[Any, Tensor]] = {
    "attention": (
        lambda: Transformer(vocabulary=5, outputs=2, length=3, width=8, heads=2, layers=1),
        _numbers(5, 40, 3),
    ),
    "embedding": (Words, _numbers(5, 40, 6)),
    "batch normalization": (
        lambda: MLP(widths=(3, 4, 2), norm="batch"),
        torch.randn(40, 3, generator=torch.Generator().manual_seed(0)),
    ),
    "one linear layer": (lambda: nn.Linear(3, 2), torch.randn(40, 3)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_are_trained_by_whole_draws(name: str) -> None:
    make, inputs = OTHERS[name]
    recipe = Recipe(model=make, train=(inputs, _numbers(2, len(inputs))))
    found = certify(recipe, prior="initial", epochs=2, batch_size=20, draws=20)
    assert found.valid, found.verdict
    assert found.kl > 0
    assert set(found.scales) == set(found.model.shapes)


def test_a_uniform_posterior_cannot_learn_its_scale() -> None:
    with pytest.raises(InputError, match="Gaussian"):
        stochastic_model(nn.Linear(2, 2), "uniform", None)


def _recipe() -> Recipe:
    digits = data.digits()
    return Recipe(model=lambda: MLP(widths=(64, 16, 10)), train=digits.train, test=digits.test)


@pytest.fixture(scope="module")
def data_free() -> Certificate:
    return certify(_recipe(), prior="initial", epochs=60, draws=20_000, tried=4, seed=3)


class TestDataFreeByHand:
    """One certificate, recomputed from the seed and the posterior alone."""

    def test_divergence(self, data_free: Certificate) -> None:
        prior = dict(_recipe().build(3).named_parameters())  # no data came near these weights
        model = data_free.model
        means, scales = model.named(model.means()), model.named(model.scales())
        grid, total = [2 * math.exp(-j / 20) for j in range(200)], 0.0
        for name, start in prior.items():
            own = Normal(means[name].detach().double(), scales[name].detach().double())
            divergences = [
                float(kl_divergence(own, Normal(start.detach().double(), one)).sum())
                for one in grid
            ]
            total += min(divergences)
            chosen = grid[divergences.index(min(divergences))]
            assert data_free.scales[name] == pytest.approx(chosen)
        assert data_free.kl == pytest.approx(total, rel=1e-6)
        assert data_free.paid["scales"] == pytest.approx(4 * math.log(200))
        assert data_free.paid["tried"] == pytest.approx(math.log(4))

    def test_error(self, data_free: Certificate) -> None:
        inputs, targets = data.digits().train
        model, source = data_free.model, torch.Generator().manual_seed(11)
        with torch.no_grad():
            weights = model.draw(source, 400)
            outputs = torch.vmap(lambda own: model.outputs(own, (inputs,)))(weights)
        wrong = (outputs.argmax(2) != targets).double().mean(1)
        within = 6 * float(wrong.std()) / math.sqrt(400) + 6 * math.sqrt(0.25 / 20_000)
        assert abs(float(wrong.mean()) - data_free.error) < within

    def test_bound(self, data_free: Certificate) -> None:
        n, budget = 1297, data_free.kl + 4 * math.log(200) + math.log(4) + math.log(1 / 0.04)
        with mpmath.workdps(40):
            limit = bisect(
                lambda p: float(_binary(data_free.error, p) - mpmath.log(400) / data_free.draws),
                data_free.error,
                1.0,
            )
            constant = (
                mpmath.fsum(
                    mpmath.binomial(n, k) * mpmath.mpf(k) ** k * mpmath.mpf(n - k) ** (n - k)
                    for k in range(n + 1)
                )
                / mpmath.mpf(n) ** n
            )

            def excess(p: float) -> float:
                tilts = [mpmath.mpf("0.05") * mpmath.mpf("1.5") ** j for j in range(9)]
                members = [
                    mpmath.exp(-n * (tilt * limit + mpmath.log(1 - (1 - mpmath.exp(-tilt)) * p)))
                    for tilt in tilts
                ]
                members.append(mpmath.exp(n * _binary(limit, p)) / constant)
                return float(mpmath.log(mpmath.fsum(members) / 10) - budget)

            wanted = bisect(excess, limit, 1 - 1e-12)
        assert data_free.error_limit == pytest.approx(limit, abs=1e-9)
        assert data_free.bound == pytest.approx(wanted, abs=1e-9)

    def test_unpaid_choices_would_make_it_smaller(self, data_free: Certificate) -> None:
        free = kl_inverse(data_free.error_limit, (data_free.kl + math.log(1 / 0.04)) / 1297)
        assert free < data_free.bound


def _binary(q: float, p: float) -> Any:
    q, p = mpmath.mpf(q), mpmath.mpf(p)
    return q * mpmath.log(q / p) + (1 - q) * mpmath.log((1 - q) / (1 - p))
