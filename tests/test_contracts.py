"""Contracts: every spec in the registry is held to its family's promises before its author writes a test."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import json
import math
import pickle
import random
import warnings
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from cases import CASES, LAYERED, changed, mlp_classes, recipe
from reference import REFERENCES
from torch import nn

from mindgap.cli.options import from_words, to_words
from mindgap.core.bound import Bound
from mindgap.core.diagnosis import Diagnosis, Finding, Kind, Stage
from mindgap.core.errors import CheckpointError, DataUnavailableError
from mindgap.core.measure import INVARIANCES, Measure
from mindgap.core.recipe import Recipe
from mindgap.core.references import reference
from mindgap.core.registry import catalog
from mindgap.core.remedy import Remedy, Symptom
from mindgap.core.result import Result
from mindgap.core.study import Study
from mindgap.core.subject import Subject
from mindgap.diagnoses.diagnose import diagnose
from mindgap.measures import ParameterNorm
from mindgap.ops.models.rescaling import rescaled
from mindgap.report.draw import draw
from mindgap.runs import SerialExecutor, sweep
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.ensemble import SequentialNotice, ensemble
from mindgap.training.fit import fit
from mindgap.training.probe import Probe

SPECS = catalog()
MEASURES = {**catalog("measure"), **catalog("bound")}
SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
BOUNDS, REMEDIES, STUDIES = catalog("bound"), catalog("remedy"), catalog("study")
DIAGNOSES = catalog("diagnosis")
# One kind of inputs per diagnosis, in turn; the study planted-problems counts all, ten times each.
LATER = ("gradient-masking",)  # put last, so that a new diagnosis leaves the others their kind
PLANTS = [
    (name, DIAGNOSES[name].kinds[place % len(DIAGNOSES[name].kinds)])
    for place, name in enumerate(sorted(DIAGNOSES, key=lambda name: name in LATER))
]
TASKS = [
    (kind, task)
    for kind in get_args(Kind)
    for task in ("classification", "regression")
    if (kind, task) != ("image", "regression")
]


def snapshot(subject: Subject) -> tuple[object, ...]:
    model = subject.model
    return (
        {name: value.clone() for name, value in model.state_dict().items()},
        [module.training for module in model.modules()],
        [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        [p.requires_grad for p in model.parameters()],
        [
            len(module._forward_hooks)
            + len(module._forward_pre_hooks)
            + len(module._backward_hooks)
            for module in model.modules()
        ],
        torch.get_rng_state(),
        random.getstate(),
        str(np.random.get_state()),
    )


def same(left: object, right: object) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@pytest.mark.parametrize("name", SPECS)
class TestEverySpec:
    def test_is_documented_with_formula_and_reference(self, name: str) -> None:
        words = SPECS[name].words()
        assert words.summary.endswith(".")
        assert words.formula
        assert len(words.reading) > 40
        assert words.assumes
        assert SPECS[name].cites
        assert all(reference(key) for key in SPECS[name].cites)
        assert ">>>" in (SPECS[name].__doc__ or "")

    def test_formula_becomes_mathml(self, name: str) -> None:
        from latex2mathml.converter import convert

        assert convert(SPECS[name].words().formula).startswith("<math")

    def test_names_its_methods(self, name: str) -> None:
        # Most diagnoses are tests of our own, which no source document describes.
        assert SPECS[name].method or name in DIAGNOSES
        assert all(id_[0] in "VTPKES" and id_[1:].isdigit() for id_ in SPECS[name].method)

    def test_every_field_has_help_and_a_default(self, name: str) -> None:
        for field in dataclasses.fields(SPECS[name]):
            assert field.metadata.get("help"), field.name
            assert field.default is not dataclasses.MISSING, field.name

    def test_is_frozen_picklable_and_hashed(self, name: str) -> None:
        spec = SPECS[name]()
        assert pickle.loads(pickle.dumps(spec)) == spec
        assert pickle.loads(pickle.dumps(spec)).digest == spec.digest
        with pytest.raises(dataclasses.FrozenInstanceError):
            spec.name_that_is_not_there = 1

    def test_round_trip_through_the_command_line(self, name: str) -> None:
        spec = SPECS[name]()
        assert from_words(SPECS[name], to_words(spec)) == spec
        for field in dataclasses.fields(spec):
            other = different(getattr(spec, field.name), field.metadata)
            if other is not None:
                moved = spec.replace(**{field.name: other})
                assert from_words(SPECS[name], to_words(moved)) == moved != spec


def different(value: object, metadata: dict[str, object]) -> object:
    """Another allowed value of a field, or None."""
    if metadata.get("choices"):
        return next((choice for choice in metadata["choices"] if choice != value), None)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if metadata.get("high") is None else None
    return value * 0.5 if isinstance(value, float) and value else None


@pytest.mark.parametrize("name", MEASURES)
class TestEveryMeasure:
    @pytest.mark.parametrize("case", CASES)
    def test_finite_or_undefined_with_a_reason(self, name: str, case: str) -> None:
        result = MEASURES[name]()(CASES[case](torch.float32))
        assert isinstance(result, Result)
        assert result.reason if result.value is None else math.isfinite(result.value)
        assert Result.from_json(result.to_json()) == result
        assert result.cost["seconds"] >= 0
        assert all(draw(chart, "key").alt and str(chart) for chart in result.charts)

    def test_defined_somewhere(self, name: str) -> None:
        assert any(
            MEASURES[name]()(case(torch.float32)).value is not None for case in CASES.values()
        )

    @pytest.mark.parametrize("case", CASES)
    def test_leaves_no_trace(self, name: str, case: str) -> None:
        subject = CASES[case](torch.float32)
        subject.model.train()
        next(subject.model.parameters()).grad = torch.ones_like(next(subject.model.parameters()))
        before = snapshot(subject)
        MEASURES[name]()(subject)
        assert same(before, snapshot(subject))

    def test_leaves_no_trace_after_an_exception(self, name: str) -> None:
        subject = mlp_classes(torch.float32)
        subject.model.append(Bomb())
        before = snapshot(subject)
        with contextlib.suppress(ArithmeticError):
            MEASURES[name]()(subject)
        assert same(before, snapshot(subject))

    def test_same_settings_same_number(self, name: str) -> None:
        first, second = (MEASURES[name]()(mlp_classes(torch.float32)) for _ in range(2))
        assert first.value == second.value
        assert dict(first.terms) == dict(second.terms)

    @pytest.mark.parametrize("case", CASES)
    def test_single_precision_is_close_to_double(self, name: str, case: str) -> None:
        single, double = (
            MEASURES[name]()(CASES[case](dtype)) for dtype in (torch.float32, torch.float64)
        )
        assert (single.value is None) == (double.value is None)
        if single.value is not None:
            assert single.value == pytest.approx(double.value, rel=2e-4, abs=1e-6)

    def test_is_compared_with_brute_force(self, name: str) -> None:
        """Here by a reference for every case, or in a test file of its own."""
        files = set(Path(__file__).parent.rglob("test_*.py"))
        texts = (path.read_text(encoding="utf-8") for path in files)
        cls = MEASURES[name]
        if cls.__module__.startswith("mindgap."):  # a package that adds one tests it itself
            assert name in REFERENCES or any(cls.__name__ in text for text in texts)

    def test_declared_invariances_hold_and_others_fail_somewhere(self, name: str) -> None:
        measure, declared = MEASURES[name](), MEASURES[name].invariant_to
        assert declared <= set(INVARIANCES)
        for change in INVARIANCES:
            pairs = [(measure(subject), measure(changed(subject, change))) for subject in layered()]
            seen = [
                (a.value, b.value) for a, b in pairs if a.value is not None and b.value is not None
            ]
            assert seen, change
            moved = [not math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in seen]
            assert any(moved) != (change in declared), (change, seen)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", [name for name in MEASURES if name in REFERENCES])
def test_equals_brute_force(name: str, case: str) -> None:
    result = MEASURES[name]()(CASES[case](torch.float64))
    if result.value is not None:
        assert result.value == pytest.approx(
            REFERENCES[name](CASES[case](torch.float64)), rel=1e-9, abs=1e-12
        )


@pytest.mark.parametrize(
    "name", [name for name, cls in MEASURES.items() if cls.promises_rescaling()]
)
class TestEveryMeasureThatPromisesRescaling:
    @pytest.mark.parametrize("factor", [1e-6, 1e-3, 1e3, 1e6])
    def test_relu_rescaling_moves_it_no_faster_than_promised(
        self, name: str, factor: float
    ) -> None:
        """P8: larger weights in a layer, smaller ones in the next, the same function."""
        measure, cls = MEASURES[name](), MEASURES[name]
        for subject in layered():
            before, after = measure(subject).value, measure(rescaled_subject(subject, factor)).value
            if before is None or after is None:
                continue
            if cls.rescaling == "logarithmic":
                assert within_a_logarithm(subject, before, after, factor), (before, after)
            else:
                assert after == pytest.approx(before, rel=1e-6, abs=1e-9)

    def test_logarithmic_promise_is_not_empty(self, name: str) -> None:
        """What grows with a power of the factor would not pass: the norm of the weights is the example."""
        subject = mlp_classes(torch.float64)
        before, after = (
            float(ParameterNorm()(s)) for s in (subject, rescaled_subject(subject, 1e6))
        )
        assert not within_a_logarithm(subject, before, after, 1e6)
        if MEASURES[name].rescaling == "logarithmic":
            assert float(MEASURES[name]()(rescaled_subject(subject, 1e6))) != float(
                MEASURES[name]()(subject)
            )


def rescaled_subject(subject: Subject, factor: float) -> Subject:
    model = rescaled(subject.model, factor)
    return Subject(
        model, subject.loss, subject.train, subject.test, initial=subject.initial, task=subject.task
    )


def within_a_logarithm(subject: Subject, before: float, after: float, factor: float) -> bool:
    """At most six ln(factor) a weight: two roots of curvature, each of which may grow with a few powers."""
    count = sum(p.numel() for p in subject.model.parameters())
    return abs(after - before) <= 6 * count * abs(math.log(factor))


class Bomb(nn.Module):
    """Goes off in the middle of a forward pass, after leaving its mark everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        self.count += 1
        torch.rand(3)
        raise ArithmeticError("the bomb went off")


