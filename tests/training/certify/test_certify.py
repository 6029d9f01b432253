"""Certificates: they hold, they refuse what would break them, and they say what they are."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mindgap
from mindgap import Certificate, Recipe, Subject, certify
from mindgap.core import binomial_tail_inverse
from mindgap.core.errors import InputError, MindgapError
from mindgap.core.split import as_split
from mindgap.nets import MLP
from mindgap.ops.pac_bayes.bounds import catoni, mixture, monte_carlo, small_kl
from mindgap.ops.pac_bayes.per_sample_draws import Drawn, expected_losses
from mindgap.ops.pac_bayes.posterior import stochastic_model
from mindgap.training.certify.material import JoinedSplit
from mindgap.training.certify.modes import answer_of, judged
from mindgap.training.certify.posterior import OBJECTIVES

QUICK: dict[str, Any] = {"epochs": 1, "draws": 500, "batch_size": 32}


def blobs(count: int, seed: int = 0, features: int = 2) -> tuple[Tensor, Tensor]:
    """Two classes that a line parts."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=source)
    return torch.randn(count, features, generator=source) + 4 * labels[:, None] - 2, labels


def coins(count: int, seed: int, features: int) -> tuple[Tensor, Tensor]:
    """Labels that nothing predicts: the risk of every model is one half."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(count, features, generator=source), torch.randint(
        0, 2, (count,), generator=source
    )


def bits(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Four binary features and the first of them as the label: all samples have equals."""
    source = torch.Generator().manual_seed(seed)
    inputs = torch.randint(0, 2, (count, 4), generator=source).float()
    return inputs, inputs[:, 0].long()


def memorized(train: tuple[Tensor, Tensor]) -> Subject:
    """A classifier that knows every training label by heart."""
    inputs = train[0].float()
    model = nn.Sequential(nn.Linear(inputs.shape[1], 2, bias=False))
    signs = 2.0 * train[1] - 1
    right = torch.linalg.lstsq(inputs.double(), signs.double()[:, None]).solution.float().T
    model[0].weight.data = torch.cat([-right, right])
    return Subject(model, "cross_entropy", (inputs, train[1]))


def recipe_of(data: tuple[Tensor, Tensor], **changes: Any) -> Recipe:
    features = data[0].shape[1]
    common = {
        "model": lambda: nn.Linear(features, 2),
        "epochs": 5,
        "batch_size": 32,
        "learning_rate": 0.1,
    }
    return Recipe(train=data, **{**common, **changes})


def subject_of(train: tuple[Tensor, Tensor], **more: Any) -> Subject:
    fitted = mindgap.fit(recipe_of(train))
    return Subject(fitted.model, "cross_entropy", train, **more)


class TestItHolds:
    DELTA = 0.2

    @pytest.mark.parametrize("prior", ["learned", "initial"])
    def test_on_draws_of_a_problem_with_known_risk(self, prior: Any) -> None:
        """Coin flips: every model errs on one half. A certificate below one half fails, which few may."""
        draws, failed = 100, 0
        for seed in range(draws):
            recipe = recipe_of(coins(60, seed, 10), epochs=3, batch_size=64)
            found = certify(
                recipe,
                prior=prior,
                delta=self.DELTA,
                monte_carlo_delta=0.02,
                epochs=2,
                draws=2000,
                seed=seed,
            )
            failed += found.bound < 0.5
        assert failed <= self.DELTA * draws

    def test_the_same_arithmetic_on_the_prior_s_own_data_does_not_hold(self) -> None:
        """What the split is for: without it more certificates fail than may."""
        draws, failed = 20, 0
        for seed in range(draws):
            inputs, labels = coins(30, seed, 40)
            fitted = mindgap.fit(
                recipe_of((inputs, labels), epochs=20), seed=seed, evaluate_every=0
            )
            error = fitted.subject().mean_error("train")
            failed += small_kl(error, 0.0, 30, self.DELTA) < 0.5
        assert failed > 2 * self.DELTA * draws

    def test_error_on_fresh_data_is_below(self) -> None:
        found = certify(
            recipe_of(blobs(600), test=blobs(5000, seed=9)), **{**QUICK, "draws": 20_000}
        )
        assert found.test_error is not None
        assert found.test_error < found.bound < 0.1
        assert found.error <= found.error_limit <= found.bound

    def test_the_prior_does_not_depend_on_the_bound_data(self) -> None:
        inputs, labels = blobs(200)
        order = torch.randperm(
            200, generator=torch.Generator().manual_seed(0)
        )  # as certify splits for seed 0
        rest = order[140:]
        other = inputs.clone()
        other[rest] = torch.randn(60, 2, generator=torch.Generator().manual_seed(5)) * 7
        one, two = (certify(recipe_of((x, labels)), seed=0, **QUICK) for x in (inputs, other))
        assert torch.equal(one.model.center, two.model.center)
        assert one.digests["prior"] == two.digests["prior"]
        assert one.digests["bound"] != two.digests["bound"]
        inputs[order[0]] += 1  # while a sample of the prior share moves it
        assert not torch.equal(
            certify(recipe_of((inputs, labels)), seed=0, **QUICK).model.center, one.model.center
        )


