"""Bound data that reach the prior: on coin labels no certificate may promise less than one half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mindgap
from mindgap import Certificate, Recipe, Subject, certify
from mindgap.core.errors import InputError
from mindgap.core.split import Split, as_split
from mindgap.training.certify.checks import check_state
from mindgap.training.certify.material import of_recipe
from mindgap.training.certify.transform import TransformedSplit, standardize

from .test_certify import QUICK, bits, blobs, coins, memorized, recipe_of, subject_of


def agreeing(inputs: Tensor, labels: Tensor) -> Tensor:
    """Weights that keep the samples on which a linear fit to these very labels is right."""
    signs = 2.0 * labels - 1
    fitted = inputs @ torch.linalg.lstsq(inputs, signs[:, None]).solution
    return (fitted.flatten() * signs > 0).float()


class TestSampleWeights:
    """A fit on the samples that agree with a fit to all labels has learned the bound labels."""

    DATA = coins(2000, 0, 200)

    def certified(self, weights: Any, **changes: Any) -> Certificate:
        recipe = recipe_of(self.DATA, sample_weights=weights, epochs=20, learning_rate=0.01)
        return certify(recipe, **{**QUICK, "draws": 20_000, **changes})

    def test_weights_of_all_samples_carry_the_bound_labels_into_the_prior(self) -> None:
        found = self.certified(agreeing(*self.DATA))
        assert found.prior_error is not None
        assert found.prior_error < 0.45  # what makes the certificate false
        assert found.verdict.startswith("not valid (the sample weights may carry bound data")
        assert "No promise" in str(found)

    def test_a_function_sees_the_prior_s_part_only(self) -> None:
        seen = []

        def weights(split: Split) -> Tensor:
            seen.append(len(split))
            inputs = torch.cat([batch.inputs[0] for batch in split.batches(100)])  # type: ignore[index]
            return agreeing(inputs, split.targets)

        found = self.certified(weights)
        assert set(seen) == {1400}
        assert found.valid
        assert found.bound >= 0.5

    def test_constant_weights_carry_nothing(self) -> None:
        assert self.certified(torch.full((2000,), 2.0)).valid

    def test_an_initial_prior_is_not_trained_with_weights(self) -> None:
        assert self.certified(agreeing(*self.DATA), prior="initial").valid

    def test_weights_of_a_wrong_length_are_refused(self) -> None:
        with pytest.raises(InputError, match="sample_weights must be 1400"):
            self.certified(torch.ones(7))


class TestTransform:
    def test_it_is_fitted_on_the_prior_s_part(self) -> None:
        inputs, labels = blobs(200)
        seen: list[Tensor] = []

        def fitted(split: Split) -> Callable[[Tensor], Tensor]:
            seen.append(split.targets)
            return standardize(split)

        recipe = recipe_of((inputs * 100 + 7, labels), test=blobs(50, seed=4))
        found = certify(recipe, transform=fitted, seed=3, **QUICK)
        order = torch.randperm(200, generator=torch.Generator().manual_seed(3))
        assert torch.equal(seen[0], labels[order[:140].sort().values])
        assert not found.vacuous

    def test_bound_data_do_not_move_it(self) -> None:
        inputs, labels = blobs(200)
        other = inputs.clone()
        other[torch.randperm(200, generator=torch.Generator().manual_seed(0))[140:]] *= 50
        one, two = (
            certify(recipe_of((given, labels)), transform=standardize, **QUICK)
            for given in (inputs, other)
        )
        assert torch.equal(one.model.center, two.model.center)

    def test_refusals(self) -> None:
        with pytest.raises(InputError, match="learned prior"):
            certify(recipe_of(blobs(50)), prior="initial", transform=standardize, **QUICK)
        with pytest.raises(InputError, match="belongs to a recipe"):
            certify(subject_of(blobs(50)), held_out=blobs(9, 3), transform=standardize, **QUICK)
        with pytest.raises(InputError, match="must return a tensor"):
            certify(recipe_of(blobs(50)), transform=lambda _: lambda _: 3, **QUICK)
        several = as_split((torch.ones(2, 1), torch.ones(2, 1), torch.zeros(2)))
        with pytest.raises(InputError, match="one tensor"):
            standardize(several)

    def test_named_inputs_are_transformed_together(self) -> None:
        split = as_split({"x": torch.ones(3, 1), "y": torch.arange(3)})
        doubled = TransformedSplit(split, lambda given: {"x": 2 * given["x"]})
        assert doubled.take(torch.tensor([1])).inputs["x"].tolist() == [[2.0]]  # type: ignore[call-overload]
        assert doubled.targets.tolist() == [0, 1, 2]


class TestSharedSamples:
    TRAIN = coins(40, 1, 60)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda x: x, "no sample"),
            (lambda x: x.double(), "no sample"),
            (lambda x: x.half(), "no sample"),
            (lambda x: x.half().float(), "no near copies"),
            (lambda x: x + 1e-5, "no near copies"),
            (lambda x: torch.cat([x[:, :1] + 9, x[:, 1:]], 1), "no near copies"),
        ],
        ids=["same", "double", "half", "through half", "shifted", "one feature"],
    )
    def test_memorized_coins_are_refused(
        self, change: Callable[[Tensor], Tensor], words: str
    ) -> None:
        """Without the check the certificate is far below the risk of one half."""
        subject = memorized(self.TRAIN)
        assert subject.mean_error("train") == 0
        with pytest.raises(InputError, match=f"{words}.* of the prior data, got 40 of 40"):
            certify(subject, held_out=(change(self.TRAIN[0]), self.TRAIN[1]), **QUICK)

    def test_held_out_data_in_single_precision(self) -> None:
        inputs = torch.randn(40, 60, generator=torch.Generator().manual_seed(3)).double() / 3
        model = memorized((inputs, self.TRAIN[1])).model
        subject = Subject(model, "cross_entropy", (inputs, self.TRAIN[1]))
        with pytest.raises(InputError, match="got 40 of 40"):
            certify(subject, held_out=(inputs.float(), self.TRAIN[1]), **QUICK)

    def test_fresh_coins_are_certified_honestly(self) -> None:
        found = certify(memorized(self.TRAIN), held_out=coins(200, 2, 60), **QUICK)
        assert found.valid
        assert found.bound >= 0.5

    def test_independent_discrete_data_may_coincide(self) -> None:
        learned = certify(recipe_of(bits(400)), **QUICK)
        held = certify(subject_of(bits(200)), held_out=bits(300, seed=1), **QUICK)
        for found in (learned, held):
            assert found.valid
            assert any("samples of discrete data may coincide" in note for note in found.notes)

    def test_the_training_data_themselves_are_refused_though_discrete(self) -> None:
        data = bits(200)
        order = torch.randperm(200, generator=torch.Generator().manual_seed(5))
        with pytest.raises(InputError, match="got 200 of 200"):
            certify(subject_of(data), held_out=(data[0][order], data[1][order]), **QUICK)

    def test_copies_inside_the_data_break_the_theorem(self) -> None:
        inputs, labels = coins(60, 0, 80)
        found = certify(recipe_of((inputs.repeat(2, 1), labels.repeat(2)), epochs=50), **QUICK)
        assert found.prior_error is not None
        assert found.prior_error < 0.45  # memorized through the copies in the prior's part
        assert "copies" in found.verdict
        inputs, labels = blobs(50, seed=1)
        twice = inputs.repeat(2, 1), labels.repeat(2)
        held = certify(subject_of(blobs(50)), held_out=twice, **QUICK)
        assert "copies" in held.verdict

    def test_near_copies_across_a_random_split_are_told(self) -> None:
        inputs, labels = coins(60, 0, 20)
        both = torch.cat([inputs, inputs + 1e-5]), labels.repeat(2)
        notes = certify(recipe_of(both), **QUICK).notes
        assert any("of the bound samples are near copies of prior samples" in n for n in notes)


class Shifted(nn.Linear):
    """Keeps the mean of its training data outside the state dict, and answers with it."""

    def __init__(self, features: int) -> None:
        super().__init__(features, 2)
        self.mean: Any = 0.0

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.mean = inputs.mean(0).detach()
        return super().forward(inputs - self.mean)


class TestStateOutsideTheStateDict:
    def test_what_fit_returned_is_rebuilt(self) -> None:
        inputs, labels = blobs(100)
        fitted = mindgap.fit(recipe_of((inputs + 5, labels), model=lambda: Shifted(2)))
        assert float(fitted.model.mean.min()) > 4
        found = certify(fitted, **QUICK)
        assert found.model.network.mean == 0.0
        assert fitted.model.mean is not found.model.network.mean

    def test_a_recipe_s_initial_network_has_seen_no_sample(self) -> None:
        class Remembers(nn.Linear):
            seen = 0

            def forward(self, inputs: Tensor) -> Tensor:
                self.seen += len(inputs)
                return super().forward(inputs)

        built: list[Remembers] = []

        def make() -> nn.Module:
            built.append(Remembers(2, 2))
            return built[-1]

        made = of_recipe(Recipe(model=make, train=blobs(50)), "initial", 0.5, 0)
        assert made.network.seen == 0
        assert max(one.seen for one in built) > 0

    def test_a_subject_with_such_state_is_refused(self) -> None:
        fitted = mindgap.fit(recipe_of(blobs(50), model=lambda: Shifted(2)))
        with pytest.raises(InputError, match=r"state dict, got 'mean' outside"):
            certify(fitted.subject(), prior="initial", **QUICK)

    @pytest.mark.parametrize(
        "state", [0.25, torch.ones(2), [torch.ones(1)], {"mean": 0.5}], ids=repr
    )
    def test_kinds_of_state(self, state: Any) -> None:
        model = nn.Sequential(Shifted(2))
        model[0].mean = state
        with pytest.raises(InputError, match=r"'0\.mean'"):
            check_state(model)

    def test_buffers_that_are_not_saved(self) -> None:
        model = nn.Linear(2, 2)
        model.register_buffer("shift", torch.zeros(2), persistent=False)
        with pytest.raises(InputError, match="'shift'"):
            check_state(model)

    def test_settings_are_no_state(self) -> None:
        check_state(nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(2), nn.Linear(2, 2)))
        check_state(mindgap.nets.MLP(widths=(2, 4, 2), dropout=0.3))
