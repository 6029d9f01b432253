"""Good and bad minima: the poisoned loss, volumes in closed form, and what the studies say."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mindgap.core import Subject, Trial
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.studies.minima.basin import log10_mean_power, log10_volume, moving, radii
from mindgap.studies.minima.minima_over_width import ARMS, MinimaOverWidth
from mindgap.studies.minima.poison import poisoned, scene, settled, wrong_labels
from mindgap.studies.minima.poisoned_minima import PROBLEMS, PoisonedMinima


def quadratic(scales: list[float]) -> FlatLoss:
    """The loss Σ aᵢ wᵢ², at its minimum."""
    size = len(scales)
    inputs = torch.diag(torch.tensor(scales, dtype=torch.double).sqrt()) * size**0.5
    model = nn.Linear(size, 1, bias=False).double()
    model.weight.data.zero_()
    return FlatLoss(Subject(model, "mse", (inputs, torch.zeros(size, 1, dtype=torch.double))))


class TestPoison:
    @pytest.mark.parametrize("classes", [2, 10])
    def test_every_label_is_wrong_and_all_others_are_as_likely(self, classes: int) -> None:
        labels = torch.arange(20_000) % classes
        found = wrong_labels(labels, classes, seed=0)
        assert not (found == labels).any()
        shares = torch.bincount((found - labels) % classes, minlength=classes)[1:] / len(labels)
        assert torch.allclose(shares, torch.full_like(shares, 1 / (classes - 1)), atol=0.01)

    @pytest.mark.parametrize("data", PROBLEMS)
    def test_training_poison_and_test_samples_are_disjoint(self, data: str) -> None:
        drawn = scene(data, 50, 100, seed=3)
        parts = (drawn.train, drawn.poison, drawn.test)
        rows = [{tuple(row.flatten().tolist()) for row in part[0]} for part in parts]
        assert [len(drawn.train[0]), len(drawn.poison[0])] == [50, 100]
        assert not rows[0] & rows[1]
        assert not (rows[0] | rows[1]) & rows[2]

    def test_labels_stay_with_their_inputs(self) -> None:
        drawn = scene("moons", 200, 200, seed=0)
        model = poisoned(drawn, 16, extra=0, beta=1, steps=300, batch_size=200, seed=0).model
        assert float((model(drawn.train[0]).argmax(1) == drawn.train[1]).double().mean()) > 0.95
        assert float((model(drawn.poison[0]).argmax(1) == drawn.poison[1]).double().mean()) < 0.05

    def test_one_step_follows_the_gradient_of_the_poisoned_loss(self) -> None:
        drawn, beta = scene("moons", 20, 30, seed=1), 0.3
        found = poisoned(drawn, 8, extra=30, beta=beta, steps=1, batch_size=50, seed=4)
        model = found.recipe.build(4)
        losses = [
            F.cross_entropy(model(part[0]), part[1], reduction="sum")
            for part in (drawn.train, drawn.poison)
        ]
        loss = (losses[0] + beta * losses[1]) / 50
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        # The first step of Adam is the rate times the sign of the gradient.
        moves = [a - b for a, b in zip(found.model.parameters(), model.parameters(), strict=True)]
        for move, gradient in zip(moves, gradients, strict=True):
            clear = gradient.abs() > 1e-5
            assert torch.allclose(move[clear], -0.01 * gradient[clear].sign(), atol=1e-4)

    def test_extra_samples_are_no_training_data_afterwards(self) -> None:
        drawn = scene("moons", 20, 30, seed=1)
        subject = poisoned(drawn, 8, extra=30, beta=1, steps=2, batch_size=50, seed=0).subject()
        assert len(subject.split("train")) == 20
        assert torch.equal(subject.split("train").targets, drawn.train[1])

    def test_settling_lowers_the_training_loss_and_starts_where_it_was(self) -> None:
        drawn = scene("moons", 20, 20, seed=1)
        found = poisoned(drawn, 32, extra=20, beta=0.3, steps=60, batch_size=40, seed=0)
        after = settled(found, steps=100, batch_size=40)
        assert after.subject().mean_loss() < found.subject().mean_loss()
        moved = FlatLoss(after.subject()).point - FlatLoss(found.subject()).point
        assert 0 < float(moved.norm()) < float(FlatLoss(found.subject()).point.norm())

    def test_a_bad_minimum_exists(self) -> None:
        drawn = scene("digits", 60, 180, seed=0)
        settings = {"beta": 1.0, "steps": 400, "batch_size": 240, "seed": 0}
        bad = poisoned(drawn, 48, extra=180, **settings).subject()
        good = poisoned(drawn, 48, extra=0, **settings).subject()
        assert bad.mean_error("train") == good.mean_error("train") == 0
        assert 1 - bad.mean_error("test") < 0.6 < 1 - good.mean_error("test")


class TestBasin:
    def test_radii_of_a_quadratic(self) -> None:
        found = radii(quadratic([4.0, 4.0]), [0.01, 1.0], directions=5, normalize="none", seed=0)
        assert found[0] == pytest.approx([0.05] * 5, rel=2e-3)
        assert found[1] == pytest.approx([0.5] * 5, rel=2e-3)

    def test_the_mean_power_is_the_volume_of_an_ellipse(self) -> None:
        (found,) = radii(quadratic([1.0, 9.0]), [1.0], directions=600, normalize="none", seed=0)
        volume = log10_mean_power(found, 2)  # axes 1 and 1/3, over the unit disc
        assert volume == pytest.approx(math.log10(1 / 3), abs=0.03)
        assert log10_volume(found, 2) < volume

    def test_a_minimum_above_the_level_has_no_basin(self) -> None:
        flat = quadratic([1.0])
        flat.model.weight.data.fill_(2.0)
        (found,) = radii(flat, [1.0], directions=2, normalize="none", seed=0)
        assert found == [0.0, 0.0]
        assert log10_volume(found, 1) == -math.inf

    def test_rescaling_units_changes_the_euclidean_volume_only(self) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 2))
        data = (torch.randn(30, 2), torch.randint(2, (30,)))
        volumes = {"filter": [], "none": []}
        for factor in (1.0, 10.0):
            scaled = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 2))
            scaled.load_state_dict(model.state_dict())
            scaled[0].weight.data *= factor
            scaled[0].bias.data *= factor
            scaled[2].weight.data /= factor
            flat = FlatLoss(Subject(scaled, "cross_entropy", data))
            for normalize, own in volumes.items():
                (found,) = radii(flat, [2.0], directions=8, normalize=normalize, seed=0)
                own.append(log10_volume(found, moving(flat, normalize)))
        assert volumes["filter"][0] == pytest.approx(volumes["filter"][1], abs=0.05)
        assert abs(volumes["none"][0] - volumes["none"][1]) > 0.5

    def test_biases_do_not_move_with_filters(self) -> None:
        flat = FlatLoss(
            Subject(nn.Linear(3, 2), "cross_entropy", (torch.eye(3), torch.tensor([0, 1, 1])))
        )
        assert (moving(flat, "filter"), moving(flat, "none")) == (6, 8)


class TestPoisonedMinima:
    study = PoisonedMinima(
        data="moons", seeds=3, levels=(0.5,), steps=2, settle=1, directions=2, path_steps=1
    )

    def test_paths_end_at_both_minima(self) -> None:
        record = self.study.run(self.study.trials()[0])
        for way in record["paths"].values():
            for part in ("loss", "train", "test"):
                ends = (record["found"][0][part], record["found"][-1][part])
                assert (way[part][0], way[part][-1]) == pytest.approx(ends, abs=1e-5)

    def test_notes_compare_good_with_bad(self) -> None:
        def minimum(test: float, volume: float) -> dict[str, object]:
            own = {"volume": volume, "mean_power": volume, "radius": 1.0}
            keys = {"filter 0.5": own, "euclidean 0.5": {**own, "volume": -volume}}
            return {"train": 1.0, "test": test, "loss": 0.0, "norm": 1.0, **keys}

        way = {part: [1.0] * 21 for part in ("loss", "train", "test")}
        rows = []
        for k, trial in enumerate(self.study.trials()):
            minima = [minimum(0.9 - 0.2 * j, -100.0 * j - 0.1 * k * j) for j in range(4)]
            record = {"found": minima, "settled": minima, "paths": {"line": way, "bent": way}}
            rows.append((trial, record))
        notes = self.study.summarize(rows).notes
        assert any(
            "3 of 3 fit all training samples with a test accuracy below 60 %" in n for n in notes
        )
        assert any(
            "settled, filter 0.5: the good basin is larger (log₁₀ ratio 300" in n for n in notes
        )
        assert any("euclidean 0.5: the good basin is smaller" in n for n in notes)


class TestWidth:
    def test_published_numbers_are_next_to_the_first_arm(self) -> None:
        study = MinimaOverWidth().tiny()
        table = study.summarize([(trial, study.run(trial)) for trial in study.trials()])
        rows = {row[:3]: row for row in table.rows}
        first = ARMS["all, 0.1"]
        assert rows[first, "training", 4][3] == 0.767
        assert rows[first, "test", 8][3] == 0.882
        assert rows["poisoned", "test", 8][3] is None
        assert len(MinimaOverWidth.expected) == 16

    def test_all_plain_arms_take_the_same_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from mindgap.studies.minima import minima_over_width as module

        steps = []
        real = module.ensemble

        def watched(recipe, *args, **named):
            steps.append(recipe.epochs * math.ceil(60 / recipe.batch_size))
            return real(recipe, *args, **named)

        monkeypatch.setattr(module, "ensemble", watched)
        MinimaOverWidth(steps=12).run(Trial(parameters={"width": 4}, seed=1))
        assert steps == [12, 12]