class TestNumbers:
    def test_bounds_follow_from_what_is_told(self) -> None:
        found = certify(recipe_of(blobs(300)), **QUICK)
        rest = found.delta - found.monte_carlo_delta
        numbers = (found.error_limit, found.kl, found.samples, rest)
        assert found.theorem == "mixture"
        assert found.bound == mixture(*numbers)
        assert found.bounds["kl"] == small_kl(*numbers)
        rate = found.inverse_temperature
        assert found.bounds["catoni"] == catoni(*numbers, inverse_temperature=rate)
        assert found.samples == found.sizes["bound"] == 90
        assert found.sizes["prior"] == 210
        assert found.draws == 540  # six passes over 90 samples, each sample with weights of its own
        assert set(found.bounds) == {"mixture", "kl", "quadratic", "mcallester", "catoni"}
        assert found.bounds["kl"] <= found.bounds["quadratic"]

    def test_several_scales_share_the_confidence(self) -> None:
        recipe = recipe_of(blobs(300))
        both, single = (
            certify(recipe, scale=(0.01, 5.0), **QUICK),
            certify(recipe, scale=0.01, **QUICK),
        )
        assert both.scale == 0.01
        assert both.bound > single.bound
        paid = both.kl + math.log(2)
        assert both.bound == pytest.approx(mixture(both.error_limit, paid, both.samples, 0.04))
        assert both.paid == {"scales": pytest.approx(math.log(2))}
        assert "union bound" in both.chosen
        assert "without the bound data" in single.chosen

    def test_the_scale_of_a_learned_prior_is_chosen_on_its_own_data(self) -> None:
        inputs, labels = blobs(300)
        order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
        far = inputs.clone()
        far[order[210:]] *= torch.tensor(
            [100.0, -100.0]
        )  # all bound samples, which bear more noise
        one, two = (certify(recipe_of((x, labels)), seed=0, **QUICK) for x in (inputs, far))
        assert one.scale == two.scale
        assert one.chosen == "chosen on the prior's own data"
        assert not one.paid

        def risen(scale: float) -> float:
            """The loss of the prior with noise, relative to the loss without."""
            few = as_split((inputs[order[:210]], labels[order[:210]]))
            noisy = stochastic_model(prior, "gaussian", scale)
            found = expected_losses(noisy, few, draws=100_000, floor=1e-5)
            return found.loss / judged(answer_of(prior), few)[1]

        prior = nn.Linear(2, 2)
        center = one.model.named(one.model.center)
        prior.load_state_dict(center)
        assert risen(one.scale) < 1.01 < risen(30 * one.scale)
        settings = {"held_out": blobs(100, seed=3), **QUICK}
        for factor in (1, 30):  # larger weights bear more noise
            prior.load_state_dict({name: factor * weight for name, weight in center.items()})
            subject = Subject(prior, "cross_entropy", (inputs[order[:210]], labels[order[:210]]))
            found = certify(subject, **settings)
            assert (found.scale > one.scale) is (factor > 1)

    def test_every_prior_that_was_tried_is_paid_for(self) -> None:
        recipe = recipe_of(blobs(300))
        one, ten = (certify(recipe, tried=count, **QUICK) for count in (1, 10))
        assert ten.error == one.error
        assert ten.error_limit == monte_carlo(ten.error, ten.draws, 0.001)
        paid = ten.kl + math.log(10)
        assert ten.bound == pytest.approx(mixture(ten.error_limit, paid, ten.samples, 0.04))
        assert one.paid == {}
        assert ten.paid == {"tried": pytest.approx(2.302585)}
        assert "2.3 nats for the priors that were tried" in str(ten)
        assert ten.prior_bound == binomial_tail_inverse(
            round(ten.prior_error * ten.samples), ten.samples, 0.005
        )

    def test_catonis_rate_comes_from_the_prior_s_data(self) -> None:
        inputs, labels = blobs(300)
        order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
        other = labels.clone()
        other[order[210:]] = 1 - other[order[210:]]  # all bound labels
        one, two = (certify(recipe_of((inputs, y)), seed=0, **QUICK) for y in (labels, other))
        assert one.error < 0.1 < 0.9 < two.error
        assert one.inverse_temperature == two.inverse_temperature
        assert certify(recipe_of(blobs(100)), prior="initial", **QUICK).inverse_temperature is None

    def test_pilot_bound_and_test_data_have_draws_of_their_own(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seeds = []

        def noted(*given: Any, seed: int, **settings: Any) -> Drawn:
            seeds.append(seed)
            return expected_losses(*given, seed=seed, **settings)

        monkeypatch.setattr("mindgap.training.certify.settings.expected_losses", noted)
        certify(recipe_of(blobs(100), test=blobs(50, seed=1)), **{**QUICK, "draws": None})
        assert len(set(seeds)) == len(seeds) == 3

    def test_a_pilot_decides_the_draws_and_does_not_enter(self) -> None:
        quick = {**QUICK, "draws": None}
        few, many = (certify(recipe_of(blobs(count, seed=3)), **quick) for count in (100, 1000))
        for found in (few, many):
            without = mixture(found.error, found.kl, found.samples, 0.04)
            assert found.bound - without <= 0.06 * found.bound  # the pilot is a sample, too
            again = certify(
                recipe_of(blobs(sum(found.sizes[part] for part in ("prior", "bound")), seed=3)),
                **{**QUICK, "draws": found.draws},
            )
            assert again.error == found.error
        assert few.draws < many.draws
        capped = certify(recipe_of(blobs(1000, seed=3)), most_draws=1500, **quick)
        assert capped.draws == 1500

    @pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "tangent"])
    def test_objectives_have_the_slopes_of_their_differences(self, name: str) -> None:
        loss, price = (
            torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.1, 0.02)
        )
        OBJECTIVES[name](loss, price, 0.1).backward()

        def value(a, b):
            return float(OBJECTIVES[name](torch.tensor(a).double(), torch.tensor(b).double(), 0.1))

        for found, step in ((loss.grad, (1e-4, 0.0)), (price.grad, (0.0, 1e-4))):
            ends = [value(0.1 + sign * step[0], 0.02 + sign * step[1]) for sign in (1, -1)]
            assert float(found) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-2)

    @pytest.mark.parametrize("posterior", ["gaussian", "uniform"])
    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_training_lowers_the_bound_where_the_prior_knows_nothing(
        self, objective: Any, posterior: Any
    ) -> None:
        common: dict[str, Any] = {
            "prior": "initial",
            "posterior": posterior,
            "objective": objective,
            "draws": 2000,
        }
        recipe = recipe_of(blobs(2000))
        first, last = (
            certify(recipe, scale=1.0, epochs=epochs, learning_rate=0.05, **common)
            for epochs in (0, 10)
        )
        assert last.bound < first.bound - 0.05
        assert last.bound < 0.3

    def test_seeds_repeat_bit_for_bit(self) -> None:
        recipe = recipe_of(blobs(200), test=blobs(100, seed=3))
        one, again, other = (certify(recipe, seed=seed, **QUICK) for seed in (1, 1, 2))
        assert one == again
        assert one.to_dict()["kl"] == again.to_dict()["kl"]
        assert torch.equal(one.model.shift, again.model.shift)
        assert one != other

    def test_global_random_state_is_left_alone(self) -> None:
        before = torch.get_rng_state()
        certify(recipe_of(blobs(100)), **QUICK)
        assert torch.equal(torch.get_rng_state(), before)


