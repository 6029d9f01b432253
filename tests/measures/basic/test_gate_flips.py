"""Flipped gates are counted as a loop over samples and units counts them, also during training."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core.recipe import Recipe
from mindgap.core.subject import Subject
from mindgap.measures import DistanceFromInitialization, GateFlips
from mindgap.nets import MLP
from mindgap.ops.models.phases import gates_of
from mindgap.remedies import TwoPhase
from mindgap.training.fit import fit
from mindgap.training.probe import Probe

N = 30


def network() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 6, 6)),
        nn.Conv2d(1, 3, 3),
        nn.LeakyReLU(0.2),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


def plan(**changes) -> Recipe:
    random = torch.Generator().manual_seed(0)
    data = torch.randn(N, 36, generator=random), torch.randint(0, 3, (N,), generator=random)
    settings = {"model": network, "epochs": 4, "batch_size": 10, "learning_rate": 0.03}
    return Recipe(train=data, **{**settings, **changes})


def patterns(state: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """The gates of the network above, by hand."""
    before = F.conv2d(x.view(-1, 1, 6, 6), state["1.weight"], state["1.bias"])
    _, places = F.max_pool2d(F.leaky_relu(before, 0.2), 2, return_indices=True)
    return before > 0, places


def by_hand(x: Tensor, now: dict[str, Tensor], then: dict[str, Tensor]) -> float:
    pairs = list(zip(patterns(now, x), patterns(then, x), strict=True))
    flips = sum(
        a != b
        for one, other in pairs
        for a, b in zip(one.flatten().tolist(), other.flatten().tolist(), strict=True)
    )
    return flips / sum(one.numel() for one, _ in pairs)


def test_equals_the_count_by_hand() -> None:
    fitted = fit(plan())
    found = GateFlips()(fitted.subject())
    x = fitted.recipe.train[0]
    assert 0 < float(found) < 1
    assert float(found) == by_hand(x, fitted.model.state_dict(), fitted.initial)
    assert found.terms["gates"] == N * (3 * 16 + 12)
    shares = found.details["by_gate"]
    mean = (48 * shares["gate 1"] + 12 * shares["gate 2"]) / 60
    assert mean == pytest.approx(float(found))


def test_since_phase_1_is_what_free_gates_would_have_done() -> None:
    fitted = fit(plan(), [TwoPhase()])
    subject, x = fitted.subject(), fitted.recipe.train[0]
    found = GateFlips(since="phase 1")(subject)
    kept = gates_of(fitted.model).first()
    assert float(found) == by_hand(x, fitted.model.state_dict(), kept)
    assert 0 < float(found) < float(GateFlips()(subject))


def test_a_probe_gives_the_share_per_step_and_since_the_start() -> None:
    moving = Probe(measure=GateFlips(), every=1, since="reading")
    still = Probe(measure=GateFlips(), every=1)
    path = Probe(measure=DistanceFromInitialization(), every=4, since="reading")
    plain, probed = fit(plan()), fit(plan(), probes=[moving, still, path])
    assert torch.equal(plain.model[1].weight, probed.model[1].weight)
    steps = [float(value) for _, value in moving.readings]
    whole = [float(value) for _, value in still.readings]
    assert len(steps) == len(whole) == 12
    assert steps[0] == whole[0]
    assert max(steps) < max(whole)
    assert whole[-1] == float(GateFlips()(plain.subject()))
    assert whole[-1] <= sum(steps)  # every gate that is flipped in the end flipped at some step
    assert [step for step, _ in path.readings] == [4, 8, 12]
    total = float(DistanceFromInitialization()(plain.subject()))
    assert total <= sum(float(value) for _, value in path.readings)


def test_undefined_where_there_is_nothing_to_compare_or_to_count() -> None:
    fitted = fit(plan())
    data = fitted.recipe.train
    assert "before training" in GateFlips()(Subject(fitted.model, "cross_entropy", data)).reason
    assert "phase 2 has begun" in GateFlips(since="phase 1")(fitted.subject()).reason
    for model, text in (
        (lambda: MLP((36, 4, 3), activation="tanh"), "got tanh"),
        (lambda: nn.Linear(36, 3), "needs a ReLU"),
    ):
        assert text in GateFlips()(fit(plan(model=model)).subject()).reason
