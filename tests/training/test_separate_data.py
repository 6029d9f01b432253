"""Networks with data of their own equal networks that are trained alone."""

import functools

import pytest
import torch
from torch import Tensor, nn

from mindgap import Recipe, fit
from mindgap.core.errors import InputError
from mindgap.nets import MLP
from mindgap.training import separate_data
from mindgap.training.separate_data import fit_own_data

MODEL = functools.partial(MLP, (2, 6, 5, 2), "relu")


def samples(members: int, count: int) -> tuple[Tensor, Tensor]:
    inputs = torch.rand(members, count, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    return inputs, torch.stack([(3 * inputs[..., 0]).sin(), inputs.prod(2)], dim=2)


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("at_once", [1, 2**18])
def test_every_member_equals_a_fit_of_its_own(
    batch_size: int | None, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(separate_data, "AT_ONCE", at_once)
    inputs, targets = samples(3, 20)
    seeds = [4, 0, 9]
    together = fit_own_data(
        MODEL, inputs, targets, seeds, epochs=30, batch_size=batch_size, learning_rate=0.01
    )
    adam = functools.partial(torch.optim.Adam, lr=0.01, eps=1e-7)
    probe = samples(1, 50)[0][0]
    for k, seed in enumerate(seeds):
        train = inputs[k], targets[k]
        recipe = Recipe(
            model=MODEL, train=train, loss="mse", optimizer=adam, epochs=30, batch_size=batch_size or 20
        )  # fmt: skip
        alone = fit(recipe, seed=seed).model.eval()
        with torch.no_grad():
            torch.testing.assert_close(
                together.outputs(probe)[k], alone(probe), rtol=1e-5, atol=1e-5
            )
            loss = nn.functional.mse_loss(alone(inputs[k]), targets[k])
        assert float(together.losses[-1, k]) == pytest.approx(float(loss), rel=1e-4)


def test_members_do_not_see_each_other() -> None:
    inputs, targets = samples(3, 20)
    before = fit_own_data(MODEL, inputs, targets, [0, 1, 2], epochs=10)
    inputs[1] += 1
    after = fit_own_data(MODEL, inputs, targets, [0, 1, 2], epochs=10)
    probe = inputs[0]
    assert torch.equal(before.outputs(probe)[[0, 2]], after.outputs(probe)[[0, 2]])
    assert not torch.equal(before.outputs(probe)[1], after.outputs(probe)[1])


def test_train_errors_are_noted_on_the_way() -> None:
    inputs, targets = samples(2, 20)
    losses = fit_own_data(MODEL, inputs, targets, [0, 1], epochs=200, checks=4).losses
    half = fit_own_data(MODEL, inputs, targets, [0, 1], epochs=100).losses
    assert losses.shape == (4, 2)
    torch.testing.assert_close(losses[1], half[0])
    assert bool((losses[-1] < losses[0]).all())


def test_outputs_of_own_and_shared_inputs() -> None:
    inputs, targets = samples(2, 20)
    found = fit_own_data(MODEL, inputs, targets, [0, 1], epochs=1)
    own = found.outputs(inputs)
    assert len(found) == 2
    torch.testing.assert_close(found.member(1).outputs(inputs[1])[0], own[1])
    torch.testing.assert_close(own[1], found.outputs(inputs[1])[1])
    assert not own.requires_grad


def test_what_cannot_be_stacked_is_refused() -> None:
    inputs, targets = samples(2, 20)
    for model in (
        lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
        lambda: MLP((2, 3, 2), dropout=0.5),
        lambda: MLP((2, 3, 2), bias=False),
        lambda: nn.Sequential(nn.Tanh(), nn.Linear(2, 2)),
    ):
        with pytest.raises(InputError, match="chain of linear layers"):
            fit_own_data(model, inputs, targets, [0, 1], epochs=1)
    with pytest.raises(InputError, match="members, samples, features"):
        fit_own_data(MODEL, inputs[0], targets[0], [0, 1], epochs=1)
    with pytest.raises(InputError, match="members, samples, features"):
        fit_own_data(MODEL, inputs, targets, [0], epochs=1)
