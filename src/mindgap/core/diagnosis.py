"""Diagnosis: one thing that can be wrong with a subject, and the test that finds it."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, get_args

from mindgap.core.chart import Chart
from mindgap.core.measure import Need, missing_part
from mindgap.core.plain import fields_of, plain, unworded
from mindgap.core.purity import preserved
from mindgap.core.recipe import Recipe
from mindgap.core.remedy import Symptom
from mindgap.core.result import Interval, Result
from mindgap.core.spec import Spec
from mindgap.core.subject import Subject, Which

Severity = Literal["wrong", "suspect", "note"]
Kind = Literal["image", "table", "sequence"]
Results = Mapping[str, Result]

# From what voids everything that follows to what remains when nothing else explains the numbers.
# Of two findings of equal severity the one of the earlier stage comes first.
Stage = Literal[
    "values",  # weights and outputs are no numbers
    "evaluation",  # the model that is evaluated is not the one that was trained
    "collapse",  # the model predicts next to nothing
    "test labels",  # the test targets do not belong to the test inputs
    "split",  # test samples come from elsewhere
    "leak",  # test samples come from the training data
    "noisy labels",  # some targets are wrong
    "balance",  # classes or targets are spread differently
    "training run",  # what the training curves show
    "fit",  # the model has not learned its training data
    "test size",  # too little or too often used test data
    "confidence",  # the probabilities are wrong on the training data already
    "over-fitting",  # what is left if nothing above explains the gap
    "robustness",  # the predictions are right, but on the edge
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice:
    """Something to do.

    Args:
        text: What to do, in a sentence.
        remedy: The name of a remedy in the catalog, or empty.
        code: Lines of Python to paste, or empty.
    """

    text: str
    remedy: str = ""
    code: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """A number that supports a finding.

    Args:
        name: What the number is, in a few words.
        value: The number.
        interval: Its confidence interval, where it has one.
        percent: Whether it is a share, to be shown as percent.
    """

    name: str
    value: float
    interval: Interval | None = None
    percent: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suspects:
    """Samples to look at, all of them, the worst first.

    Args:
        split: ``"train"`` or ``"test"``.
        index: Their places in the split.
        columns: What is known about each, by name, as columns of a table.

    >>> found = Suspects(split="train", index=(8, 3), columns={"score": (0.9, 0.4)})
    >>> dict(zip(found.index, found.columns["score"], strict=True))
    {8: 0.9, 3: 0.4}
    """

    split: Which
    index: Sequence[int]
    columns: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What is wrong, in words, with the evidence.

    Args:
        name: The name of the diagnosis.
        sentence: What is wrong, as one sentence that can be a headline.
        severity: ``"wrong"`` explains the failure or voids a claim; ``"suspect"`` is worth a look;
            ``"note"`` is good to know.
        p_value: How likely chance alone gives such evidence on healthy data; None for an exact
            check. ``diagnose`` replaces it by the p-value corrected for all tests (Holm).
        evidence: The numbers that it rests on.
        sentences: Further sentences, most important first.
        advice: What to do, the fix of the cause first.
        charts: Figures.
        suspects: Samples to look at.
        symptom: What remedies may treat.
        explained_by: The name of a finding that explains this one, or empty. A diagnosis may propose
            one, which counts if it is found.
        voids: Whether a guarantee from the test data does not hold.

    >>> finding = Finding(name="leak", sentence="Half of the test data is known.", severity="wrong")
    >>> Finding.from_dict(finding.to_dict()) == finding
    True
    """

    name: str
    sentence: str
    severity: Severity
    p_value: float | None = None
    evidence: tuple[Evidence, ...] = ()
    sentences: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    charts: tuple[Chart, ...] = ()
    suspects: Suspects | None = None
    symptom: Symptom | None = None
    explained_by: str = ""
    voids: bool = False

    @property
    def confidence(self) -> float:
        """One minus the p-value; one for an exact check."""
        return 1.0 if self.p_value is None else 1 - min(self.p_value, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that JSON can hold."""
        found: dict[str, Any] = plain(fields_of(self), fallback=repr)
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read back what :meth:`to_dict` wrote."""
        fields: dict[str, Any] = {name: unworded(value) for name, value in data.items()}
        fields["evidence"] = tuple(map(_evidence, fields.get("evidence", ())))
        fields["advice"] = tuple(Advice(**row) for row in fields.get("advice", ()))
        fields["sentences"] = tuple(fields.get("sentences", ()))
        fields["charts"] = tuple(Chart.from_dict(chart) for chart in fields.get("charts", ()))
        if fields.get("suspects") is not None:
            fields["suspects"] = Suspects(**fields["suspects"])
        return cls(**fields)


def _evidence(row: Mapping[str, Any]) -> Evidence:
    interval = row.get("interval")
    return Evidence(**{**row, "interval": None if interval is None else Interval(**interval)})


class Diagnosis(Spec, abc.ABC, abstract=True):
    """One thing that can be wrong with a model, its data or its training.

    ``stage`` places a finding among others of the same severity. ``explains`` names diagnoses whose
    findings follow from this one: a shift of the inputs explains a gap, so "over-fitting" is then
    listed as explained. ``needs`` says what the subject must have, ``symptom`` what remedies may
    treat. ``exact`` is true for a check without a p-value, such as that of two equal samples.
    ``voids`` is true where a guarantee from the test data does not hold if the problem is there.

    ``plant`` puts the problem into a healthy recipe, for tests and for teaching. ``kinds`` are the
    kinds of inputs for which that is possible.
    """

    family: ClassVar[str] = "diagnosis"
    stage: ClassVar[Stage]
    symptom: ClassVar[Symptom | None] = None
    explains: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[frozenset[Need]] = frozenset()
    exact: ClassVar[bool] = False
    voids: ClassVar[bool] = False
    kinds: ClassVar[tuple[Kind, ...]] = get_args(Kind)

    @abc.abstractmethod
    def look(self, subject: Subject, results: Results) -> Finding | None:
        """Test for the problem; the caller guards the subject.

        Args:
            subject: What is examined.
            results: What measures and bounds gave, by name; may be empty.

        Returns:
            What was found, or None if the subject does not have the problem.
        """

    @classmethod
    @abc.abstractmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train a model that has the problem.

        Args:
            recipe: A recipe without problems, whose data are tuples of tensors.
            seed: Seed of the training and of the plant.
            strength: One plants the usual amount; less makes it harder to find.
        """

    def __call__(self, subject: Subject, results: Results | None = None) -> Finding | None:
        """Look for the problem and leave the subject as it was."""
        if self.missing(subject):
            return None
        with preserved(subject.model):
            return self.look(subject, results or {})

    def missing(self, subject: Subject) -> str:
        """Say why the subject cannot be tested, or an empty string."""
        return missing_part(self.needs, subject)

    def listing(self, name: str = "suspects") -> str:
        """Return lines of code that list the places of the suspects again.

        Args:
            name: What the lines call them.
        """
        return (
            f'found = mindgap.diagnose(subject, diagnoses=["{self.name}"])\n'
            f'{name} = found["{self.name}"].suspects.index'
        )

    def finding(self, sentence: str, severity: Severity = "wrong", **more: Any) -> Finding:
        """Make a finding of this diagnosis."""
        return Finding(
            name=self.name,
            sentence=sentence,
            severity=severity,
            **{"symptom": self.symptom, "voids": self.voids and severity != "note", **more},
        )
