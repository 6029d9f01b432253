"""Self-influence against retraining."""

import numpy as np
import torch

from mindgap.core import Recipe, Subject, spearman
from mindgap.measures import LeaveOneOutStability, SelfInfluence
from mindgap.nets import MLP
from mindgap.training.fit import fit


def fitted(samples: int = 100) -> Subject:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2 * samples, 6, generator=random)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * torch.randn(2 * samples, generator=random) > 0).long()
    recipe = Recipe(
        model=lambda: MLP((6, 12, 2)),
        train=(x[:samples], y[:samples]),
        test=(x[samples:], y[samples:]),
        optimizer="sgd",
        learning_rate=0.2,
        momentum=0.9,
        weight_decay=0.01,
        batch_size=samples,
        epochs=100,
    )
    return fit(recipe, evaluate_every=0).subject()


def test_agrees_with_retraining_in_order_and_after_calibration_in_scale() -> None:
    subject = fitted()
    retrained = LeaveOneOutStability()(subject)
    result = SelfInfluence(calibrate=20)(subject)
    assert abs(np.log(result.value / retrained.value)) < 0.5
    assert abs(np.log(result.terms["predicted"] / result.terms["retrained"])) < 0.1
    assert result.terms["rank_correlation"] > 0.8
    named = [row["index"] for row in result.details["samples"]]
    again = [row["index"] for row in retrained.details["samples"]]
    assert len(set(named) & set(again)) >= 5


def test_correction_raises_the_correlation_with_retraining() -> None:
    from mindgap.ops.curvature.flat_loss import FlatLoss
    from mindgap.ops.curvature.influence import (
        jacobian_rows,
        leverages,
        output_derivatives,
        removal_rises,
        removal_shifts,
    )
    from mindgap.training.leave_one_out import leave_one_out

    subject = fitted()
    own = leave_one_out(subject, torch.arange(100)).own.numpy()
    gradient, curvature = output_derivatives(FlatLoss(subject))
    (leverage,) = leverages(*jacobian_rows(subject), curvature, [0.03])
    found = {}
    for corrected in (True, False):
        shifts = removal_shifts(leverage, curvature, gradient, corrected=corrected)
        rises = removal_rises(subject, shifts).numpy()
        found[corrected] = np.corrcoef(own, rises)[0, 1]
        assert spearman(own, rises) > 0.85
    assert found[True] > max(found[False], 0.9)


def test_scale_falls_with_the_damping() -> None:
    subject = fitted(40)
    values = [float(SelfInfluence(damping=damping)(subject)) for damping in (0.01, 0.1, 1.0)]
    assert values == sorted(values, reverse=True)
    assert all(value > 0 for value in values)


def test_head_alone_and_what_is_missing() -> None:
    subject = fitted(40)
    head, every = (SelfInfluence(weights=name)(subject) for name in ("head", "all"))
    assert 0 < head.value < every.value
    bare = Subject(subject.model, subject.loss, subject.train)
    assert "needs the recipe" in SelfInfluence(calibrate=5)(bare).reason
    assert SelfInfluence()(bare).value == every.value
