import dataclasses

import pytest
import torch

from mindgap import examine
from mindgap.core import Advice, Bar, Evidence, Finding, Gallery, Interval, Sample, Suspects
from mindgap.core.recipe import Recipe
from mindgap.core.subject import Subject
from mindgap.data import digits
from mindgap.diagnoses.diagnose import Checked
from mindgap.nets.mlp import MLP
from mindgap.report.verdict.verdict import judge
from mindgap.training.fit import fit

NASTY = "a <b>bold</b> </script><script>alert(1)</script> & 'name'"


MEASURES = [
    "gap",
    "hardest-samples",
    "local-label-variance",
    "margin",
    "parameter-norm",
    "training-loss",
    "worst-class-error",
]


@pytest.fixture(scope="session")
def subject():
    """Three dozen epochs on a few digits: fitted well, with a real gap and all curves."""
    data = digits().subset(200)
    recipe = Recipe(
        model=lambda: MLP(widths=(64, 32, 10)),
        train=data.train,
        test=data.test,
        epochs=25,
        learning_rate=1e-2,
        classes=data.classes,
        name=NASTY,
    )
    return fit(recipe).subject()


@pytest.fixture(scope="session")
def report(subject):
    return examine(subject, measures=MEASURES, diagnoses=["not-finite"], hardest=6)


LONG = (
    "keep = [k for k in range(len(targets)) if k not in suspects]  # " + "and so on, " * 20 + "end"
)


@pytest.fixture(scope="session")
def found(report):
    """The same report with findings of every kind."""
    labels = Finding(
        name="wrong-labels",
        sentence=f"A tenth of the labels look wrong in {NASTY}.",
        severity="wrong",
        p_value=1e-9,
        evidence=(
            Evidence(
                name=f"share of wrong labels in {NASTY}",
                value=0.1,
                interval=Interval(low=0.08, high=0.12),
                percent=True,
            ),
        ),
        sentences=("An independent predictor disagrees with them.",),
        advice=(
            Advice(text="Look at the samples, and drop what is wrong.", code=f"# {NASTY}\n{LONG}"),
            Advice(text="Weighs samples.", remedy="variance-weighting"),
        ),
        charts=(
            Bar.of({"cat": 0.1, "dog": 0.2}, title="Wrong labels by class", percent=True),
            Gallery(title="Most suspicious", samples=[Sample(facts={"no.": "3"})]),
        ),
        suspects=Suspects(split="train", index=list(range(30)), columns={"label": [NASTY] * 30}),
    )
    shift = Finding(
        name="input-shift",
        sentence="A few test samples come from elsewhere.",
        severity="suspect",
        p_value=0.004,
        advice=(Advice(text="Check their source."),),
        suspects=Suspects(split="test", index=[4, 2]),
    )
    dead = Finding(name="dead-units", sentence="Three units never fire.", severity="note")
    gap = Finding(
        name="over-fitting",
        sentence="The gap is large.",
        severity="wrong",
        explained_by="wrong-labels",
    )
    findings = labels, shift, dead, gap
    checked = (
        *(Checked(name=one.name, summary="Look.", outcome="found") for one in findings),
        Checked(name="not-finite", summary="Look for NaN.", outcome="nothing", seconds=0.01),
        Checked(
            name="late-over-fitting",
            summary="Look at the curves.",
            outcome="not applicable",
            reason="needs the training history",
        ),
    )
    return dataclasses.replace(
        report,
        findings=findings,
        checked=checked,
        verdict=judge(report.facts, report.gap, report.cards, findings, checked),
    )


@pytest.fixture(scope="session")
def regression():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 20, generator=generator)
    targets = inputs[:, :1] + 0.1 * torch.randn(60, 1, generator=generator)
    model = torch.nn.Linear(20, 1)
    with torch.no_grad():
        model.weight.zero_()[0, 0] = 1.0
        model.bias.zero_()
    return Subject(
        model, "mse", (inputs[:40], targets[:40]), (inputs[40:], targets[40:]), name="line"
    )
