"""Expressivity: closed forms of tents, rectangles and approximants, and regions by enumeration."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mindgap.core import Heatmap, Trial
from mindgap.nets import MLP, Rect, Tri
from mindgap.ops.regions.bounds import serra
from mindgap.studies.expressivity.boundaries import BOUNDARIES, grid, samples
from mindgap.studies.expressivity.rect_and_tri import RectAndTri, deep_widths, shallow_widths, shape
from mindgap.studies.expressivity.shallow_against_deep import ARMS, ShallowAgainstDeep
from mindgap.studies.expressivity.trained_regions import TrainedRegions, parameters_of, width_of
from mindgap.studies.expressivity.universal_approximation import (
    BUILDERS,
    TARGETS,
    SumOfTents,
    UniversalApproximation,
    bound,
    largest_error,
    rate,
    spread,
    typical,
)


def slide_rect(x: torch.Tensor, a: float, b: float, h: float, eps: float = 1e-7) -> torch.Tensor:
    """The slides' rectangle, word for word."""
    relu = torch.relu
    return h / eps * (relu(x - a) - relu(x - (a + eps)) - relu(x - b) + relu(x - (b + eps)))


def slide_tri(x: torch.Tensor) -> torch.Tensor:
    """The slides' tent, word for word."""
    return torch.relu(torch.relu(2 * x) - torch.relu(4 * x - 2))


class TestConstructions:
    def test_rectangles_are_the_slides_on_another_interval(self) -> None:
        x = torch.linspace(-0.9, 1.9, 57, dtype=torch.double)  # no side among them
        parts = ((-1, 0, 0.4), (0, 1, 1.3), (1, 2, 0.8))
        wanted = sum(slide_rect(x, *part) for part in parts)
        found = Rect((0.4, 1.3, 0.8), 1e-7)((x[:, None] + 1) / 3).flatten()
        assert torch.allclose(found, wanted, atol=1e-7)

    def test_heights_are_exact_in_double_precision_only(self) -> None:
        record = RectAndTri().run(Trial(parameters={"net": "rect", "depth": 0}))
        assert record["heights"] == pytest.approx([0.4, 1.3, 0.8], abs=1e-8)
        assert record["error"] < 1e-8
        assert record["float32_error"] > 0.1

    @pytest.mark.parametrize("depth", [1, 2, 3, 4])
    def test_tents_are_the_slides_with_two_to_the_depth_pieces(self, depth: int) -> None:
        x = torch.linspace(0, 1, 301, dtype=torch.double)
        wanted = x
        for _ in range(depth):
            wanted = slide_tri(wanted)
        assert torch.allclose(Tri(depth)(x[:, None]).flatten(), wanted, atol=1e-12)
        assert shape(Tri(depth)) == (2**depth, 2**depth)

    def test_crossings_are_those_of_a_dense_grid(self) -> None:
        torch.manual_seed(3)
        model = MLP((1, 30, 30, 1)).double()
        x = torch.linspace(-1, 1, 200_001, dtype=torch.double)[:, None]
        values = model(x).detach().flatten()
        level = float(values.median())
        above = values > level
        wanted = int((above[1:] != above[:-1]).sum())
        assert wanted > 0
        assert shape(model, start=-1.0, level=level)[1] == wanted

    @pytest.mark.parametrize("depth", [1, 2, 4])
    def test_both_trained_networks_have_as_many_weights(self, depth: int) -> None:
        counts = [
            sum(p.numel() for p in MLP(widths).parameters())
            for widths in (deep_widths(depth), shallow_widths(depth))
        ]
        assert 0 <= counts[0] - counts[1] < 3


class TestApproximation:
    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize("kind", ["rectangles", "interpolant"])
    @pytest.mark.parametrize("units", [4, 16, 64])
    def test_constructions_keep_their_bound(self, target: str, kind: str, units: int) -> None:
        own = TARGETS[target]
        error = largest_error(BUILDERS[kind](own, units), own)
        assert error <= bound(kind, own, units) + 1e-8
        if units == 64:  # and the bound is nearly reached
            assert error > 0.9 * bound(kind, own, units)

    def test_targets_have_the_derivatives_they_say(self) -> None:
        x = torch.linspace(0, 1, 2001, dtype=torch.double, requires_grad=True)
        for own in TARGETS.values():
            (first,) = torch.autograd.grad(own.function(x).sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), x)
            assert float(first.detach().abs().max()) == pytest.approx(own.slope, rel=1e-6)
            assert float(second.abs().max()) == pytest.approx(own.curvature, rel=1e-5)

    @pytest.mark.parametrize("depth", [1, 3, 6])
    def test_the_sum_of_tents_interpolates_the_square(self, depth: int) -> None:
        nodes = torch.linspace(0, 1, 2**depth + 1, dtype=torch.double)[:, None]
        assert torch.allclose(SumOfTents(depth)(nodes), nodes**2, atol=1e-12)
        middles = (nodes[1:] + nodes[:-1]) / 2
        missed = SumOfTents(depth)(middles) - middles**2
        assert torch.allclose(missed, torch.full_like(missed, 4.0 ** -(depth + 1)), atol=1e-12)

    def test_a_trained_network_is_measured_where_it_was_trained(self) -> None:
        study = UniversalApproximation(units=(16,), seeds=2, epochs=400)
        trial = Trial(parameters={"target": "square", "approximant": "trained", "units": 16})
        assert (
            max(study.run(trial)["errors"]) < 0.3
        )  # with inputs of another scale, it is 1 or more

    def test_rate_and_geometric_mean(self) -> None:
        assert rate([2, 4, 8], [3.0, 1.5, 0.75]) == pytest.approx(-1)
        assert typical([1e-4, 1e-2]) == pytest.approx(1e-3)
        low, high = spread([1e-4, 1e-3, 1e-2])
        assert low * high == pytest.approx(1e-6)


