"""Label shift: exact p-values, what the mixture costs, the corrected logits."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from scipy import stats
from torch import Tensor, nn

from mindgap.core import Finding, Recipe, Subject
from mindgap.diagnoses import LabelShift
from mindgap.ops.evidence.shares import Shares
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def quick(kind: str, task: str = "classification", seed: int = 0) -> Recipe:
    """A recipe that is trained just enough."""
    return healthy_recipe(kind, task, seed).replace(epochs=3 if kind == "sequence" else 8)


def look(own: Tensor, other: Tensor, net: nn.Module | None = None) -> Finding | None:
    count = int(max(own.max(), other.max())) + 1
    model = net or nn.Linear(1, count)
    data = (torch.ones(len(own), 1), own), (torch.ones(len(other), 1), other)
    return LabelShift()(Subject(model, "cross_entropy", *data))


def test_p_values_are_fishers() -> None:
    counts = Shares(torch.tensor([30.0, 70]), torch.tensor([5.0, 45]), 100, 50)
    for k, p in enumerate(counts.p_values()):
        own, other = int(counts.train[k]), int(counts.test[k])
        tables = [[other, 50 - other], [own, 100 - own]]
        sides = [stats.fisher_exact(tables, side).pvalue for side in ("greater", "less")]
        assert p == pytest.approx(min(1.0, 2 * min(sides)))


def test_all_classes_together() -> None:
    counts = Shares(torch.tensor([60.0, 70, 90, 3]), torch.tensor([55.0, 45, 20, 1]), 223, 121)
    merged = [[60, 70, 90, 3], [55, 45, 20, 1]]
    assert counts.homogeneity() == pytest.approx(stats.chi2_contingency(merged).pvalue)
    rare = Shares(torch.tensor([60.0, 70, 2, 3]), torch.tensor([55.0, 45, 0, 1]), 135, 101)
    merged = [[60, 70, 5], [55, 45, 1]]
    assert rare.homogeneity() == pytest.approx(stats.chi2_contingency(merged).pvalue)


def test_equal_mixtures_are_not_accused() -> None:
    for seed in range(20):
        random = torch.Generator().manual_seed(seed)
        assert look(*(torch.randint(5, (n,), generator=random) for n in (500, 200))) is None


@pytest.mark.parametrize("kind", ["image", "table", "sequence"])
def test_plants_are_found(kind: str) -> None:
    for task in ("classification", "regression"):
        finding = LabelShift()(LabelShift.plant(quick(kind, task), seed=1))
        assert finding.severity == "wrong"
        assert finding.p_value < 3e-4


def test_healthy_regression_is_not_accused() -> None:
    recipe = quick("table", "regression")
    assert LabelShift()(fit(recipe.replace(epochs=1), evaluate_every=0).subject()) is None


def test_what_the_mixture_costs() -> None:
    net = nn.Linear(1, 2)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.copy_(torch.tensor([1.0, 0.0]))
    own, other = torch.arange(400) % 2, torch.tensor([1] * 180 + [0] * 20)
    finding = look(own, other, net)
    assert finding.evidence[2].value == pytest.approx(0.9 - 0.5)
    assert "40.0 points lower" in finding.sentences[0]
    scope = {"torch": torch, "logits": net(torch.ones(1, 1))}
    exec(finding.advice[0].code, scope)
    assert int(scope["logits"].argmax()) == 1


def test_a_small_shift_that_costs_nothing_is_a_note() -> None:
    own = torch.tensor([0] * 2000 + [1] * 2000)
    other = torch.tensor([0] * 850 + [1] * 1150)
    net = nn.Linear(1, 2)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.zero_()
    data = (own[:, None].float(), own), (other[:, None].float(), other)
    net.weight.data.copy_(torch.tensor([[-1.0], [1.0]]))
    net.bias.data.copy_(torch.tensor([0.5, -0.5]))
    finding = LabelShift()(Subject(net, "cross_entropy", *data))
    assert finding.severity == "note"
    assert "about the same" in finding.sentences[0]


def test_several_labels() -> None:
    random = torch.Generator().manual_seed(0)
    own = (torch.rand(600, 3, generator=random) < 0.3).float()
    other = (torch.rand(300, 3, generator=random) < torch.tensor([0.3, 0.7, 0.3])).float()
    data = (torch.ones(600, 1), own), (torch.ones(300, 1), other)
    finding = LabelShift()(Subject(nn.Linear(1, 3), "bce", *data))
    assert finding.sentence.startswith("Label 1 makes up")
    assert LabelShift()(Subject(nn.Linear(1, 3), "bce", data[0], (data[0][0], own))) is None


@pytest.mark.parametrize("case", CASES)
def test_small_subjects_survive(case: str) -> None:
    LabelShift()(CASES[case](torch.float32))
