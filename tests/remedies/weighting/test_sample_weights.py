"""Class-balanced, hard-example, self-paced and active-bias weights against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from cases import recipe
from torch import nn

from mindgap.core.errors import InputError
from mindgap.core.remedy import TrainingState
from mindgap.remedies import SAM, ActiveBias, ClassBalance, HardExamples, SelfPaced
from mindgap.training.batches import batches_of
from mindgap.training.fit import fit

LABELS = torch.tensor([7] * 60 + [3] * 30 + [0] * 9 + [5])


@pytest.mark.parametrize("beta", [0.5, 0.99, 0.999999])
def test_class_balance_follows_the_effective_number(beta: float) -> None:
    found = ClassBalance(beta=beta).sample_weights(LABELS)
    numbers = {7: 60, 3: 30, 0: 9, 5: 1}
    raw = [(1 - beta) / (1 - beta ** numbers[label]) for label in LABELS.tolist()]
    assert found.tolist() == pytest.approx([value * 100 / sum(raw) for value in raw])
    assert float(found.mean()) == pytest.approx(1)


def test_class_balance_near_one_gives_every_class_the_same_weight() -> None:
    weights = ClassBalance(beta=1 - 1e-9).sample_weights(LABELS)
    totals = [float(weights[label == LABELS].sum()) for label in (7, 3, 0, 5)]
    assert totals == pytest.approx([25] * 4, rel=1e-5)


def test_class_balance_multiplies_the_weights_of_the_recipe() -> None:
    given = torch.rand(48, generator=torch.Generator().manual_seed(0)) + 0.5
    plan, balance = recipe(), ClassBalance(beta=0.9)
    both = given * balance.sample_weights(plan.train[1])
    treated = fit(plan.replace(sample_weights=lambda split: given[: len(split)]), [balance])
    by_hand = fit(plan.replace(sample_weights=both))
    assert treated.history == by_hand.history
    with pytest.raises(InputError, match="one class number per sample"):
        balance.sample_weights(torch.rand(4))


def at(epoch: int, epochs: int) -> TrainingState:
    return TrainingState(model=nn.Identity(), optimizer=None, epoch=epoch, epochs=epochs)


def kept(remedy: object, losses: list[float], epoch: int = 1, epochs: int = 5) -> list[float]:
    given = torch.tensor(losses)
    return remedy.losses(at(epoch, epochs), lambda output, target: output, given, given).tolist()


def test_hard_examples_are_the_mean_of_the_largest_losses() -> None:
    losses = torch.rand(37, generator=torch.Generator().manual_seed(0)).tolist()
    for share in (0.1, 0.5, 0.99):
        top = sorted(losses)[int(share * 37) :]
        found = kept(HardExamples(share=share), losses)
        assert sum(found) / 37 == pytest.approx(sum(top) / len(top))
        assert sum(value > 0 for value in found) == len(top)
    assert kept(HardExamples(share=0.9), [1.0]) == [1.0]
    assert sum(value > 0 for value in kept(HardExamples(share=0.5), [1.0] * 4)) == 2


def test_self_pacing_adds_the_hard_samples_epoch_by_epoch() -> None:
    losses = torch.rand(40, generator=torch.Generator().manual_seed(0)).tolist()
    for epoch, share in zip(range(1, 6), (0.8, 0.65, 0.5, 0.35, 0.2), strict=True):
        low = sorted(losses)[: 40 - round(share * 40)]
        found = kept(SelfPaced(share=0.8, end=0.2), losses, epoch)
        assert sum(found) / 40 == pytest.approx(sum(low) / len(low))
    assert kept(SelfPaced(share=0.8), losses, epoch=5) == losses
    with pytest.raises(InputError, match="must know the number of epochs"):
        kept(SelfPaced(), losses, epochs=0)


def weighted_by_hand(epochs: int, burn_in: int, share: float) -> nn.Module:
    """Active bias as a loop over samples, with the whole history in lists."""
    plan = recipe(optimizer="sgd")
    (inputs, targets), model = plan.train, plan.build(2)
    optimizer = plan.optimize(model.parameters())
    history: list[list[float]] = [[] for _ in targets]
    weights = [1.0] * len(targets)
    for epoch in range(1, epochs + 1):
        for index in batches_of(48, plan.batch_size, 2, epoch):
            output = model(inputs[index])
            right = output.softmax(1).gather(1, targets[index][:, None])
            for place, value in zip(index.tolist(), right.flatten().tolist(), strict=True):
                history[place].append(value)
            losses = F.cross_entropy(output, targets[index], reduction="none")
            own = torch.tensor([weights[place] for place in index.tolist()])
            optimizer.zero_grad()
            (losses * own).mean().backward()
            optimizer.step()
        if epoch >= burn_in:
            variances = [float(torch.tensor(row, dtype=torch.float64).var()) for row in history]
            spread = [(v + v * v / (epoch - 1)) ** 0.5 for v in variances]
            floor = sum(spread) / 48
            scale = sum(s + floor for s in spread) / 48
            weights = [1 + share * ((s + floor) / scale - 1) for s in spread]
    return model


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_active_bias_is_the_loop_written_by_hand(share: float) -> None:
    found = fit(recipe(epochs=6, optimizer="sgd"), [ActiveBias(share=share, burn_in=2)], seed=2)
    wanted = weighted_by_hand(6, 2, share)
    for one, other in zip(found.model.parameters(), wanted.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    plain = fit(recipe(epochs=6, optimizer="sgd"), seed=2).model
    assert not torch.allclose(next(plain.parameters()), next(wanted.parameters()), atol=1e-5)


def test_active_bias_counts_a_batch_once_however_often_it_is_passed() -> None:
    remedy, state, places = ActiveBias(), at(1, 5), torch.tensor([3, 0])
    for step, loss in ((1, 0.5), (1, 9.0), (2, 1.0)):  # SAM passes over the first batch twice
        state.step = step
        given = torch.full((2,), loss)
        remedy.losses(state, lambda output, target: output, given, given)
        assert remedy.weights(state, places) is None
    assert state.memory["count"].tolist() == [2, 0, 0, 2]
    both = math.exp(-0.5) + math.exp(-1)
    assert state.memory["sum"].tolist() == pytest.approx([both, 0, 0, both])


def test_active_bias_gives_a_sample_without_history_its_own_weight() -> None:
    remedy, state = ActiveBias(burn_in=2), at(2, 5)
    given = torch.tensor([0.5, 1.0])
    for step, scale in ((1, 1.0), (2, 3.0)):
        state.step = step
        remedy.losses(state, lambda output, target: output, scale * given, given)
        remedy.weights(state, torch.tensor([0, 1]))
    remedy.after_epoch(state)
    state.step = 3
    remedy.losses(state, lambda output, target: output, given, given)
    assert float(remedy.weights(state, torch.tensor([0, 4]))[1]) == 1
    assert len(fit(recipe(epochs=3), [remedy, SAM()]).history) == 3