class TestSubjects:
    def test_held_out_data_bound_a_trained_model(self) -> None:
        subject = subject_of(blobs(100))
        subject.model.zero_grad(set_to_none=True)
        kept, mode = copy.deepcopy(subject.model.state_dict()), subject.model.training
        found = certify(subject, held_out=blobs(300, seed=1), **QUICK)
        assert (found.prior, found.samples, found.sizes["train"]) == ("learned", 300, 400)
        assert not found.vacuous
        assert found.prior_error is not None
        assert all(
            torch.equal(value, kept[name]) for name, value in subject.model.state_dict().items()
        )
        assert subject.model.training is mode
        assert all(p.grad is None for p in subject.model.parameters())

    def test_initial_weights_bound_on_the_train_data(self) -> None:
        fitted = mindgap.fit(recipe_of(blobs(500)))
        found = certify(fitted, scale=0.5, **QUICK)
        assert (found.prior, found.samples, found.prior_error) == ("initial", 500, None)
        center = torch.cat([fitted.initial[name].flatten() for name in ("weight", "bias")])
        assert torch.equal(found.model.center, center)
        assert found.valid

    def test_joined_splits_keep_the_order(self) -> None:
        first, second = (
            as_split((torch.arange(k, k + 3.0)[:, None], torch.arange(3))) for k in (0, 10)
        )
        batch = JoinedSplit(first, second).take(torch.tensor([4, 0, 5, 2]))
        assert batch.inputs[0].flatten().tolist() == [11, 0, 12, 2]  # type: ignore[index]
        assert batch.target.tolist() == [1, 0, 2, 2]