def layered() -> list[Subject]:
    return [CASES[case](torch.float64) for case in LAYERED]


@functools.cache  # measuring changes nothing, so all bounds share the draws and their outputs
def fixed_classifier(samples: int, seed: int) -> tuple[Subject, float]:
    """A linear classifier that knows nothing of the data, on two Gaussians: its risk has a closed form."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(2, 2, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0, 0.3], [1.0, -0.3]]))
        model.bias.zero_()
    y = torch.arange(2 * samples) % 2
    center = torch.tensor([1.0, 0.0], dtype=torch.float64)
    x = (2 * y[:, None] - 1) * center + torch.randn(
        2 * samples, 2, generator=generator, dtype=torch.float64
    )
    direction = (model.weight[1] - model.weight[0]).detach()
    risk = 0.5 * math.erfc(float(direction @ center / direction.norm()) / math.sqrt(2))
    initial = copy.deepcopy(model.state_dict())
    subject = Subject(
        model,
        "cross_entropy",
        (x[:samples], y[:samples]),
        (x[samples:], y[samples:]),
        initial=initial,
    )
    return subject, risk


def share_that_holds(bound: object, draws: int = 300) -> float:
    problems = (fixed_classifier(100, seed) for seed in range(draws))
    return float(np.mean([float(bound(subject)) >= risk for subject, risk in problems]))


@pytest.mark.parametrize("name", BOUNDS)
class TestEveryBound:
    def test_is_above_the_empirical_risk(self, name: str) -> None:
        for case in CASES.values():
            bound, subject = BOUNDS[name](), case(torch.float64)
            result = bound(subject)
            if result.value is not None:
                assert result.value >= result.terms["empirical"]
                assert result.value == pytest.approx(
                    result.terms["empirical"] + result.terms["complexity"]
                )
                limit = min(result.terms["ceiling"], bound.baseline(subject))
                assert result.vacuous == (result.value >= limit * (1 - 1e-4))

    def test_shrinks_with_samples(self, name: str) -> None:
        subject, _ = fixed_classifier(100, 0)
        assert float(BOUNDS[name]()(changed(subject, "duplication"))) < float(
            BOUNDS[name]()(subject)
        )

    def test_grows_as_delta_shrinks(self, name: str) -> None:
        subject, _ = fixed_classifier(100, 0)
        values = [float(BOUNDS[name](delta=delta)(subject)) for delta in (0.3, 0.05, 0.001)]
        assert values == sorted(values)
        assert values[0] < values[-1]

    def test_holds_on_simulated_draws(self, name: str) -> None:
        delta, draws = 0.1, 300
        slack = 3 * math.sqrt(delta * (1 - delta) / draws)
        assert share_that_holds(BOUNDS[name](delta=delta), draws) >= 1 - delta - slack

    def test_is_flagged_when_test_data_were_trained_on(self, name: str) -> None:
        subject, _ = fixed_classifier(100, 0)
        leaky = Subject(
            subject.model, subject.loss, subject.train, subject.train, initial=subject.initial
        )
        honest, wrong = BOUNDS[name]()(subject), BOUNDS[name]()(leaky)
        assert honest.valid
        if "test" in BOUNDS[name].needs:
            assert not wrong.valid
            assert "training data" in wrong.reason


def test_the_simulation_finds_a_bound_that_does_not_hold() -> None:
    def too_tight(subject: Subject) -> float:
        return subject.mean_error("test") + 0.01

    assert share_that_holds(too_tight) < 0.8


@pytest.mark.parametrize("name", REMEDIES)
class TestEveryRemedy:
    def test_zero_strength_is_plain_training_bit_for_bit(self, name: str) -> None:
        plain, off = fit(suited(name)), fit(suited(name), [REMEDIES[name]().off()])
        assert same(plain.model.state_dict(), off.model.state_dict())
        assert plain.history == off.history

    def test_changes_training(self, name: str) -> None:
        plan = suited(name, epochs=30)
        plain, treated = fit(plan), fit(plan, [strong(name)])
        assert not same(plain.model.state_dict(), treated.model.state_dict())

    def test_is_repeatable_and_resumes_exactly(self, name: str, tmp_path: object) -> None:
        plan, path, remedies = suited(name), tmp_path / "run.pt", [REMEDIES[name]()]
        whole = fit(plan, remedies, seed=3)
        cut = fit(
            plan,
            remedies,
            seed=3,
            checkpoint=path,
            probes=[Killed(measure=ParameterNorm(), every=12)],
        )
        assert cut.epochs == 2
        resumed = fit(plan, remedies, seed=3, checkpoint=path)
        assert same(whole.model.state_dict(), resumed.model.state_dict())
        assert whole.history == resumed.history

    def test_a_shorter_run_can_be_extended_or_is_refused(self, name: str, tmp_path: object) -> None:
        path, remedies = tmp_path / "run.pt", [REMEDIES[name]()]
        fit(suited(name, epochs=2), remedies, checkpoint=path)
        if REMEDIES[name].horizon:
            with pytest.raises(CheckpointError, match="epochs"):
                fit(suited(name), remedies, checkpoint=path)
        else:
            extended, whole = (
                fit(suited(name), remedies, checkpoint=path),
                fit(suited(name), remedies),
            )
            assert same(whole.model.state_dict(), extended.model.state_dict())

    def test_ensemble_trains_it(self, name: str) -> None:
        if name == "dropout":
            pytest.skip("an ensemble draws masks of its own")
        plan, remedies = suited(name), [REMEDIES[name]()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SequentialNotice)
            members = ensemble(plan, (1, 2), remedies=remedies)
        for member in members:
            alone = fit(plan, remedies, seed=member.seed).model
            pairs = zip(member.model.parameters(), alone.parameters(), strict=True)
            assert all(torch.allclose(one, other, atol=1e-4) for one, other in pairs)

    def test_hands_over_weights_that_fit_the_plain_model(self, name: str) -> None:
        treated = fit(suited(name), [REMEDIES[name]()])
        plain = suited(name).build(0)
        if name == "two-phase":  # its answers need the weights of both phases
            REMEDIES[name]().attach(plain)
        plain.load_state_dict(treated.model.state_dict())
        x = torch.randn(5, *suited(name).train[0].shape[1:])
        assert torch.equal(plain.eval()(x), treated.model(x))

    def test_says_what_it_treats(self, name: str) -> None:
        assert REMEDIES[name].treats
        assert REMEDIES[name].treats <= set(get_args(Symptom))
        assert REMEDIES[name].strength in {
            field.name for field in dataclasses.fields(REMEDIES[name])
        }
        assert REMEDIES[name]().on
        assert not REMEDIES[name]().off().on


def suited(name: str, **changes: object) -> Recipe:
    """The small recipe, on images for remedies that need them."""
    plan = recipe(**changes)
    if "images" not in REMEDIES[name].needs:
        return plan
    (x, y), (t, z) = plan.train, plan.test
    images, model = (x.view(-1, 1, 2, 2), y), plan.model
    return plan.replace(
        model=lambda: nn.Sequential(nn.Flatten(), model()),
        train=images,
        test=(t.view(-1, 1, 2, 2), z),
    )


class Killed(Probe):
    """Ctrl-C at a step, as a probe."""

    def look(self, subject: Subject, step: int) -> None:
        if step == self.every:
            raise KeyboardInterrupt


def strong(name: str) -> Remedy:
    """The remedy as strong as it must be to act on a tiny recipe."""
    settings = {"early-stopping": {"patience": 1}, "gradient-clipping": {"max_norm": 0.01}}
    return REMEDIES[name](**settings.get(name, {}))


@pytest.mark.parametrize("name", STUDIES)
class TestEveryStudy:
    def test_tiny_runs_is_repeatable_and_resumes(
        self, name: str, tmp_path: object, monkeypatch: object
    ) -> None:
        if SHARED.is_dir():
            monkeypatch.setenv("MINDGAP_DATA", str(SHARED))
        study = STUDIES[name]().tiny()
        assert isinstance(study, Study)
        path = tmp_path / "store.sqlite"
        try:
            again = study.run(study.trials()[-1])  # the first to miss a data set
            part = sweep(study, store=path, executor=SerialExecutor(), limit=1, progress=False)
            whole = sweep(study, store=path, executor=SerialExecutor(), progress=False)
        except DataUnavailableError as error:
            pytest.skip(f"{name} needs a data set that is not here: {error}")
        errors = [row.error or "" for _, row in whole.failures]
        missing = [text for text in errors if DataUnavailableError.__name__ in text]
        if missing:
            pytest.skip(f"{name} needs a data set that is not here: {missing[0]}")
        assert len(part.records) == 1
        assert whole.complete
        assert json.loads(json.dumps(whole.records[-1][1])) == json.loads(json.dumps(again))
        assert whole.resumed == 1
        assert whole.table.rows
        assert len(whole.table.columns) == len(whole.table.rows[0])

    def test_trials_are_distinct_plain_data(self, name: str) -> None:
        trials = STUDIES[name]().trials()
        words = {json.dumps([trial.parameters, trial.seed], sort_keys=True) for trial in trials}
        assert len(words) == len(trials)


@pytest.mark.parametrize("name", DIAGNOSES)
class TestEveryDiagnosis:
    @pytest.mark.parametrize("case", CASES)
    def test_survives_every_case_and_leaves_no_trace(self, name: str, case: str) -> None:
        subject = CASES[case](torch.float32)
        next(subject.model.parameters()).grad = torch.ones_like(next(subject.model.parameters()))
        before = snapshot(subject)
        row = next(row for row in diagnose(subject, diagnoses=[name]).checked if row.name == name)
        assert row.outcome != "failed", row.reason
        assert same(before, snapshot(subject))

    def test_declares_what_the_order_needs(self, name: str) -> None:
        cls = DIAGNOSES[name]
        assert cls.stage in get_args(Stage)
        assert cls.symptom is None or cls.symptom in get_args(Symptom)
        assert cls.explains <= set(DIAGNOSES) - {name}
        assert cls.kinds
        assert set(cls.kinds) <= set(get_args(Kind))

    def test_says_why_it_does_not_apply(self, name: str) -> None:
        subject = mlp_classes(torch.float32)
        alone = Subject(subject.model, subject.loss, subject.train)
        row = diagnose(alone, diagnoses=[name]).checked[0]
        assert row.outcome != "failed", row.reason
        assert bool(row.reason) == (row.outcome == "not applicable")


@pytest.mark.parametrize(("name", "kind"), PLANTS)
def test_every_plant_is_named_first(name: str, kind: Kind) -> None:
    subject = DIAGNOSES[name].plant(healthy_recipe(kind, seed=7), seed=7)
    found = diagnose(subject)
    assert not [row for row in found.checked if row.outcome == "failed"]
    # A note is good to know and never the verdict, so it need only be found.
    notes = [finding.name for finding in found.findings if finding.severity == "note"]
    assert found.findings[0].name == name or name in notes, str(found)
    _assert_complete(found[name], subject)


def _assert_complete(finding: Finding, subject: Subject) -> None:
    assert finding.sentence.endswith(".")
    assert finding.advice
    assert finding.evidence
    assert all(math.isfinite(row.value) for row in finding.evidence)
    assert finding.p_value is None or 0 <= finding.p_value <= 1
    told = finding.to_dict()
    assert Finding.from_dict(json.loads(json.dumps(told))) == Finding.from_dict(told)
    assert all(draw(chart, "key").alt and str(chart) for chart in finding.charts)
    if finding.suspects is not None:
        size = len(subject.split(finding.suspects.split))
        assert all(0 <= place < size for place in finding.suspects.index)
        lengths = {len(column) for column in finding.suspects.columns.values()}
        assert lengths <= {len(finding.suspects.index)}
    for advice in finding.advice:
        compile(advice.code, "advice", "exec")


@pytest.mark.parametrize(("kind", "task"), TASKS)
def test_healthy_subjects_are_not_accused(kind: Kind, task: str) -> None:
    """One seed of every kind: the study false-alarms counts 220."""
    found = diagnose(fit(healthy_recipe(kind, task, seed=8), seed=8).subject())
    assert not [row for row in found.checked if row.outcome == "failed"]
    assert not [finding for finding in found.findings if finding.severity == "wrong"], str(found)


def test_diagnosing_is_repeatable() -> None:
    first, second = (
        diagnose(fit(healthy_recipe("table", seed=3), seed=3).subject()) for _ in range(2)
    )
    assert [f.to_dict() for f in first.findings] == [f.to_dict() for f in second.findings]


def test_families_are_what_they_say() -> None:
    assert all(issubclass(cls, Diagnosis) for cls in DIAGNOSES.values())
    assert all(issubclass(cls, Measure) for cls in MEASURES.values())
    assert all(issubclass(cls, Bound) for cls in BOUNDS.values())
    assert not set(catalog("measure")) & set(BOUNDS)