def patterns_on_a_grid(model: nn.Sequential, size: int = 900) -> int:
    """Count the activation patterns that a dense grid of the square meets."""
    axis = (torch.arange(size, dtype=torch.double) + 0.5) / size * 2 - 1
    hidden = torch.cartesian_prod(axis, axis)
    states = []
    for layer in model:
        if isinstance(layer, nn.ReLU):
            states.append(hidden > 0)
        hidden = layer(hidden)
    bits = torch.cat(states, 1).double()
    codes = bits @ (2.0 ** torch.arange(bits.shape[1], dtype=torch.double))
    return len(codes.unique())


class TestRegions:
    def test_counts_are_those_of_a_dense_grid(self) -> None:
        study = TrainedRegions(parameters_each=40, size=40, epochs=5)
        record = study.run(Trial(parameters={"depth": 2}, seed=1))
        torch.manual_seed(0)
        width = width_of(2, 40)
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = MLP((2, width, width, 2)).double()
        grid_count = patterns_on_a_grid(model)
        assert 1 < grid_count <= record["before"] <= serra([width, width], 2)
        assert record["before"] - grid_count <= 1  # a grid may miss a sliver

    @pytest.mark.parametrize(("depth", "width"), [(1, 7), (2, 5), (4, 3)])
    def test_parameters_are_counted(self, depth: int, width: int) -> None:
        model = MLP((2, *[width] * depth, 2))
        assert parameters_of(depth, width) == sum(p.numel() for p in model.parameters())
        assert width_of(depth, parameters_of(depth, width)) == width
        assert width_of(depth, parameters_of(depth, width + 1) - 1) == width

    def test_the_note_counts_networks_within_the_bound(self) -> None:
        study = TrainedRegions(depths=(1, 2), parameters_each=60, seeds=2)
        record = {"before": 4, "train_error": 0.0, "test_error": 0.0}
        rows = [
            (trial, {**record, "after": 10**9 if k else 5})
            for k, trial in enumerate(study.trials())
        ]
        assert "1 of 4 networks are within Serra's bound." in study.summarize(rows).notes


class TestShallowAgainstDeep:
    def test_arms_are_the_slides_and_a_control_of_equal_parameters(self) -> None:
        counts = {
            arm: sum(p.numel() for p in MLP((2, *hidden, 2)).parameters())
            for arm, hidden in ARMS.items()
        }
        assert counts == {"20": 102, "10 + 10": 162, "32": 162}

    def test_classes_follow_the_boundary(self) -> None:
        inputs, labels = samples("circle", 20_000, seed=1)
        assert torch.equal(labels == 1, inputs.norm(dim=1) < 0.75)
        share = float(labels.double().mean())
        assert share == pytest.approx(math.pi * 0.75**2 / 4, abs=0.015)
        assert float(samples("waves", 20_000, seed=1)[1].double().mean()) == pytest.approx(
            0.5, abs=0.015
        )

    def test_the_figure_marks_the_errors_of_the_shallow_network(self) -> None:
        study = ShallowAgainstDeep(boundary="circle", seeds=2).tiny()
        records = [(trial, study.run(trial)) for trial in study.trials()[:2]]
        wrong = records[0][1]["figure"]["errors"]
        assert len(wrong) == round(60 * records[0][1]["20"]["test"])
        chart = study.summarize(records).charts[0]
        assert isinstance(chart, Heatmap)
        marked = sum(len(row.x) for row in chart.points if "error" in row.name)
        assert marked == len(wrong)
        assert {row.symbol for row in chart.points if "error" in row.name} == {"diamond"}
        assert len(chart.contours) == 3

    def test_differences_are_deep_minus_shallow(self) -> None:
        study = ShallowAgainstDeep(boundary="circle", seeds=3)
        figure = {"margins": {}, "errors": [], "others": []}
        rows = []
        for k, trial in enumerate(study.trials()):
            errors = {"20": 0.3, "10 + 10": 0.1 + 0.001 * k, "32": 0.05}
            record = {arm: {"train": 0.0, "test": error} for arm, error in errors.items()}
            rows.append((trial, {**record, "figure": figure}))
        table = study.summarize(rows)
        assert table.rows[0][7] == pytest.approx(-0.199)
        assert any("against 20 units: deep is better" in note for note in table.notes)
        assert any("against 32 units: deep is worse" in note for note in table.notes)

    def test_grid_is_row_by_row(self) -> None:
        axis, places = grid(5)
        z = BOUNDARIES["waves"](places[:, 0], places[:, 1]).view(5, 5)
        assert float(z[4, 2]) == pytest.approx(1.0)  # y = 1 at x = 0
        assert float(z[0, 2]) == pytest.approx(-1.0)
        assert len(axis) == 5
