"""pacGen: the formula against plain arithmetic, the four diagonals against brute force, and what it says of itself."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import reference
import torch
from cases import CASES, LAYERED, convolution, deep_classes, loaders, mlp_classes, recipe
from torch import nn

from mindgap.core.errors import InputError
from mindgap.core.subject import Subject
from mindgap.measures import Pacgen, PacgenNull
from mindgap.ops.curvature import hessian_diagonal as diagonals
from mindgap.ops.curvature.flat_loss import FlatLoss, largest_eigenvalue
from mindgap.ops.curvature.hessian_diagonal import hessian_diagonal, running_squares
from mindgap.ops.curvature.pacgen import pacgen_null, pacgen_parts
from mindgap.ops.models.rescaling import rescaled
from mindgap.training.fit import fit
from mindgap.training.probe import Probe

PIECEWISE_LINEAR = (*LAYERED, "convolution")


def brute_hessian(subject: Subject) -> torch.Tensor:
    """The whole Hessian of the mean loss, by torch's own nested differentiation of the model as it stands."""
    model = copy.deepcopy(subject.model).eval()
    names = [name for name, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    batch = subject.train.take(torch.arange(len(subject.train)))

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = [
            piece.view(shape)
            for piece, shape in zip(flat.split([s.numel() for s in shapes]), shapes, strict=True)
        ]
        weights = dict(zip(names, parts, strict=True))
        given = batch.inputs
        inputs, named = ((), given) if isinstance(given, dict) else (given, {})
        return subject.loss(
            torch.func.functional_call(model, weights, inputs, named), batch.target
        ).mean()

    place = nn.utils.parameters_to_vector(model.parameters()).detach()
    return torch.autograd.functional.hessian(loss, place)


class TestFormula:
    def test_equals_plain_arithmetic(self) -> None:
        weights, bends, rho = [0.5, -2.0, 0.0, 0.01], [3.0, 900.0, -50.0, 0.0], 0.7
        wanted = []
        for w, h in zip(weights, bends, strict=True):
            kappa = 0.1 * abs(w) + 0.1
            root = math.sqrt(max(0.0, h + rho * math.sqrt(4) * kappa))
            wanted.append(math.log((abs(w) + kappa) * max(root, 1 / kappa)))
        found = pacgen_parts(torch.tensor(weights).double(), torch.tensor(bends).double(), rho)
        assert found.terms.tolist() == pytest.approx(wanted, rel=1e-7)
        assert found.clipped.tolist() == [False, False, True, False]
        assert found.capped.tolist() == [True, False, True, True]

    def test_null_is_the_formula_without_hessian(self) -> None:
        weights = torch.linspace(-3, 3, 13, dtype=torch.float64)
        assert torch.allclose(
            pacgen_null(weights), pacgen_parts(weights, torch.zeros(13), 0.0).terms
        )

    def test_leading_dimensions_are_broadcast(self) -> None:
        weights, bends = torch.rand(4, 3, 5).double(), torch.rand(4, 3, 5).double()
        rho = torch.rand(4, 3).double()
        found = pacgen_parts(weights, bends, rho).terms
        assert torch.equal(
            found[2, 1], pacgen_parts(weights[2, 1], bends[2, 1], float(rho[2, 1])).terms
        )

    def test_refuses_a_negative_radius(self) -> None:
        with pytest.raises(InputError, match="gamma must be a number of at least 0, got -1"):
            pacgen_parts(torch.ones(2), torch.ones(2), 0.0, gamma=-1)


@pytest.mark.parametrize("case", CASES)
class TestDiagonals:
    def test_exact_and_products_equal_the_whole_hessian(self, case: str) -> None:
        subject = CASES[case](torch.float64)
        flat, whole = FlatLoss(subject), brute_hessian(subject)
        assert torch.allclose(hessian_diagonal(flat, flat.place, "exact"), whole.diag(), atol=1e-12)
        assert torch.allclose(
            flat.products(flat.place, torch.eye(len(whole)).double()), whole, atol=1e-12
        )

    def test_largest_eigenvalue(self, case: str) -> None:
        subject = CASES[case](torch.float64)
        flat, values = FlatLoss(subject), torch.linalg.eigvalsh(brute_hessian(subject))
        assert largest_eigenvalue(flat, flat.place) == pytest.approx(
            float(values[values.abs().argmax()]), rel=1e-6
        )

    def test_gauss_newton_equals_jacobians(self, case: str) -> None:
        """Σ over samples of Jᵀ S J, with J by one backward pass an output and S by torch's Hessian of the loss."""
        subject = CASES[case](torch.float64)
        flat, rows = FlatLoss(subject), []
        place = flat.place.requires_grad_()
        subject.model.eval()
        for batch in flat.batches(size=1):
            output = flat.outputs(place, batch.inputs)
            slopes = [
                torch.autograd.grad(value, place, retain_graph=True)[0] for value in output[0]
            ]
            bend = torch.autograd.functional.hessian(
                lambda o, truth=batch.target: subject.loss(o[None], truth).sum(), output[0].detach()
            )
            jacobian = torch.stack(slopes)
            rows.append((jacobian.T @ bend @ jacobian).diag())
        assert torch.allclose(
            hessian_diagonal(flat, flat.place), torch.stack(rows).mean(0), atol=1e-12
        )

    def test_gauss_newton_is_exact_for_piecewise_linear_outputs_only(self, case: str) -> None:
        flat = FlatLoss(CASES[case](torch.float64))
        found, wanted = (
            hessian_diagonal(flat, flat.place, kind) for kind in ("gauss-newton", "exact")
        )
        assert torch.allclose(found, wanted, atol=1e-12) == (case in PIECEWISE_LINEAR)

    def test_hutchinson_is_unbiased(self, case: str) -> None:
        flat = FlatLoss(CASES[case](torch.float64))
        wanted = hessian_diagonal(flat, flat.place, "exact")
        many = torch.stack(
            [hessian_diagonal(flat, flat.place, "hutchinson", probes=50, seed=k) for k in range(40)]
        )
        error = many.std(0) / math.sqrt(40)
        assert bool(((many.mean(0) - wanted).abs() <= 5 * error + 1e-12).all())


class TestSquaredGradients:
    def test_running_mean_follows_what_is_computed_exactly(self) -> None:
        flat = FlatLoss(mlp_classes(torch.float64))
        wanted = hessian_diagonal(flat, flat.place, "squared-gradient", batch_size=1)
        orders = [
            running_squares(flat, flat.place, batch_size=1, beta=1 - 1e-9, seed=seed)
            for seed in range(2)
        ]
        assert torch.allclose(
            orders[0], wanted, rtol=1e-5
        )  # every sample once, all with the same weight
        assert torch.allclose(orders[0], orders[1], rtol=1e-5)

    def test_running_mean_is_adams(self) -> None:
        subject = loaders(torch.float64)
        flat, model = FlatLoss(subject), subject.model.eval()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.999))
        order = torch.randperm(flat.samples, generator=torch.Generator().manual_seed(3))
        for batch in subject.train.batches(10, order):
            optimizer.zero_grad()
            subject.loss(model(*batch.inputs), batch.target).mean().backward()
            optimizer.step()
        states = [optimizer.state[p] for p in model.parameters()]
        wanted = torch.cat(
            [s["exp_avg_sq"].flatten() / (1 - 0.999 ** float(s["step"])) for s in states]
        )
        assert torch.allclose(
            running_squares(flat, flat.place, batch_size=10, seed=3), wanted, rtol=1e-9
        )

    def test_mean_over_random_batches(self) -> None:
        flat = FlatLoss(deep_classes(torch.float64))
        wanted = hessian_diagonal(flat, flat.place, "squared-gradient", batch_size=4)
        source, place = torch.Generator().manual_seed(0), flat.place.requires_grad_()
        squares = []
        for _ in range(2000):
            batch = next(flat.batches(torch.randint(0, flat.samples, (4,), generator=source)))
            squares.append(torch.autograd.grad(flat.losses(place, batch).mean(), place)[0].square())
        rows = torch.stack(squares)
        error = rows.std(0) / math.sqrt(len(rows))
        assert bool(((rows.mean(0) - wanted).abs() <= 5 * error + 1e-15).all())


