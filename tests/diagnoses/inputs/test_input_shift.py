"""Input shift: foreign shares, what they cost, where they lie."""

from __future__ import annotations

import pytest
import torch
from cases import CASES
from torch import Tensor, nn

from mindgap.core import Finding, Recipe, Subject
from mindgap.diagnoses import InputShift
from mindgap.ops.evidence.changed_inputs import turned
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit
from mindgap.training.fitted import Fitted


def quick(kind: str, task: str = "classification", seed: int = 0) -> Recipe:
    """A recipe that is trained just enough."""
    return healthy_recipe(kind, task, seed).replace(epochs=3 if kind == "sequence" else 8)


KINDS = (("image", "classification"), ("table", "regression"), ("sequence", "classification"))


def table(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0).long()


def signs() -> nn.Module:
    """A perfect model of the sign of the first input."""
    net = nn.Linear(4, 2)
    with torch.no_grad():
        net.weight.zero_()
        net.weight[:, 0] = torch.tensor([-1.0, 1.0])
        net.bias.zero_()
    return net


def look(x: Tensor, y: Tensor) -> Finding | None:
    return InputShift()(Subject(signs(), "cross_entropy", table(1000), (x, y)))


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_healthy_subjects_are_not_accused(kind: str, task: str) -> None:
    for seed in range(2):
        subject = fit(quick(kind, task, seed), seed=seed, evaluate_every=0).subject()
        assert InputShift()(subject) is None


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_half_and_a_tenth_are_found(kind: str, task: str) -> None:
    for strength in (1.0, 0.2):
        finding = InputShift()(InputShift.plant(quick(kind, task), 0, strength))
        assert finding.severity == "wrong"
        assert finding.evidence[0].value < 0.55 * strength
        assert finding.p_value < 3e-4
        assert len(finding.charts) == 3


def test_a_shift_without_harm_is_a_note() -> None:
    x, y = table(600, seed=1)
    x[:200, 3] += 3
    finding = look(x, y)
    assert finding.severity == "note"
    assert "input 3 (mean +1.0" in finding.sentences[1]
    assert "hardly matters" in finding.sentences[0]
    assert sum(place < 200 for place in finding.suspects.index) > 150


def test_a_shift_with_harm_is_wrong() -> None:
    x, y = table(600, seed=1)
    x[:100, 0] = -4 * x[:100, 0].sign()
    x[:100, 3] += 4
    finding = look(x, y)
    assert finding.severity == "wrong"
    assert finding.evidence[2].value > finding.evidence[3].value
    assert finding.suspects.columns["target"][0] in ("0", "1")


def test_the_bound_is_below_the_truth() -> None:
    shares = []
    for seed in range(5):
        x, y = table(600, seed=seed + 1)
        x[:120] += 5
        shares.append(look(x, y).evidence[0].value)
    assert 0.1 < min(shares) <= max(shares) < 0.2


def test_inverted_images_are_named() -> None:
    finding = InputShift()(InputShift.plant(quick("image")))
    assert any("inverted" in sentence for sentence in finding.sentences)
    assert finding.charts[0].kind == "heatmap"
    assert finding.charts[2].samples[0].image


def test_wrong_test_labels_are_no_shift_of_the_inputs() -> None:
    """Equal shares of wrong labels are unequal shares of the true ones."""
    x, y = table(600, seed=1)
    x[:, 0] += 1.0
    y = (x[:, 0] > 0).long()
    own = table(2000, seed=2)[0]
    own[:, 0] += 1.0
    wrong = torch.where(torch.arange(600) % 2 == 0, torch.zeros_like(y), y)
    data = (own, (own[:, 0] > 0).long()), (x, wrong)
    assert InputShift()(Subject(signs(), "cross_entropy", *data)) is None


@pytest.mark.parametrize("case", CASES)
def test_small_subjects_survive(case: str) -> None:
    InputShift()(CASES[case](torch.float32))


def test_a_small_shift_of_all_samples_is_told_by_what_putting_it_back_gains() -> None:
    x, y = table(3000, seed=5)
    finding = look(x + torch.tensor([0.4, 0, 0, 0]), y)
    assert finding.severity == "wrong"
    assert finding.sentences[0].startswith("The error falls by 1")
    unused = look(x + torch.tensor([0, 0.4, 0, 0]), y)
    assert unused.severity == "note"
    assert unused.sentences[0].endswith("the shift hardly matters to this model.")


@pytest.fixture(scope="module")
def plain() -> Fitted:
    return fit(quick("image"), evaluate_every=0)


UNDONE = {
    "mirrored left to right": lambda x: x.flip(3),
    "transposed": lambda x: x.transpose(2, 3),
    "turned to the left": lambda x: x.rot90(1, (2, 3)),
    "turned to the right": lambda x: x.rot90(-1, (2, 3)),
}


@pytest.mark.parametrize("words", UNDONE)
def test_turned_images_are_told(words: str, plain: Fitted) -> None:
    inputs, targets = plain.recipe.test
    test = (UNDONE[words](inputs), targets)
    finding = InputShift()(Subject(plain.model, "cross_entropy", plain.recipe.train, test))
    assert f"The test images are {words}" in finding.sentences[0]
    scope = {"test_inputs": test[0]}
    exec(finding.advice[0].code, scope)
    assert torch.equal(scope["test_inputs"], inputs)


def test_noise_is_no_turn(plain: Fitted) -> None:
    inputs, targets = plain.recipe.test
    noise = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0))
    subject = Subject(
        plain.model, "cross_entropy", plain.recipe.train, (inputs + 0.6 * noise, targets)
    )
    assert turned(subject) is None
    assert turned(plain.subject()) is None


@pytest.mark.parametrize(("share", "told"), [(0.0, True), (0.2, True), (0.4, False)])
def test_colors_in_reverse_order(share: float, told: bool) -> None:
    """With 40 % wrong labels, undoing it surely gains 20 points, which is less than half of 60."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(1300) % 2
    x = torch.rand(1300, 3, 4, 4, generator=random)
    x[:, 0] += y.view(-1, 1, 1)
    x[:, 2] += 1 - y.view(-1, 1, 1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    with torch.no_grad():
        net[1].weight.zero_()[1, :16] = 1
        net[1].weight[0, 32:] = 1
    wrong = torch.arange(1000) < 1000 * share
    train, test = (x[:300], y[:300]), (x[300:].flip(1), torch.where(wrong, 1 - y[300:], y[300:]))
    found = turned(Subject(net, "cross_entropy", train, test))
    assert (found is not None) == told
    if found is not None:
        assert found.words == "of colors in reverse order"
        assert (found.before, found.after) == pytest.approx((1 - share, share), abs=0.02)
