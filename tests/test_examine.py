import dataclasses
import re

import pytest
import torch
from cases import mixed

from mindgap import Report, examine
from mindgap.core import Diagnosis, Suspects, option
from mindgap.core.errors import InputError, NotFiniteError, UnknownNameError
from mindgap.core.measure import Measure
from mindgap.core.recipe import Recipe
from mindgap.core.registry import catalog, find
from mindgap.core.spec import REGISTRY
from mindgap.core.subject import Subject
from mindgap.jobs.examine import TOO_LONG
from mindgap.measures import Gap, Margin
from mindgap.ops.evidence.passes import LARGER, WORK
from mindgap.ops.initialization import subject as before_training
from mindgap.remedies import GradientClipping
from mindgap.report import html, markdown, wording
from mindgap.training.fit import fit


def data(samples=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 3, generator=generator)
    return inputs, (inputs[:, 0] > 0).long()


@pytest.fixture
def subject():
    return Subject(torch.nn.Linear(3, 2), "cross_entropy", data(40), data(20, seed=1))


@pytest.fixture
def passing():
    """Measures and diagnoses that exist for one test only."""
    families = ("measure", "diagnosis")
    kept = {family: dict(catalog(family)) for family in families}
    yield
    for family in families:
        REGISTRY[family].clear()
        REGISTRY[family].update(kept[family])


class Planted:
    """What a diagnosis of a test need not have."""

    @classmethod
    def plant(cls, recipe, seed=0, strength=1.0):
        raise NotImplementedError


def test_the_whole_catalog_is_walked_but_what_is_dear(subject):
    report = examine(subject)
    affordable = [
        name
        for family in ("measure", "bound")
        for name, cls in catalog(family).items()
        if cls.cost != "expensive"
    ]
    assert [card.result.name for card in report.cards] == affordable


def test_thorough_adds_what_is_dear(subject, passing):
    class Slow(Measure):
        """A measure that takes its time.

        Reading: Nothing.
        """

        cost = "expensive"

        def compute(self, subject):
            return 1.0

    names = lambda report: [card.result.name for card in report.measures]  # noqa: E731
    chosen = examine(subject, bounds=())
    assert "slow" not in names(chosen)
    assert "slow" in names(examine(subject, bounds=(), thorough=True))
    assert names(examine(subject, bounds=(), measures=["slow"])) == ["slow"]


def test_a_slow_model_is_spared_what_takes_long_unless_asked_for(subject, monkeypatch):
    def undefined(**more):
        report = examine(subject, bounds=(), diagnoses=(), **more)
        return {card.result.name for card in report.cards if card.result.reason == TOO_LONG}

    assert not undefined()
    monkeypatch.setattr("mindgap.jobs.examine.LIMIT", 0.0)
    found = undefined()
    assert found
    assert {find(name).cost for name in found} == {"moderate"}
    assert not undefined(measures=[sorted(found)[0]])