class TestMeasure:
    @pytest.mark.parametrize("kind", diagonals.CURVATURES)
    def test_says_all_that_it_promises(self, kind: str) -> None:
        result = Pacgen(curvature=kind, epsilon=2.0)(convolution(torch.float64))
        assert {"null", "rho_only", "weight_norm", "train_loss", "rho", "clipped", "capped"} == set(
            result.terms
        )
        assert sum(result.details["by_tensor"].values()) == pytest.approx(result.value)
        assert result.standard_error is not None
        assert result.standard_error > 0
        assert result.terms["capped"] < 1
        assert result.terms["null"] == pytest.approx(
            float(PacgenNull(epsilon=2.0)(convolution(torch.float64)))
        )
        assert result.value > result.terms["null"]
        assert result.status == "heuristic"

    @pytest.mark.parametrize("case", CASES)
    def test_equals_brute_force_where_curvature_is_seen(self, case: str) -> None:
        """With the paper's radius every weight of these small models is capped; with a larger one they are not."""
        subject = CASES[case](torch.float64)
        result = Pacgen(epsilon=2.0)(subject)
        assert result.terms["capped"] < 0.9
        assert result.value == pytest.approx(reference.pacgen(subject, epsilon=2.0), rel=1e-9)

    def test_published_form_depends_on_the_order_and_is_of_the_same_size(self) -> None:
        subject = mlp_classes(torch.float64)
        values = [
            float(Pacgen(as_published=True, epsilon=2.0, batch_size=8, seed=seed)(subject))
            for seed in range(2)
        ]
        assert values[0] != values[1]
        assert np.isfinite(values).all()

    def test_the_exact_diagonal_of_a_large_model_is_refused_in_one_sentence(self) -> None:
        subject = Subject(
            nn.Linear(300, 200), "cross_entropy", (torch.randn(4, 300), torch.arange(4))
        )
        result = Pacgen(curvature="exact")(subject)
        assert result.value is None
        assert "at most 50000 entries, got 60200 weights" in result.reason

    def test_frozen_weights_do_not_count(self) -> None:
        subject = mlp_classes(torch.float64)
        first = next(subject.model.parameters()).requires_grad_(False)
        free = Pacgen()(subject)
        assert len(free.details["by_tensor"]) == len(list(subject.model.parameters())) - 1
        assert first.requires_grad is False

    def test_a_model_that_vmap_cannot_run_gives_the_same(self) -> None:
        class Branching(nn.Sequential):
            def forward(self, given: torch.Tensor) -> torch.Tensor:
                return super().forward(given) if float(given.sum()) > -1e9 else given

        subject = mlp_classes(torch.float64)
        other = Subject(Branching(*subject.model), subject.loss, subject.train)
        for kind in ("squared-gradient", "gauss-newton"):
            assert float(Pacgen(curvature=kind)(other)) == pytest.approx(
                float(Pacgen(curvature=kind)(subject))
            )

    def test_as_a_probe_it_reads_along_and_leaves_training_alone(self) -> None:
        probe = Probe(measure=Pacgen(draws=1), every=5)
        watched, plain = fit(recipe(), probes=[probe], seed=1), fit(recipe(), seed=1)
        assert [step for step, _ in probe.readings] == [5, 10, 15, 20]
        assert len({result.value for _, result in probe.readings}) == 4
        for one, two in zip(watched.model.parameters(), plain.model.parameters(), strict=True):
            assert torch.equal(one, two)


