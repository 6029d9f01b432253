"""compare: exact tests against scipy, words that claim nothing without one, and bad input."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from mindgap import Subject, compare
from mindgap.core import Recipe
from mindgap.core.errors import InputError
from mindgap.report.pages.compare import Comparison
from mindgap.training.fit import fit

QUICK: dict[str, Any] = {"measures": ["margin"], "diagnoses": ["not-finite"]}
SAMPLES = 400


def inputs(samples: int = SAMPLES, seed: int = 0) -> torch.Tensor:
    return torch.randn(samples, 3, generator=torch.Generator().manual_seed(seed))


def line(*weights: float, test: Any = None, bias: float = 0.0, name: str = "") -> Subject:
    """Two classes, told apart by the sign of a weighted sum; the first input alone is right."""
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.stack([-torch.tensor(weights), torch.tensor(weights)]))
        model.bias.copy_(torch.tensor([-bias, bias]))
    x, z = inputs(100, seed=1), inputs() if test is None else test
    data = (x, (x[:, 0] > 0).long()), (z, (z[:, 0] > 0).long())
    return Subject(model, "cross_entropy", *data, name=name)


def curve(shift: float, noise: float = 0.0) -> Subject:
    """A regression whose first weight is off by a shift."""
    model = nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0 + shift, 0.0, noise]]))
        model.bias.zero_()
    x, z = inputs(50, seed=1), inputs()
    return Subject(model, "mse", (x, x[:, :1]), (z, z[:, :1]))


def wrong(subject: Subject) -> np.ndarray:
    return subject.errors("test").double().numpy()


def test_mcnemar_on_the_same_samples() -> None:
    one, other = line(1, 0.3, 0), line(1, 0.0, 0.5)
    (pair,) = compare({"a": one, "b": other}, **QUICK).pairs
    left, right = wrong(one), wrong(other)
    only = int((left > right).sum()), int((left < right).sum())
    assert pair.p_value == pytest.approx(stats.binomtest(only[0], sum(only)).pvalue)
    assert pair.difference == pytest.approx((left - right).mean())
    spread = stats.ttest_rel(left, right).confidence_interval(0.95)
    assert (pair.interval.low, pair.interval.high) == pytest.approx((spread.low, spread.high))
    assert (pair.paired, pair.samples) == (True, SAMPLES)


def test_the_order_of_the_samples_does_not_matter() -> None:
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(3))
    straight = compare([line(1, 0.3, 0), line(1, 0, 0.5)], **QUICK).pairs[0]
    mixed = compare([line(1, 0.3, 0), line(1, 0, 0.5, test=inputs()[order])], **QUICK).pairs[0]
    assert mixed == straight


def test_fisher_on_other_samples() -> None:
    one, other = line(1, 0.3, 0), line(1, 0, 0.9, test=inputs(300, seed=5))
    found = compare([one, other], **QUICK)
    table = [[wrong(s).sum(), (1 - wrong(s)).sum()] for s in (one, other)]
    tails = [stats.fisher_exact(table, side).pvalue for side in ("less", "greater")]
    assert found.pairs[0].p_value == pytest.approx(min(1.0, 2 * min(tails)))
    assert not found.pairs[0].paired
    assert "The test data are not the same for all" in found.verdict.sentences[0]


def test_a_regression_must_improve_the_mean_and_most_samples() -> None:
    one, other = curve(0.1), curve(0.3)
    (pair,) = compare({"near": one, "far": other}, measures=(), diagnoses=()).pairs
    change = wrong(one) - wrong(other)
    sign = stats.binomtest(int((change > 0).sum()), int((change != 0).sum())).pvalue
    student = stats.ttest_rel(wrong(one), wrong(other)).pvalue
    assert pair.p_value == pytest.approx(max(sign, student))
    assert pair.better == "near"


def test_a_mean_that_a_few_samples_move_is_no_difference() -> None:
    """Most samples are better, a single one is so bad that the mean is worse."""
    steady, wild = curve(0.1), curve(0.0)
    wild.model.register_forward_hook(_spoil)
    (pair,) = compare({"steady": steady, "wild": wild}, measures=(), diagnoses=()).pairs
    assert pair.difference < 0
    assert (pair.p_value, pair.better) == (1.0, "")


def _spoil(_: nn.Module, rows: tuple[torch.Tensor], outputs: torch.Tensor) -> torch.Tensor:
    return torch.where(rows[0][:, :1] > 2.5, outputs + 50, outputs)


def test_welch_on_other_samples_of_a_regression() -> None:
    one, other = curve(0.1), curve(0.3)
    z = inputs(200, seed=9)
    moved = Subject(other.model, "mse", other.train, (z, z[:, :1]))
    (pair,) = compare([one, moved], measures=(), diagnoses=()).pairs
    expected = stats.ttest_ind(wrong(one), wrong(moved), equal_var=False)
    assert pair.p_value == pytest.approx(expected.pvalue)
    spread = expected.confidence_interval(0.95)
    assert (pair.interval.low, pair.interval.high) == pytest.approx((spread.low, spread.high))


def test_p_values_and_intervals_are_corrected_for_all_pairs() -> None:
    several = {"a": line(1, 0.3, 0), "b": line(1, 0, 0.5), "c": line(1, 1, 0)}
    found = compare(several, **QUICK).pairs
    raw = [compare([several[p.first], several[p.second]], **QUICK).pairs[0] for p in found]
    order = np.argsort([pair.p_value for pair in raw])
    running = 0.0
    for rank, place in enumerate(order):
        running = max(running, min(1.0, (3 - rank) * raw[place].p_value))
        assert found[place].p_value == pytest.approx(running)
    assert found[0].interval.level == pytest.approx(1 - 0.05 / 3)


@pytest.mark.parametrize(
    ("others", "kind", "words"),
    [
        (
            {"worse": line(1, 2, 0), "worst": line(0.1, 2, 0)},
            "difference",
            "best has the lowest test error",
        ),
        (
            {"same": line(1, 0.02, 0), "worst": line(0.1, 2, 0)},
            "tie",
            "but no difference from same is shown",
        ),
        ({"same": line(1, 0.02, 0)}, "no difference", "No difference in test error is shown"),
    ],
)
def test_nothing_is_called_lower_without_a_test(
    others: dict[str, Subject], kind: str, words: str
) -> None:
    found = compare({"best": line(1, 0.01, 0), **others}, **QUICK)
    assert found.verdict.kind == kind
    assert words in found.verdict.headline
    assert "better" not in str(found).replace("claimed better", "")
    for pair in found.pairs:
        assert bool(pair.better) == (pair.p_value <= 0.05)


def test_a_model_against_itself() -> None:
    (pair,) = compare([line(1, 0.3, 0), line(1, 0.3, 0)], **QUICK).pairs
    assert (pair.difference, pair.p_value, pair.better) == (0.0, 1.0, "")


def test_bounds_hold_for_all_models() -> None:
    found = compare([line(1, 0.3, 0), line(1, 0, 0.5), line(1, 0, 0.1)], **QUICK)
    for report in found.reports:
        assert report["binomial-tail"].provenance["parameters"]["hypotheses"] == 3
    assert "(for all)" in str(found)
    assert "(one alone)" in str(found)


def test_leaks_make_a_comparison_unfair(monkeypatch: pytest.MonkeyPatch) -> None:
    from mindgap.core import Finding
    from mindgap.diagnoses.diagnose import Diagnosed

    leak = Finding(
        name="leaked-samples", sentence="All test samples are known.", severity="wrong", voids=True
    )
    monkeypatch.setattr(
        "mindgap.jobs.examine.diagnose", lambda *_, **__: Diagnosed(findings=(leak,), checked=())
    )
    found = compare({"a": line(1, 0, 0), "b": line(1, 2, 0)}, **QUICK)
    assert (found.verdict.kind, found.verdict.tone) == ("unfair", "bad")
    assert "a: All test samples are known." in found.verdict.headline


def test_models_without_test_data_or_numbers_are_not_compared() -> None:
    bare = Subject(nn.Linear(3, 2), "cross_entropy", line(1, 0, 0).train, name="bare")
    found = compare([bare, line(1, 0, 0, name="tested")], **QUICK)
    assert (found.pairs, found.verdict.kind) == ((), "not comparable")
    broken = line(float("nan"), 0, 0, name="broken")
    found = compare([broken, line(1, 0, 0, name="one"), line(1, 2, 0, name="two")], **QUICK)
    assert [(pair.first, pair.second) for pair in found.pairs] == [("one", "two")]
    assert any("broken: The weights of" in sentence for sentence in found.verdict.sentences)
    assert "—" in str(found)


def test_names_are_unique_and_fitted_models_are_taken() -> None:
    x = inputs(60)
    data = x, (x[:, 0] > 0).long()
    recipe = Recipe(model=lambda: nn.Linear(3, 2), train=data, test=data, epochs=1, name="mine")
    found = compare([fit(recipe), fit(recipe, seed=1)], **QUICK)
    assert [report.title for report in found.reports] == ["mine", "mine (2)"]


@pytest.mark.parametrize("suffix", [".html", ".json", ".md", ".txt"])
def test_it_is_saved_and_read_back(tmp_path: Any, suffix: str) -> None:
    found = compare({"<b>one</b>": line(1, 0.3, 0), "two": line(1, 0, 0.5)}, **QUICK)
    text = found.save(tmp_path / f"page{suffix}").read_text(encoding="utf-8")
    assert "two" in text
    if suffix == ".json":
        assert Comparison.from_dict(json.loads(text)) == found
    elif suffix != ".txt":
        assert "<b>one" not in text


def test_damaged_files_are_one_sentence() -> None:
    found = compare([line(1, 0.3, 0), line(1, 0, 0.5)], **QUICK).to_dict()
    with pytest.raises(InputError, match="must be one that mindgap wrote"):
        Comparison.from_dict({**found, "pairs": [{"first": 1}]})
    with pytest.raises(InputError, match="kind 'comparison'"):
        Comparison.from_dict({})


def test_bad_input_is_one_sentence() -> None:
    with pytest.raises(InputError, match="at least two to be compared, got 1"):
        compare([line(1, 0, 0)])
    with pytest.raises(InputError, match="same task, got classification for 'a' and regression"):
        compare({"a": line(1, 0, 0), "b": curve(0.1)})
    absolute = Subject(nn.Linear(3, 1), "l1", curve(0).train, curve(0).test)
    with pytest.raises(InputError, match="same loss"):
        compare([curve(0.1), absolute])
    with pytest.raises(InputError, match="subjects must be"):
        compare([line(1, 0, 0), nn.Linear(3, 2)])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"must end in \.html"):
        compare([line(1, 0, 0), line(1, 1, 0)], **QUICK).save("page.pdf")
