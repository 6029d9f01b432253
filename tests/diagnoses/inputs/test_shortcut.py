"""Shortcuts: inputs that lose their relation to the target, and the experiment that proves it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import CASES
from torch import Tensor, nn
from torch.nn import functional as F

from mindgap.core import Recipe, Subject
from mindgap.diagnoses import InputShift, LabelShift, Shortcut
from mindgap.diagnoses.diagnose import diagnose
from mindgap.nets import MLP
from mindgap.ops.evidence.association import explained
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


def quick(kind: str, task: str = "classification", seed: int = 0) -> Recipe:
    """A recipe that is trained just enough."""
    return healthy_recipe(kind, task, seed).replace(epochs=3 if kind == "sequence" else 8)


KINDS = (
    ("image", "classification"),
    ("table", "classification"),
    ("table", "regression"),
    ("sequence", "classification"),
)


def test_eta_squared_of_equally_frequent_classes() -> None:
    random = torch.Generator().manual_seed(0)
    y = torch.arange(210) % 3
    x = torch.randn(210, 2, generator=random) + y[:, None] * torch.tensor([1.0, 0.0])
    found = explained(x, F.one_hot(y, 3).float())
    for k in range(2):
        parts = [x[y == c, k].double() for c in range(3)]
        means = torch.stack([part.mean() for part in parts])
        inner = torch.stack([part.var(correction=0) for part in parts])
        total = means.var(correction=0) + inner.mean()
        eta = (means.var(correction=0) - inner.mean() / 69 * 2 / 3) / total
        assert float(found[k]) == pytest.approx(float(eta), abs=1e-5)
    many = torch.cat([x[y == 0]] * 5 + [x[y > 0]])
    labels = torch.cat([y[y == 0]] * 5 + [y[y > 0]])
    again = explained(many, F.one_hot(labels, 3).float())
    torch.testing.assert_close(again, found, atol=0.01, rtol=0)


def test_squared_correlation() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(100, 2, generator=random)
    y = x[:, :1] + 0.5 * torch.randn(100, 1, generator=random)
    truth = np.corrcoef(x[:, 0], y[:, 0])[0, 1] ** 2
    assert float(explained(x, y)[0]) == pytest.approx(truth - 0.01, abs=1e-5)


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_plants_are_found(kind: str, task: str) -> None:
    for strength in (1.0, 0.6):
        finding = Shortcut()(Shortcut.plant(quick(kind, task), 0, strength))
        assert finding.severity == "wrong"
        assert finding.p_value < 3e-4
        assert finding.evidence[3].value > finding.evidence[2].value


@pytest.mark.parametrize(("kind", "task"), KINDS)
def test_healthy_subjects_are_not_accused(kind: str, task: str) -> None:
    assert Shortcut()(fit(quick(kind, task, 2), evaluate_every=0).subject()) is None


def test_shuffled_test_labels_are_no_shortcut() -> None:
    for kind in ("image", "table"):
        recipe = quick(kind)
        inputs, targets = recipe.test
        order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))
        subject = fit(recipe.replace(test=(inputs, targets[order])), evaluate_every=0).subject()
        assert Shortcut()(subject) is None


def test_other_shares_of_the_classes_are_no_shortcut() -> None:
    for kind in ("image", "table"):
        assert Shortcut()(LabelShift.plant(quick(kind))) is None


def test_a_shift_of_the_inputs_is_no_shortcut() -> None:
    for strength in (0.2, 1.0):
        assert Shortcut()(InputShift.plant(quick("image", seed=2), 2, strength)) is None


def test_a_column_that_the_model_ignores_is_no_shortcut() -> None:
    recipe = quick("table")
    subject = fit(recipe, evaluate_every=0).subject()
    (x, y), (t, u) = recipe.train, recipe.test
    wide = nn.Sequential(_First(10), subject.model)
    mark = y[:, None].float()
    noise = torch.randn(len(t), 1, generator=torch.Generator().manual_seed(0))
    data = (torch.cat([x, mark], 1), y), (torch.cat([t, noise], 1), u)
    assert Shortcut()(Subject(wide, "cross_entropy", *data)) is None


class _First(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, : self.count]


def test_a_tint_of_the_whole_image() -> None:
    """No single pixel gives much away, but their mean does."""
    random = torch.Generator().manual_seed(0)
    y, u = (torch.randint(2, (count,), generator=random) for count in (800, 400))
    x, t = (torch.randn(len(part), 1, 8, 8, generator=random) for part in (y, u))
    x += 0.3 * (2 * y - 1).view(-1, 1, 1, 1)
    t += 0.3 * (2 * u[torch.randperm(400, generator=random)] - 1).view(-1, 1, 1, 1)
    recipe = Recipe(
        model=lambda: nn.Sequential(nn.Flatten(), MLP(widths=(64, 16, 2))),
        train=(x, y),
        test=(t, u),
        epochs=8,
        learning_rate=3e-3,
    )
    finding = Shortcut()(fit(recipe, evaluate_every=0).subject())
    assert finding.severity == "wrong"
    assert finding.sentence.startswith("The model relies on the mean of channel 0")
    scope = {"torch": torch, "train_inputs": x}
    exec(finding.advice[0].code, scope)
    assert float(scope["train_inputs"].flatten(1).mean(1).abs().max()) < 1e-5


def test_noise_on_test_inputs_is_a_shift_and_no_shortcut() -> None:
    """Noise lowers the share of an input's variance that the target explains, not what it says."""
    recipe = quick("image")
    inputs, targets = recipe.test
    noise = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0))
    noisy = inputs + 1.5 * float(inputs.std()) * noise
    subject = fit(recipe.replace(test=(noisy, targets)), evaluate_every=0).subject()
    y = F.one_hot(recipe.train[1], 10).float()
    u = F.one_hot(targets, 10).float()
    plain = explained(noisy.flatten(1), u)
    kept = explained(noisy.flatten(1), u, like=(recipe.train[0].flatten(1), y))
    own = explained(recipe.train[0].flatten(1), y)
    best = int(own.argmax())
    assert float(plain[best]) < 0.5 * float(own[best]) < 0.8 * float(kept[best])
    assert Shortcut()(subject) is None
    assert InputShift()(subject).severity == "wrong"


