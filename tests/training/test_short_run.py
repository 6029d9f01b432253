"""The short run: against a plain loop, budgets, tempered losses, models that cannot be trained."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from mindgap.core import InputError, Subject
from mindgap.nets import MLP
from mindgap.training import short_run as module
from mindgap.training.short_run import Brake, short_run


def data(samples: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(samples, 3, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] * x[:, 1] > 0).long()


@pytest.mark.parametrize("brake", [Brake(), Brake(decay=0.01), Brake(decay=1, decoupled=True)])
def test_equals_a_plain_loop(brake: Brake) -> None:
    torch.manual_seed(0)
    model = MLP((3, 8, 2))
    x, y = data()
    run = short_run(Subject(model, "cross_entropy", (x, y)), brake=brake)
    random = torch.Generator().manual_seed(0)
    order = torch.randperm(400, generator=random)
    held, used = order[:100], order[100:]
    picks = used[torch.randint(300, (module.STEPS, module.BATCH), generator=random)]
    twin = copy.deepcopy(model)
    kind = torch.optim.AdamW if brake.decoupled else torch.optim.Adam
    optimizer = kind(twin.parameters(), weight_decay=brake.decay)
    for step, places in enumerate(picks):
        optimizer.param_groups[0]["lr"] = module.RATE * (1 - step / len(picks))
        optimizer.zero_grad()
        nn.functional.cross_entropy(twin(x[places]), y[places]).backward()
        optimizer.step()
    assert torch.equal(run.places, held)
    assert torch.allclose(run.outputs, twin(x[held]), atol=1e-5)
    assert run.fall == pytest.approx(1 - float(run.after.mean() / run.before.mean()))
    assert run.p_value < 1e-3


def test_large_models_get_fewer_and_smaller_steps() -> None:
    x, y = data()
    wide = MLP((3, 600, 600, 2))
    run = short_run(Subject(wide, "cross_entropy", (x, y)))
    assert module.LEAST <= run.steps <= module.STEPS
    assert run.epochs < module.STEPS * module.BATCH / 400
    huge = MLP((3, 6000, 6000, 2))
    with pytest.raises(InputError, match="operations"):
        short_run(Subject(huge, "cross_entropy", (x, y)))


def test_noise_acts_on_steps_and_not_on_losses() -> None:
    torch.manual_seed(0)
    subject = Subject(MLP((3, 8, 2), dropout=0.5), "cross_entropy", data())
    free, noisy = (short_run(subject, brake=Brake(noise=noise)) for noise in (False, True))
    assert torch.equal(free.before, noisy.before)
    assert not torch.allclose(free.after, noisy.after, rtol=0.01)
    again = Subject(subject.model, "cross_entropy", data())
    assert torch.equal(short_run(again, brake=Brake(noise=True)).after, noisy.after)


def test_start_from_the_initial_weights() -> None:
    x, y = data()
    model = MLP((3, 8, 2))
    initial = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(0.0)
    subject = Subject(model, "cross_entropy", (x, y), initial=initial)
    assert short_run(subject, "initial").fall > short_run(subject).fall
    with pytest.raises(InputError, match="initial weights"):
        short_run(Subject(model, "cross_entropy", (x, y)), "initial")


def test_models_without_weights_are_refused() -> None:
    x, y = data()
    with pytest.raises(InputError, match="weights"):
        short_run(Subject(nn.Flatten(), "cross_entropy", (x, y)))


def test_recurrent_layers_and_tiny_data() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRU(3, 4, 2, batch_first=True, dropout=0.5), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.cell(x)[0][:, -1])

    x = torch.randn(48, 5, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, -1, 0] > 0).long()
    subject = Subject(Net().eval(), "cross_entropy", (x, y), (x, y))
    run = short_run(subject)
    assert run.fall > 0
    assert len(run.test_after) == 48
