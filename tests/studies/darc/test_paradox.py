"""Both constructions of the Proposition: as bad as one likes, with the gap of the true function."""

import pytest
import torch

from mindgap.core import Trial
from mindgap.studies.darc.paradox import (
    SPOT,
    Jumping,
    Memorizer,
    Paradox,
    sample,
    squared,
    truth,
    unstable,
)

NONE = torch.empty(0, 2, dtype=torch.float64), torch.empty(0, dtype=torch.float64)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_sharp_minimum_of_a_memorizing_class(scale: float) -> None:
    study = Paradox(samples=50)
    record = study.run(Trial(parameters={"part": "sharp", "scale": scale}, seed=3))
    x, y = sample(50, 0.1, 3)
    flipped = float((y != truth(x)).double().mean())
    assert flipped > 0
    assert record["badness"] == pytest.approx(8 * scale**2 * flipped)
    assert record["slope"] == 0
    assert record["gap"] == pytest.approx(4 * (0.1 - flipped))
    assert abs(record["gap"]) == pytest.approx(record["epsilon"])
    assert record["memorized"] == 0
    # A minimum: any other offset is worse.
    here, moved = (
        squared(Memorizer(torch.tensor(a).double(), scale, *NONE)(x), y) for a in (0.0, 0.1 / scale)
    )
    assert moved > here


def test_memorizer_stores_what_it_is_told_and_answers_the_truth_elsewhere() -> None:
    x, _ = sample(30, 0.1, 0)
    odd = torch.linspace(-3, 3, 30, dtype=torch.float64)
    model = Memorizer(torch.zeros(()).double(), 5.0, x, odd)
    assert torch.equal(model(x), odd)
    fresh, _ = sample(30, 0.1, 1)
    assert torch.equal(model(fresh), truth(fresh))


@pytest.mark.parametrize("jump", [1.0, 1e6])
def test_unstable_and_not_robust(jump: float) -> None:
    record = Paradox(samples=40).run(Trial(parameters={"part": "unstable", "scale": jump}, seed=2))
    assert record["badness"] == pytest.approx(4 * jump)
    assert record["variation"] == pytest.approx(
        abs((float(unstable(*sample(40, 0.1, 2), jump).value) - 1) ** 2)
    )
    assert abs(record["gap"]) == pytest.approx(record["epsilon"])


def test_differs_from_the_truth_at_one_point_alone() -> None:
    x, _ = sample(1000, 0.1, 0)
    model = Jumping(7.0)
    assert torch.equal(model(x), truth(x))
    assert model(SPOT).item() == 7


def test_every_second_replacement_flips_the_jump() -> None:
    x, y = sample(100, 0.1, 0)
    others, labels = sample(100, 0.1, 1)
    flips = 0
    for place in range(100):
        new = x.clone(), y.clone()
        new[0][place], new[1][place] = others[place], labels[place]
        flips += unstable(*new, 1.0) != unstable(x, y, 1.0)
    assert 25 < flips < 75