class TestRefusals:
    def test_held_out_data_that_were_trained_on(self) -> None:
        train, new = blobs(100), blobs(50, seed=1)
        mixed = (torch.cat([new[0], train[0][:1]]), torch.cat([new[1], train[1][:1]]))
        with pytest.raises(
            InputError, match="bound data must hold no sample of the prior data, got 1 of 51"
        ):
            certify(subject_of(train), held_out=mixed, **QUICK)

    @pytest.mark.parametrize("part", ["prior", "bound"])
    def test_test_data_among_the_others(self, part: str) -> None:
        train, new = blobs(100), blobs(50, seed=1)
        taken = train if part == "prior" else new
        test = (taken[0][:5], taken[1][:5])
        with pytest.raises(
            InputError, match=f"test data must hold no sample of the {part} data, got 5 of 5"
        ):
            certify(subject_of(train, test=test), held_out=new, **QUICK)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"delta": 0.0}, "delta"),
            ({"delta": 1.5}, "delta"),
            ({"monte_carlo_delta": 0.05}, "part"),
            ({"prior_share": 1.0}, "both sides"),
            ({"prior_share": -1.0}, "prior_share"),
            ({"scale": 0.0}, "scale"),
            ({"scale": (0.1, -1.0)}, "scale"),
            ({"floor": 1.0}, "floor"),
            ({"posterior": "gausian"}, "gaussian"),
            ({"objective": "quadric"}, "quadratic"),
            ({"prior": "learnt"}, "learned"),
            ({"draws": 0}, "draws"),
            ({"most_draws": 0}, "most_draws"),
            ({"tried": 0}, "tried"),
            ({"seed": -1}, "seed"),
            ({"held_out": blobs(5)}, "held_out"),
        ],
    )
    def test_bad_arguments(self, changes: dict[str, Any], words: str) -> None:
        with pytest.raises(MindgapError, match=words):
            certify(recipe_of(blobs(100)), **{**QUICK, **changes})

    def test_subjects_without_what_they_need(self) -> None:
        subject = subject_of(blobs(100))
        with pytest.raises(InputError, match="weights from before training"):
            certify(subject, **QUICK)
        with pytest.raises(InputError, match="held-out"):
            certify(subject, prior="learned", **QUICK)
        with pytest.raises(InputError, match="held-out"):
            certify(subject, prior="initial", held_out=blobs(9, seed=4), **QUICK)
        with pytest.raises(InputError, match="Subject or a Recipe"):
            certify(nn.Linear(2, 2), **QUICK)  # type: ignore[arg-type]

    def test_regression_and_several_labels(self) -> None:
        inputs, labels = blobs(100)
        for loss, targets in (("mse", labels.float()[:, None]), ("bce", labels.float()[:, None])):
            recipe = Recipe(model=lambda: nn.Linear(2, 1), train=(inputs, targets), loss=loss)
            with pytest.raises(InputError, match="classification"):
                certify(recipe, **QUICK)

    def test_labels_without_an_output(self) -> None:
        inputs, labels = blobs(100)
        with pytest.raises(InputError, match="from 0 to 1"):
            certify(recipe_of((inputs, labels * 2)), prior="initial", **QUICK)

    def test_a_model_that_cannot_judge_the_held_out_data(self) -> None:
        subject, held_out = subject_of(blobs(100)), blobs(50, seed=1)
        with pytest.raises(InputError, match="must accept a batch of the data"):
            certify(subject, held_out=blobs(50, seed=1, features=3), **QUICK)
        subject.model.weight.data[0, 0] = torch.nan
        with pytest.raises(MindgapError, match="weights must be finite numbers, got 1 of 4"):
            certify(subject, held_out=held_out, mode="held-out")


