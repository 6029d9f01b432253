import dataclasses

import pytest
import torch

from mindgap import examine
from mindgap.core.errors import InputError, UnknownNameError
from mindgap.core.measure import Measure
from mindgap.core.recipe import Recipe
from mindgap.core.registry import catalog
from mindgap.core.spec import REGISTRY
from mindgap.core.subject import Subject
from mindgap.measures import Gap, Margin
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
    """Measures that exist for one test only."""
    kept = dict(REGISTRY["measure"])
    yield
    REGISTRY["measure"].clear()
    REGISTRY["measure"].update(kept)


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

    report = examine(subject, measures=["gap", "long", "training-loss"], bounds=())
    assert report["gap"].value is not None
    assert (report["long"].reason, report["training-loss"].reason) == (
        "interrupted",
        "not reached: interrupted",
    )


def test_names_instances_and_settings(subject):
    report = examine(
        subject, measures=[Margin(quantile=0.5), "gap"], bounds=["binomial_tail"], delta=0.1
    )
    margin, gap, tail = (card.result for card in report.cards)
    assert margin.provenance["parameters"] == {"quantile": 0.5}
    assert gap.interval.level == 0.9
    assert tail.provenance["parameters"]["delta"] == 0.1
    assert report.provenance["settings"]["delta"] == 0.1
    assert "90" in report.verdict.sentences[0]


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


def test_what_fit_returns_can_be_examined_with_why_it_stopped():
    recipe = Recipe(
        model=lambda: torch.nn.Linear(3, 2), train=data(), test=data(20, seed=1), epochs=2
    )
    fitted = dataclasses.replace(
        fit(recipe), stopped="diverged: the loss became nan in epoch 3, step 7"
    )
    report = examine(fitted)
    assert report.facts.initial
    assert len(report.curves) == 2
    assert report.verdict.kind == "diverged"
    assert "the loss became nan in epoch 3" in report.verdict.sentences[0]


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


class Noisy(torch.nn.Linear):
    def forward(self, rows):
        return super().forward(rows) + torch.rand(len(rows), self.out_features)


class Centered(torch.nn.Linear):
    def forward(self, rows):
        return super().forward(rows - rows.mean(0))


@pytest.mark.parametrize(
    ("model", "told"),
    [(Noisy, "asked again"), (Centered, "other samples of its batch"), (torch.nn.Linear, "")],
)
def test_models_that_are_no_function_of_the_sample_are_told(model, told):
    subject = Subject(model(3, 2), "cross_entropy", data(40), data(20, seed=1))
    report = examine(subject, measures=["gap"], bounds=())
    warned = [line for line in report.verdict.sentences if "not a function of the sample" in line]
    assert len(warned) == bool(told)
    assert told in " ".join(warned)
    assert told in str(report).replace("\n    ", " ")
