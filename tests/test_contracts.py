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
import re
import warnings
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from cases import CASES, EPOCHS, LAYERED, changed, mixed, mlp_classes, recipe
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
from mindgap.report.html import mathml
from mindgap.runs import SerialExecutor, sweep
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.studies.documents import DOCUMENTS
from mindgap.training.ensemble import SequentialNotice, ensemble
from mindgap.training.fit import fit
from mindgap.training.fitted import Fitted
from mindgap.training.probe import Probe

SPECS = catalog()
MEASURES = {**catalog("measure"), **catalog("bound")}
SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
BOUNDS, REMEDIES, STUDIES = catalog("bound"), catalog("remedy"), catalog("study")
DIAGNOSES = catalog("diagnosis")
NORMS = ("spectral", "frobenius")
# One kind of inputs per diagnosis, in turn; the study planted-problems counts all, ten times each.
# Put last, so that a new diagnosis leaves the others their kind.
LATER = (
    *("bad-initialization", "bounded-outputs", "exploding-gradients", "gradient-masking"),
    *("idle-layer", "not-robust", "other-target-units", "over-regularized", "rank-collapse"),
    *("shuffled-labels", "target-in-inputs", "vanishing-gradients"),
)
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


def written(subject: Subject) -> list[int]:
    """How often each weight and buffer was written to."""
    return [t._version for t in (*subject.model.parameters(), *subject.model.buffers())]


def same(left: object, right: object) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def with_gradients(subject: Subject) -> Subject:
    """The subject in training mode with something in ``grad``, both of which must survive."""
    subject.model.train()
    first = next(subject.model.parameters())
    first.grad = torch.ones_like(first)
    return subject


def quick(name: str) -> Measure:
    """The measure at its defaults, or with shorter chains: promises are kept at every length."""
    settings = {"local-learning-coefficient": {"burn_in": 10, "draws": 20}}
    return MEASURES[name](**settings.get(name, {}))


@functools.cache  # nothing that examines a subject changes it, which the snapshots prove
def shared(case: str, dtype: torch.dtype = torch.float64) -> Subject:
    return with_gradients(CASES[case](dtype))


@functools.cache
def altered(case: str, change: str) -> Subject:
    return changed(shared(case), change)