class TestRescaling:
    @pytest.mark.parametrize("factor", [1e-3, 1e3])
    def test_same_function_other_spectrum(self, factor: float) -> None:
        subject = deep_classes(torch.float64)
        for place in (0, 1):
            other = rescaled(subject.model, factor, place=place)
            moved = Subject(other, subject.loss, subject.train, subject.test)
            assert torch.allclose(
                moved.outputs("train"), subject.outputs("train"), rtol=1e-9, atol=1e-12
            )
            ratio = [
                largest_eigenvalue(flat, flat.place)
                for flat in (FlatLoss(moved), FlatLoss(subject))
            ]
            assert ratio[0] > 1e4 * ratio[1]  # the square of the factor, up to the other layers

    def test_convolutions_pooling_and_nested_chains(self) -> None:
        model = nn.Sequential(
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU()), nn.Flatten(), nn.Dropout(), nn.Linear(8, 3)
        ).double().eval()  # fmt: skip
        images = torch.randn(5, 1, 6, 6).double()
        assert torch.allclose(model(images), rescaled(model, 100.0)(images), rtol=1e-9)

    @pytest.mark.parametrize("between", [nn.Tanh(), nn.BatchNorm1d(4)])
    def test_refuses_what_does_not_commute(self, between: nn.Module) -> None:
        with pytest.raises(InputError, match="two layers with ReLU or pooling between them"):
            rescaled(nn.Sequential(nn.Linear(2, 4), between, nn.Linear(4, 2)), 2.0)

    def test_refuses_a_chain_that_runs_otherwise(self) -> None:
        class Backwards(nn.Sequential):
            def forward(self, given: torch.Tensor) -> torch.Tensor:
                return self[2](self[1](self[0](given))) + given

        with pytest.raises(InputError, match="chain of modules"):
            rescaled(Backwards(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), 2.0)

    @pytest.mark.parametrize("factor", [0.0, -1.0, math.inf, math.nan])
    def test_refuses_a_bad_factor(self, factor: float) -> None:
        with pytest.raises(InputError, match="factor must be a finite number above 0"):
            rescaled(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), factor)
