"""The measure pacGen: its terms, brute force, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from cases import CASES, convolution, mlp_classes, recipe
from torch import nn

from mindgap.core.subject import Subject
from mindgap.measures import Pacgen, PacgenNull
from mindgap.ops.curvature import hessian_diagonal as diagonals
from mindgap.training.fit import fit
from mindgap.training.probe import Probe


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