def test_of_a_large_model_few_samples_are_passed_and_the_rest_is_refused():
    def passed(operations):
        seen, (inputs, targets) = [], data(600)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        parts = (inputs[:300], targets[:300]), (inputs[300:], targets[300:])
        subject = Subject(net, "cross_entropy", *parts)
        subject.cached("operations", lambda: operations)  # as if it were so large
        net.register_forward_hook(lambda *called: seen.append(len(called[2])))
        # The short runs of these two count their operations themselves.
        checks = [
            name for name in catalog("diagnosis") if name not in ("too-small", "under-trained")
        ]
        report = examine(subject, diagnoses=checks)
        reasons = [card.result.reason or "" for card in report.cards]
        return sum(seen), sum("are allowed; name it" in reason for reason in reasons)

    large = int(WORK // 50)
    (most, none), (few, refused) = passed(1), passed(large)
    assert none == 0 < refused < 10
    assert few < most / 10
    # Beyond the pass over all data: some twenty items, none of which takes more than it is allowed.
    assert (few - 600) * large < 20 * LARGER * WORK


def test_a_measure_that_fails_does_not_cost_the_others(subject, passing):
    class Broken(Measure):
        """A measure with a fault."""

        def compute(self, subject):
            return 1 / 0

    class Refusing(Measure):
        """A measure that refuses."""

        def compute(self, subject):
            raise InputError("The model must have a linear layer, got none. Add one.")

    report = examine(subject, measures=["broken", Gap(), "refusing", "training-loss"], bounds=())
    assert report["broken"].reason == "failed with ZeroDivisionError: division by zero"
    assert report["refusing"].reason.startswith("The model must have")
    assert report["gap"].value is not None
    assert report["training-loss"].value is not None
    assert "could not be computed" in " ".join(report.verdict.sentences)


def test_an_interrupt_keeps_what_is_done(subject, passing):
    class Long(Measure):
        """A measure that is interrupted."""

        def compute(self, subject):
            raise KeyboardInterrupt

    chosen = {"measures": ["gap", "long", "training-loss"], "bounds": ()}
    report = examine(subject, **chosen, diagnoses=["not-finite"])
    assert report["gap"].value is not None
    assert report.interrupted
    assert not examine(subject, measures=["gap"], bounds=(), diagnoses=()).interrupted
    assert (report["long"].reason, report["training-loss"].reason) == (
        "interrupted",
        "not reached: interrupted",
    )
    assert [(row.outcome, row.reason) for row in report.checked] == [
        ("failed", "not reached: interrupted")
    ]


def test_an_interrupt_of_a_check_keeps_the_measures(subject, passing):
    class Slow(Planted, Diagnosis):
        """Look until Ctrl-C."""

        stage = "fit"

        def look(self, subject, results):
            raise KeyboardInterrupt

    report = examine(subject, measures=["gap"], bounds=(), diagnoses=["slow"])
    assert report["gap"].value is not None
    assert (report.checked[0].name, report.checked[0].reason) == ("slow", "interrupted")
    assert report.verdict.kind == "not checked"


def test_names_instances_and_settings(subject):
    report = examine(
        subject, measures=[Margin(quantile=0.5), "gap"], bounds=["binomial_tail"], delta=0.1
    )
    margin, gap, tail = (card.result for card in report.cards)
    assert margin.provenance["parameters"] == {"quantile": 0.5}
    assert gap.interval.level == 0.9
    assert tail.provenance["parameters"]["delta"] == 0.1
    assert report.provenance["settings"]["delta"] == 0.1
    assert any("90" in sentence for sentence in report.verdict.sentences)


def test_one_name_is_enough(subject):
    assert [card.result.name for card in examine(subject, measures="gap", bounds=()).cards] == [
        "gap"
    ]


def test_the_gap_is_known_even_when_not_asked_for(subject):
    report = examine(subject, measures=(), bounds=())
    assert report.cards == ()
    assert report.gap.value == pytest.approx(
        subject.mean_error("test") - subject.mean_error("train")
    )


def test_a_misspelled_name(subject):
    with pytest.raises(UnknownNameError, match="Did you mean 'margin'"):
        examine(subject, measures=["magin"])


def recipe():
    return Recipe(
        model=lambda: torch.nn.Linear(3, 2), train=data(), test=data(20, seed=1), epochs=2
    )


def test_what_fit_returns_can_be_examined_with_why_it_stopped(passing):
    class Ended(Planted, Diagnosis):
        """Look at why training ended."""

        stage = "training run"
        stopped: str = option("", help="why training ended")

        def look(self, subject, results):
            return self.finding(f"Training ended: {self.stopped}.") if self.stopped else None

    why = "diverged: the loss became nan in epoch 3, step 7"
    fitted = dataclasses.replace(fit(recipe()), stopped=why)
    report = examine(fitted, diagnoses="ended")
    assert report.facts.initial
    assert report.facts.stopped == why
    assert len(report.curves) == 2
    assert (report.verdict.kind, report.verdict.headline) == ("ended", f"Training ended: {why}.")
    assert examine(fit(recipe()), diagnoses="ended").findings == ()


def test_a_value_stands_next_to_that_of_the_initial_weights():
    fitted = fit(recipe())
    report = examine(fitted, bounds=(), diagnoses=())
    before = Subject(fitted.model, recipe().loss, recipe().train, initial=fitted.initial)
    before.model.load_state_dict(fitted.initial)
    cards = {card.result.name: card for card in report.measures}
    for name in ("training-loss", "parameter-norm", "margin", "product-of-spectral-norms"):
        card = cards[name]
        assert card.untrained == float(catalog("measure")[name]()(before))
        assert card.untrained != float(card.result), name
        assert Report.from_json(report.to_json()) == report
    assert cards["steps-to-loss"].untrained is None  # the run of the trained weights
    assert re.search(r"^measure +value +interval +untrained +better", str(report), re.M)
    page = html.report_page(report)
    norm = cards["parameter-norm"].untrained
    assert f'<span class="reason">untrained: {wording.number(norm)}</span>' in page


def test_only_weights_are_compared_where_a_pass_would_take_long(monkeypatch):
    monkeypatch.setattr(before_training, "WORK", 1)
    fitted = fit(recipe())
    report = examine(fitted, measures=["training-loss", "parameter-norm"], diagnoses=())
    loss, norm = report.measures
    assert (loss.untrained, norm.untrained is None) == (None, False)


def test_nothing_is_compared_without_initial_weights(subject):
    report = examine(subject, measures=["parameter-norm"], bounds=(), diagnoses=())
    assert report.measures[0].untrained is None
    assert "untrained" not in str(report)
    assert "untrained:" not in html.report_page(report)


def test_what_a_value_leaves_out_is_told_with_it():
    report = examine(mixed(), measures=["product-of-spectral-norms"], bounds=(), diagnoses=())
    told = "leaves out words, norm, attention, attention.out_proj, recurrent, own"
    assert f"Read with care: · product-of-spectral-norms: {told}" in " ".join(str(report).split())
    assert f"`product-of-spectral-norms`: {told}" in markdown.text(report)
    page = html.report_page(report)
    assert f'<span class="reason caveat">{told}</span>' in page
    assert "Embedding is no dense layer or convolution that is called" in page


def test_an_interrupted_training_is_told():
    fitted = dataclasses.replace(fit(recipe()), stopped="interrupted in epoch 3")
    report = examine(fitted, measures=(), bounds=(), diagnoses=())
    assert "Training was interrupted in epoch 3." in report.verdict.sentences


def test_remedies_in_use_are_not_advised(passing):
    class Steep(Planted, Diagnosis):
        """Look for nothing, and find it."""

        stage = "fit"
        symptom = "divergence"

        def look(self, subject, results):
            return self.finding("It is steep.")

    clipped = fit(recipe(), [GradientClipping(max_norm=1.0)])
    assert clipped.remedies == ("gradient-clipping",)
    advised = [
        {advice.remedy for advice in examine(fitted, diagnoses=["steep"]).verdict.advice}
        for fitted in (fit(recipe()), clipped)
    ]
    assert "gradient-clipping" in advised[0]
    assert "gradient-clipping" not in advised[1]


def test_findings_and_checks_are_in_the_report(subject, passing):
    class Odd(Planted, Diagnosis):
        """Look for odd samples."""

        stage = "split"
        exact = True

        def look(self, subject, results):
            rows = Suspects(split="test", index=[3, 1], columns={"loss": [2.0, 1.0]})
            return self.finding(f"The gap is {results['gap'].value:.3f}.", suspects=rows)

    class Faulty(Planted, Diagnosis):
        """Look and fail."""

        stage = "fit"

        def look(self, subject, results):
            return 1 / 0

    report = examine(subject, measures=["gap"], bounds=(), diagnoses=["odd", Faulty()])
    assert [finding.name for finding in report.findings] == ["odd"]
    assert report.verdict.headline == f"The gap is {report.gap.value:.3f}."
    assert {row.name: row.outcome for row in report.checked} == {"odd": "found", "faulty": "failed"}
    assert report.suspects[0] == {"finding": "odd", "split": "test", "index": 3, "loss": 2.0}
    assert any("could not be computed" in sentence for sentence in report.verdict.sentences)
    assert Report.from_json(report.to_json()) == report


def test_no_checks_at_all(subject):
    report = examine(subject, measures=["gap"], bounds=(), diagnoses=())
    assert (report.findings, report.checked) == ((), ())
    assert report.verdict.label == "Not checked"


def test_a_misspelled_diagnosis(subject):
    with pytest.raises(UnknownNameError, match="Did you mean 'not-finite'"):
        examine(subject, diagnoses=["not-finit"])


def test_the_number_of_judged_models_widens_the_bounds(subject):
    best = Subject(subject.model, subject.loss, subject.train, subject.test, judged=50)
    one, many = (
        examine(each, measures=(), diagnoses=())["binomial-tail"] for each in (subject, best)
    )
    assert many.provenance["parameters"]["hypotheses"] == 50
    assert many.value > one.value


@pytest.mark.parametrize("place", ["weight", "outputs"])
@pytest.mark.parametrize("task", ["classes", "regression"])
def test_a_model_without_numbers_gets_a_verdict_that_names_the_place(place, task, tmp_path):
    classes = task == "classes"
    train, test = data(40), data(20, seed=1)
    if not classes:
        train, test = (train[0], train[0][:, :1]), (test[0], test[0][:, :1])
    body = torch.nn.Linear(3, 4)
    head = torch.nn.Linear(4, 2 if classes else 1)
    if place == "weight":
        head.weight.data[0, 0] = float("nan")
    model = torch.nn.Sequential(body, Root() if place == "outputs" else torch.nn.ReLU(), head)
    subject = Subject(model, "cross_entropy" if classes else "mse", train, test)
    with pytest.raises(NotFiniteError):
        subject.losses("test")
    report = examine(subject, hardest=2)
    assert (report.verdict.kind, report.verdict.tone) == ("not-finite", "bad")
    if place == "weight":
        assert "2.weight" in report.verdict.headline
    assert report.facts.test_error != report.facts.test_error
    assert all(card.result.value is None for card in report.cards)
    assert {card.result.reason for card in report.cards} == {"needs finite weights and outputs"}
    again = Report.from_json(report.to_json())
    assert again.to_json() == report.to_json()
    for suffix in (".html", ".md", ".txt"):
        text = again.save(tmp_path / f"report{suffix}").read_text(encoding="utf-8")
        assert report.verdict.headline.replace("'", "&#39;") in text or (
            report.verdict.headline in text.replace("\n", " ")
        )
    assert "—" in (tmp_path / "report.html").read_text(encoding="utf-8")
    chosen = examine(subject, measures=(), bounds=(), diagnoses=())
    assert chosen.verdict.headline == report.verdict.headline


class Root(torch.nn.Module):
    """Not a number for half of all inputs."""

    def forward(self, rows):
        return rows.sqrt()


def test_bad_data_are_said_at_once():
    subject = Subject(
        torch.nn.Linear(3, 2), "cross_entropy", data(), (torch.randn(5, 3), torch.full((5,), 7))
    )
    with pytest.raises(InputError, match="test labels must be from 0 to 1"):
        examine(subject)
    with pytest.raises(InputError, match="The model must accept a batch"):
        examine(Subject(torch.nn.Linear(4, 2), "cross_entropy", data()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delta": 1.5}, "must be a number above 0 and below 1"),
        ({"hardest": -1}, "hardest must be at least 0"),
    ],
)
def test_bad_arguments(subject, arguments, message):
    with pytest.raises(InputError, match=message):
        examine(subject, **arguments)


def test_something_else_than_a_subject():
    with pytest.raises(InputError, match="subject must be a Subject or a Fitted, got Linear"):
        examine(torch.nn.Linear(3, 2))


def test_the_subject_is_left_as_it_was(subject):
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    subject.model.train()
    examine(subject, progress=True)
    assert subject.model.training
    assert all(
        torch.equal(value, before[name]) for name, value in subject.model.state_dict().items()
    )


def test_the_same_twice(subject):
    first, second = examine(subject), examine(subject)
    assert [card.result.value for card in first.cards] == [
        card.result.value for card in second.cards
    ]
    assert [card.result.charts for card in first.cards] == [
        card.result.charts for card in second.cards
    ]