def test_inverted_test_images_are_no_shortcut() -> None:
    """Half of them inverted: no pixel says anything on average, not even those at the border."""
    assert Shortcut()(InputShift.plant(healthy_recipe("image", seed=900), 900)) is None


def test_words_chart_and_code() -> None:
    finding = Shortcut()(Shortcut.plant(quick("table")))
    assert finding.sentence == (
        "The model relies on input 9, which gives the target away in the training data only."
    )
    assert max(finding.charts[0].series[0].y) == finding.charts[0].series[0].y[9]
    x = torch.arange(200.0).view(20, 10)
    scope = {"torch": torch, "train_inputs": x.clone()}
    exec(finding.advice[0].code, scope)
    assert torch.equal(scope["train_inputs"][:, :9], x[:, :9])
    assert scope["train_inputs"][:, 9].sort().values.tolist() == x[:, 9].tolist()


@pytest.mark.parametrize("case", CASES)
def test_small_subjects_survive(case: str) -> None:
    Shortcut()(CASES[case](torch.float32))


def test_permuted_pixels_are_a_shift_and_no_shortcut() -> None:
    recipe = healthy_recipe("image", seed=3)
    inputs, targets = recipe.test
    order = torch.randperm(inputs[0].numel(), generator=torch.Generator().manual_seed(0))
    mixed = inputs.flatten(1)[:, order].view_as(inputs)
    subject = fit(recipe.replace(test=(mixed, targets)), seed=3).subject()
    assert Shortcut()(subject) is None
    assert diagnose(subject).findings[0].name == "input-shift"
