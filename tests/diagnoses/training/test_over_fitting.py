"""Over-fitting: p-values by hand, gaps that the data allow, plants, regressions."""

from __future__ import annotations

import pytest
import torch
from healthy import healthy
from torch import nn

from mindgap.core import Subject
from mindgap.diagnoses.training.over_fitting import OverFitting, _p_value
from mindgap.studies.diagnoses.healthy import healthy_recipe

KINDS = [
    ("image", "classification"),
    ("table", "classification"),
    ("table", "regression"),
    ("sequence", "classification"),
    ("sequence", "regression"),
]


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_plants_are_found_and_healthy_nets_are_not(kind: str, task: str) -> None:
    recipe = healthy_recipe(kind, task, seed=2)  # type: ignore[arg-type]
    spared = OverFitting()(healthy(kind, task))
    assert spared is None or spared.severity == "note"
    finding = OverFitting()(OverFitting.plant(recipe, seed=2))
    assert finding is not None
    assert finding.severity == "wrong"
    assert "over-fits" in finding.sentence
    assert finding.evidence[0].interval.low > 0


def test_p_value_by_hand() -> None:
    from scipy.stats import binom

    logits = torch.tensor([[1.0, 0.0]] * 100)
    train, test = torch.zeros(100, dtype=torch.long), torch.zeros(100, dtype=torch.long)
    train[:10] = 1
    test[:30] = 1
    subject = Subject(nn.Identity(), "cross_entropy", (logits, train), (logits, test))
    assert _p_value(subject) == pytest.approx(binom.sf(29, 100, 0.105))


def test_a_memorized_sample_that_the_data_do_not_forbid_is_a_note() -> None:
    # Labels that are wrong in 4 % of the test samples: nobody can do better.
    x = torch.linspace(-1, 1, 1000)[:, None]
    net = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-9.0], [9.0]]))
    labels = (x[:, 0] > 0).long()
    other = torch.where(torch.arange(1000) % 25 == 0, 1 - labels, labels)
    finding = OverFitting()(Subject(net, "cross_entropy", (x, labels), (x + 1e-4, other)))
    assert finding is not None
    assert finding.severity == "note"
