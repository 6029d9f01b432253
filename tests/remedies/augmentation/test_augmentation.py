"""Noise, shifts, flips and mixup against loops written by hand."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from cases import recipe
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.recipe import Recipe
from mindgap.core.remedy import TrainingState
from mindgap.nets import MLP
from mindgap.remedies import SAM, InputNoise, Mixup, RandomFlips, RandomShifts
from mindgap.training.batches import batches_of
from mindgap.training.fit import fit


def at(step: int, seed: int = 0) -> TrainingState:
    return TrainingState(model=nn.Identity(), optimizer=None, step=step, seed=seed)


def images(count: int = 300) -> Tensor:
    return torch.rand(count, 2, 5, 4, generator=torch.Generator().manual_seed(0))


def test_noise_has_the_size_of_the_features() -> None:
    rows = torch.randn(4000, 3, dtype=torch.float64) * torch.tensor([1.0, 100.0, 0.0]) + 5
    (noisy,) = InputNoise(scale=0.5).inputs(at(1), (rows,))
    assert torch.allclose(
        (noisy - rows).std(0) / rows.std(0).clamp(min=1e-9),
        torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64),
        atol=0.03,
    )
    (grainy,) = InputNoise(scale=0.5).inputs(at(1), (images(),))
    difference = grainy - images()
    assert torch.allclose(difference.std((0, 2, 3)), 0.5 * images().std((0, 2, 3)), rtol=0.05)


@pytest.mark.parametrize("remedy", [InputNoise(), RandomShifts(pixels=2), RandomFlips(), Mixup()])
def test_draws_depend_on_seed_and_step_alone(remedy: object) -> None:
    first, again, other, seed = (
        remedy.inputs(state, (images(),))[0] for state in (at(1), at(1), at(2), at(1, seed=1))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, seed)
    assert torch.equal(images(), images())


def test_flips_mirror_about_the_stated_share() -> None:
    (found,) = RandomFlips(rate=0.3).inputs(at(1), (images(),))
    mirrored = [torch.equal(one, other.flip(2)) for one, other in zip(found, images(), strict=True)]
    plain = [torch.equal(one, other) for one, other in zip(found, images(), strict=True)]
    assert sum(mirrored) + sum(plain) == 300
    assert 60 < sum(mirrored) < 120


def test_shifts_are_those_of_padded_images() -> None:
    (found,) = RandomShifts(pixels=1).inputs(at(3), (images(),))
    padded, seen = F.pad(images(), (1, 1, 1, 1), mode="replicate"), set()
    for one, own in zip(found, padded, strict=True):
        places = [
            (y, x)
            for y in range(3)
            for x in range(3)
            if torch.equal(one, own[:, y : y + 5, x : x + 4])
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) == 9


def test_all_inputs_of_a_sample_move_together() -> None:
    given = {"left": images(), "right": images(), "size": torch.ones(300)}
    found = RandomShifts(pixels=1).inputs(at(1), given)
    assert torch.equal(found["left"], found["right"])
    assert torch.equal(found["size"], given["size"])


@pytest.mark.parametrize("loss", ["cross_entropy", "l1"])
def test_mixup_is_the_loop_written_by_hand(loss: str) -> None:
    plan = recipe(epochs=3, optimizer="sgd")
    if loss == "l1":
        plan = plan.replace(train=(plan.train[0], plan.train[0][:, :3].sin()), test=None, loss=loss)
    (inputs, targets), model, step = plan.train, plan.build(2), 0
    optimizer = plan.optimize(model.parameters())
    compare = F.cross_entropy if loss == "cross_entropy" else F.l1_loss
    for epoch in range(1, 4):
        for index in batches_of(48, plan.batch_size, 2, epoch):
            step += 1
            seed = at(step, seed=2).random("mixup")
            order = torch.randperm(len(index), generator=torch.Generator().manual_seed(seed))
            share = random.Random(seed).betavariate(0.7, 0.7)
            x, y = inputs[index], targets[index]
            output = model(share * x + (1 - share) * x[order])
            value = share * compare(output, y) + (1 - share) * compare(output, y[order])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    found = fit(plan, [Mixup(alpha=0.7)], seed=2).model
    for one, other in zip(found.parameters(), model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_both_passes_of_sam_see_the_same_mixture() -> None:
    plan = recipe(epochs=1, batch_size=48, optimizer="sgd")
    seen: list[Tensor] = []

    def watched() -> nn.Module:
        model = plan.model()
        model.register_forward_pre_hook(
            lambda _, given: seen.append(given[0]) if model.training else None
        )
        return model

    fit(plan.replace(model=watched), [Mixup(alpha=1.0), InputNoise(), SAM()], evaluate_every=0)
    assert len(seen) == 2
    assert torch.equal(*seen)


@pytest.mark.parametrize("remedy", [RandomShifts(), RandomFlips()])
def test_images_are_needed(remedy: object) -> None:
    with pytest.raises(InputError, match=r"must see images of shape .*, got \(1, 4\)\. Leave"):
        fit(recipe(), [remedy])


@pytest.mark.parametrize("remedy", [InputNoise(), Mixup()])
def test_real_numbers_are_needed(remedy: object) -> None:
    words = torch.randint(0, 5, (20, 3), generator=torch.Generator().manual_seed(0))
    plan = Recipe(
        model=lambda: nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), MLP((12, 2))),
        train=(words, words[:, 0] % 2),
    )
    with pytest.raises(InputError, match=r"must see real numbers, got inputs of torch\.int64"):
        fit(plan, [remedy])