@functools.cache
def rescaled_case(case: str, factor: float) -> Subject:
    return rescaled_subject(shared(case), factor)


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a measure gave, and whether all that was there before was there afterwards."""

    result: Result
    traceless: bool


@functools.cache  # by contract a result depends on measure and subject only, so all tests share it
def measured(name: str, case: str, dtype: torch.dtype = torch.float64) -> Measured:
    """Measure a case: in single precision one of its own, which nobody has measured before."""
    own = dtype == torch.float32
    subject = with_gradients(CASES[case](dtype)) if own else shared(case, dtype)
    before, versions = snapshot(subject), written(subject)
    result = quick(name)(subject)
    # A tensor that is written and put back would cost the subject all that it keeps.
    traceless = same(before, snapshot(subject)) and versions == written(subject)
    if not traceless:
        shared.cache_clear()  # so that no other measure fails for it
    return Measured(result, traceless)


def value_of(name: str, case: str, dtype: torch.dtype = torch.float64) -> float | None:
    return measured(name, case, dtype).result.value


@pytest.mark.parametrize("name", SPECS, scope="class")
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
        assert mathml(SPECS[name].words().formula).startswith("<math")

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
        listed = isinstance(value, tuple)
        allowed = [(choice,) if listed else choice for choice in metadata["choices"]]
        return next((choice for choice in allowed if choice != value), None)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if metadata.get("high") is None else None
    return value * 0.5 if isinstance(value, float) and value else None


def test_measures_of_layers_count_every_layer_or_name_it_as_left_out() -> None:
    subject, seen = mixed(), set()
    held = {
        name
        for name, module in subject.model.named_modules()
        if any(weight.ndim > 1 for weight in module.parameters(recurse=False))
    }
    tensors = {name for name, _ in subject.model.named_parameters()}
    for name, cls in catalog("measure").items():
        details = {} if cls.cost == "expensive" else cls()(subject).details
        if "skipped" in details or "by_layer" in details:
            counted, skipped = set(details["counted"]), details["skipped"]
            assert all(len(why) > 5 for why in skipped.values()), name
            assert not counted & set(skipped), name
            named = {
                part for full in (*counted, *skipped) for part in (full, full.rpartition(".")[0])
            }
            assert held <= named, name
            seen.add(name)
        if "by_tensor" in details:
            assert set(details["by_tensor"]) == tensors, name
            seen.add(name)
    products = {f"{kind}-of-{norm}-norms" for kind in ("product", "sum") for norm in NORMS}
    others = {"noise-decay", "prediction-depth", "power-law-exponent", "normalized-margin"}
    assert products | others | {"spectral-complexity", "hessian-trace", "parameter-norm"} <= seen


def test_a_norm_that_leaves_layers_out_is_a_heuristic_and_says_so() -> None:
    result = MEASURES["product-of-spectral-norms"]()(mixed())
    assert result.status == "heuristic"
    assert result.caveats == (
        "leaves out words, norm, attention, attention.out_proj, recurrent, own",
    )
    assert MEASURES["product-of-spectral-norms"]()(mlp_classes(torch.float64)).caveats == ()


# A class-wide scope brings the tests of one spec together, so that one worker runs them and its
# cache serves them all.
@pytest.mark.parametrize("name", MEASURES, scope="class")
class TestEveryMeasure:
    @pytest.mark.parametrize("case", CASES)
    def test_finite_or_undefined_with_a_reason(self, name: str, case: str) -> None:
        result = measured(name, case, torch.float32).result
        assert isinstance(result, Result)
        assert result.reason if result.value is None else math.isfinite(result.value)
        assert Result.from_json(result.to_json()) == result
        assert result.cost["seconds"] >= 0
        assert all(draw(chart, "key").alt and str(chart) for chart in result.charts)

    def test_defined_somewhere(self, name: str) -> None:
        assert any(value_of(name, case, torch.float32) is not None for case in CASES)

    def test_leaves_no_trace(self, name: str) -> None:
        for dtype in (torch.float32, torch.float64):
            traces = [case for case in CASES if not measured(name, case, dtype).traceless]
            assert not traces, dtype

    def test_leaves_no_trace_after_an_exception(self, name: str) -> None:
        subject = mlp_classes(torch.float32)
        subject.model.append(Bomb())
        before = snapshot(subject)
        with contextlib.suppress(ArithmeticError):
            quick(name)(subject)
        assert same(before, snapshot(subject))

    def test_same_settings_same_number(self, name: str) -> None:
        first = measured(name, "mlp_classes", torch.float32).result
        second = quick(name)(mlp_classes(torch.float32))
        assert first.value == second.value
        assert dict(first.terms) == dict(second.terms)

    @pytest.mark.parametrize("case", CASES)
    def test_single_precision_is_close_to_double(self, name: str, case: str) -> None:
        single, double = (value_of(name, case, dtype) for dtype in (torch.float32, torch.float64))
        assert (single is None) == (double is None)
        if single is not None:
            assert single == pytest.approx(double, rel=2e-4, abs=1e-6)

    def test_is_compared_with_brute_force(self, name: str) -> None:
        """Here by a reference for every case, or in a test file of its own."""
        cls = MEASURES[name]
        if name in REFERENCES:
            defined = [case for case in CASES if value_of(name, case) is not None]
            for case in defined:
                expected = REFERENCES[name](CASES[case](torch.float64))
                assert value_of(name, case) == pytest.approx(expected, rel=1e-9, abs=1e-12), case
        elif cls.__module__.startswith("mindgap."):  # a package that adds one tests it itself
            assert cls.__name__ in words_of_tests()

    @pytest.mark.parametrize("change", INVARIANCES)
    def test_declared_invariances_hold_and_others_fail_somewhere(
        self, name: str, change: str
    ) -> None:
        measure, declared = quick(name), MEASURES[name].invariant_to
        assert declared <= set(INVARIANCES)
        seen = []
        for case in LAYERED:
            before, after = value_of(name, case), measure(altered(case, change)).value
            if before is not None and after is not None:
                seen.append((case, before, after))
                if not math.isclose(before, after, rel_tol=1e-9, abs_tol=1e-9):
                    assert change not in declared, seen[-1]
                    return
        assert seen, "undefined everywhere"
        assert change in declared, seen


@functools.cache
def words_of_tests() -> frozenset[str]:
    texts = (path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


@pytest.mark.parametrize(
    "name", [name for name, cls in MEASURES.items() if cls.promises_rescaling()]
)
class TestEveryMeasureThatPromisesRescaling:
    @pytest.mark.parametrize("factor", [1e-6, 1e-3, 1e3, 1e6])
    def test_relu_rescaling_moves_it_no_faster_than_promised(
        self, name: str, factor: float
    ) -> None:
        """P8: larger weights in a layer, smaller ones in the next, the same function."""
        measure, cls = quick(name), MEASURES[name]
        for case in LAYERED:
            before, after = value_of(name, case), measure(rescaled_case(case, factor)).value
            if before is None or after is None:
                continue
            if cls.rescaling == "logarithmic":
                assert within_a_logarithm(shared(case), before, after, factor), (before, after)
            else:
                assert after == pytest.approx(before, rel=1e-6, abs=1e-9)

    def test_logarithmic_promise_is_not_empty(self, name: str) -> None:
        """What grows with a power of the factor would not pass: the norm of the weights is the example."""
        subject, larger = shared("mlp_classes"), rescaled_case("mlp_classes", 1e6)
        before, after = float(ParameterNorm()(subject)), float(ParameterNorm()(larger))
        assert not within_a_logarithm(subject, before, after, 1e6)
        if MEASURES[name].rescaling == "logarithmic":
            assert float(quick(name)(larger)) != value_of(name, "mlp_classes")


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


@pytest.mark.parametrize("name", BOUNDS, scope="class")
class TestEveryBound:
    def test_is_above_the_empirical_risk(self, name: str) -> None:
        for case in CASES:
            bound, subject, result = BOUNDS[name](), shared(case), measured(name, case).result
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


@functools.cache
def plain(images: bool, epochs: int) -> Fitted:
    return fit(small_recipe(images, epochs=epochs))


@functools.cache
def treated(name: str) -> Fitted:
    return fit(suited(name), [REMEDIES[name]()])


@pytest.mark.parametrize("name", REMEDIES, scope="class")
class TestEveryRemedy:
    def test_zero_strength_is_plain_training_bit_for_bit(self, name: str) -> None:
        untreated = plain(on_images(name), epochs=EPOCHS)
        off = fit(suited(name), [REMEDIES[name]().off()])
        assert same(untreated.model.state_dict(), off.model.state_dict())
        assert untreated.history == off.history

    def test_changes_training(self, name: str) -> None:
        """Within four epochs, or in thirty for what acts late in training."""

        def changes(epochs: int) -> bool:
            found = fit(suited(name, epochs=epochs), [strong(name)])
            before = plain(on_images(name), epochs=epochs)
            return not same(before.model.state_dict(), found.model.state_dict())

        assert changes(EPOCHS) or changes(30)

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
            extended = fit(suited(name), remedies, checkpoint=path)
            assert same(treated(name).model.state_dict(), extended.model.state_dict())

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
            # A head at its optimum can have large weights, to which rounding is relative.
            assert all(torch.allclose(one, other, rtol=1e-4, atol=1e-4) for one, other in pairs)

    def test_hands_over_weights_that_fit_the_plain_model(self, name: str) -> None:
        found, bare = treated(name), suited(name).build(0)
        if name == "two-phase":  # its answers need the weights of both phases
            REMEDIES[name]().attach(bare)
        if name == "snapshot-ensemble":  # and here those of all snapshots
            REMEDIES[name]().attach(bare, probabilities=True)
        bare.load_state_dict(found.model.state_dict())
        x = torch.randn(5, *suited(name).train[0].shape[1:])
        assert torch.equal(bare.eval()(x), found.model(x))

    def test_says_what_it_treats(self, name: str) -> None:
        assert REMEDIES[name].treats
        assert REMEDIES[name].treats <= set(get_args(Symptom))
        assert REMEDIES[name].strength in {
            field.name for field in dataclasses.fields(REMEDIES[name])
        }
        assert REMEDIES[name]().on
        assert not REMEDIES[name]().off().on


def on_images(name: str) -> bool:
    return "images" in REMEDIES[name].needs


def suited(name: str, **changes: object) -> Recipe:
    """The small recipe, on images for remedies that need them."""
    return small_recipe(on_images(name), **changes)


def small_recipe(images: bool, **changes: object) -> Recipe:
    plan = recipe(**changes)
    if not images:
        return plan
    (x, y), (t, z) = plan.train, plan.test
    model = plan.model
    return plan.replace(
        model=lambda: nn.Sequential(nn.Flatten(), model()),
        train=(x.view(-1, 1, 2, 2), y),
        test=(t.view(-1, 1, 2, 2), z),
    )


class Killed(Probe):
    """Ctrl-C at a step, as a probe."""

    def look(self, subject: Subject, step: int) -> None:
        if step == self.every:
            raise KeyboardInterrupt


def strong(name: str) -> Remedy:
    """The remedy as strong as it must be to act on a tiny recipe."""
    settings = {
        "early-stopping": {"patience": 1},
        "gradient-clipping": {"max_norm": 0.01},
        "spectral-normalization": {"limit": 0.5},
    }
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
        assert all(claim.text.endswith(".") for claim in whole.table.claims)

    def test_reproduces_what_the_documents_have(self, name: str) -> None:
        known = {f"{one.name}: {item}" for one in DOCUMENTS for item in one.items}
        assert isinstance(STUDIES[name].reproduces, tuple)
        assert set(STUDIES[name].reproduces) <= known

    def test_trials_are_distinct_plain_data(self, name: str) -> None:
        trials = STUDIES[name]().trials()
        words = {json.dumps([trial.parameters, trial.seed], sort_keys=True) for trial in trials}
        assert len(words) == len(trials)


@pytest.mark.parametrize("name", DIAGNOSES, scope="class")
class TestEveryDiagnosis:
    @pytest.mark.parametrize("case", CASES)
    def test_survives_every_case_and_leaves_no_trace(self, name: str, case: str) -> None:
        subject = shared(case, torch.float32)
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