class TestVerdicts:
    def test_vacuous_says_why(self) -> None:
        few = certify(recipe_of(coins(40, 0, 5)), **QUICK)
        assert few.valid
        assert few.vacuous
        assert few.verdict.startswith("valid, vacuous (")

    def test_a_dear_posterior_is_vacuous_by_its_kl(self) -> None:
        found = certify(
            mindgap.fit(recipe_of(blobs(100), epochs=50)), scale=0.01, **{**QUICK, "epochs": 0}
        )
        assert "nats" in found.verdict

    def test_batch_statistics_break_the_theorem(self) -> None:
        make = lambda: nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False), nn.Linear(2, 2))  # noqa: E731
        found = certify(recipe_of(blobs(100), model=make), **QUICK)
        assert found.verdict.startswith("not valid (")
        assert "No promise" in str(found)

    def test_other_samples_of_the_batch_break_the_theorem(self) -> None:
        class Centered(nn.Linear):
            def forward(self, inputs: Tensor) -> Tensor:
                return super().forward(inputs - inputs.mean(0))

        found = certify(recipe_of(blobs(100), model=lambda: Centered(2, 2)), **QUICK)
        assert "depends on the other samples" in found.verdict

    def test_noise_of_the_model_s_own_breaks_the_theorem(self) -> None:
        class Noisy(nn.Linear):
            def forward(self, inputs: Tensor) -> Tensor:
                return nn.functional.dropout(super().forward(inputs), 0.5, training=True)

        assert (
            "asked again"
            in certify(recipe_of(blobs(100), model=lambda: Noisy(2, 2)), **QUICK).verdict
        )

    @pytest.mark.parametrize(
        ("prior", "words"), [("learned", "with the prior"), ("initial", "before training")]
    )
    def test_running_statistics_are_frozen(self, prior: Any, words: str) -> None:
        make = lambda: MLP(widths=(2, 8, 2), norm="batch", dropout=0.5)  # noqa: E731
        found = certify(recipe_of(blobs(200), model=make), prior=prior, **QUICK)
        assert found.valid
        assert any(words in note for note in found.notes)
        fresh = bool((found.model.network[2].running_mean == 0).all())
        assert fresh is (prior == "initial")

    def test_repeated_bound_samples_are_told(self) -> None:
        new = bits(60, seed=1)
        found = certify(subject_of(bits(60)), held_out=new, **QUICK)
        assert found.valid
        assert any("bound samples repeat another one" in note for note in found.notes)

    def test_json_and_words(self) -> None:
        found = certify(recipe_of(blobs(200), test=blobs(100, seed=2), name="lines"), **QUICK)
        again = Certificate.from_json(found.to_json())
        assert again == found
        assert again.model is None
        assert json.loads(found.to_json())["verdict"] == found.verdict
        text = str(found)
        assert text.startswith("lines: valid")
        assert "test error" in text
        assert len(text.splitlines()) <= 9
        with pytest.raises(InputError, match="schema"):
            Certificate.from_dict({"schema": 99})
