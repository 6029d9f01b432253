"""Test inputs that do not look like the training inputs."""

import dataclasses
import math

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Bar,
    Chart,
    Diagnosis,
    Evidence,
    Finding,
    Gallery,
    Histogram,
    Recipe,
    Results,
    Sample,
    Subject,
    Suspects,
    hypergeometric_tail,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.changed_inputs import (
    MovedColumns,
    Turned,
    gain_of_putting_back,
    moved_columns,
    turned,
)
from mindgap.ops.evidence.domain import FAMILIAR, DomainTest, domain_test
from mindgap.ops.evidence.inputs import input_map, is_single
from mindgap.ops.evidence.passes import unit
from mindgap.ops.evidence.rows import rows
from mindgap.ops.samples import as_shown, in_words, shown_inputs
from mindgap.training.fit import fit

# Of 530 random splits of eleven real and made data sets (10,000 + 200 to 500 + 5,000 samples) the
# lowest p-value was 0.004; what is real comes far below.
LEVEL = 1e-3
LEAST = 0.01  # share of foreign test samples that can matter at all
GAP = 0.05  # between test and training error, where nearly all test samples look foreign
MOSTLY = 0.5  # share beyond which too few familiar samples are left to compare with
# Of the error rate, or of the best constant's loss, that foreign samples cost. MNIST's official test
# set is foreign by up to 18 %, and its foreign samples cost below 0.0006.
HARM = 0.005
_UNIT, _IN_UNITS = " of the best constant's loss", " (in units of the best constant's loss)"
SHOWN = 12  # samples and columns to show


class InputShift(Diagnosis):
    r"""Look for test samples that do not look like the training samples.

    Formula: $\mathrm{TV} \ge \max_q \; P_{test}(s > t_q) - P_{train}(s > t_q) - 3.4 \, \sigma_q$

    Reading: A classifier that tells test from training inputs scores samples that it was not fitted
    on. If more test samples than chance allows are among the highest scores, some of them are
    foreign. The share is a lower bound. A shift that costs no accuracy is a note. Images that were
    mirrored or turned are named if undoing it gains half of the gap.

    Assumes: Training and test samples are independent of each other. Classes, or ranges of targets,
    are compared in equal shares, so that other shares of the classes are no shift.

    >>> x = torch.randn(1200, 3, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > 0).long()
    >>> x[1000:] += 4 * (1 - 2 * y[1000:, None])
    >>> net = torch.nn.Linear(3, 2)
    >>> with torch.no_grad():
    ...     _ = net.weight.copy_(torch.tensor([[-1.0, 0, 0], [1, 0, 0]])), net.bias.zero_()
    >>> finding = InputShift()(
    ...     Subject(net, "cross_entropy", (x[:600], y[:600]), (x[600:], y[600:]))
    ... )
    >>> print(finding.sentence)
    At least 21 % of the test samples do not look like training samples.
    """

    stage = "split"
    symptom = "shifted inputs"
    needs = frozenset({"test"})
    cites = ("lopezpaz2017revisiting", "rabanser2019failing")
    explains = frozenset(
        {
            "ignored-class",
            "lagged-test-labels",
            "late-over-fitting",
            "noise-sensitivity",
            "over-confidence",
            "over-fitting",
            "permuted-test-classes",
            "rare-class",
            "shuffled-test-labels",
            "under-confidence",
            "wrong-labels",  # contradictions are compared with those of the test data
            "wrong-test-labels",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Test whether a classifier can tell the splits apart, and what the foreign samples cost."""
        found = domain_test(subject)
        if found is None or found.p_value > LEVEL:
            return None
        # Where test labels are wrong, equal shares of the given labels are not equal shares of
        # the true ones. What is there must show without them, too.
        plain = domain_test(subject, matched=False)
        p_value = max(found.p_value, 1.0 if plain is None else plain.p_value)
        if p_value > LEVEL:
            return None
        cost, way = _cost(subject, found), turned(subject)
        severity: Severity = "wrong" if cost.harmful else "note"
        return self.finding(
            _headline(found.share),
            severity,
            p_value=p_value,
            evidence=_evidence(found, cost),
            sentences=(*_undone(way), _told(cost), *_what(subject, found)),
            advice=_advice(self, way),
            charts=(*_where(subject, found), _scores(found), _gallery(subject, found)),
            suspects=_suspects(subject, found),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Invert half of the test images, or add noise to half of the other test samples."""
        random = torch.Generator().manual_seed(seed)
        inputs, targets = recipe.test
        chosen = torch.rand(len(inputs), generator=random) < 0.5 * strength
        changed = inputs.clone()
        if inputs.ndim == 4:
            changed[chosen] = inputs.amax() + inputs.amin() - inputs[chosen]
        else:
            noise = torch.randn(inputs.shape, generator=random) * 1.5 * inputs.std(0)
            changed[chosen] += noise[chosen]
        return fit(recipe.replace(test=(changed, targets)), seed=seed).subject()


def _headline(share: float) -> str:
    percent = math.floor(100 * share)
    if percent < 1:
        return "The test samples differ a little from the training samples."
    return f"At least {percent} % of the test samples do not look like training samples."


@dataclasses.dataclass(frozen=True)
class _Cost:
    """What the shift costs the model.

    Args:
        name: ``"error"``, or ``"loss"`` in units of the best constant's.
        sides: Which samples are compared.
        values: Their mean errors or losses.
        harmful: Whether the shift matters to the model.
        gain: What is gained if moved columns are put back.
    """

    name: str
    sides: tuple[str, str]
    values: tuple[float, float]
    harmful: bool
    gain: float = 0.0


def _cost(subject: Subject, found: DomainTest) -> _Cost:
    cost = _of_most(subject) if found.share > MOSTLY else _of_some(subject, found)
    gain = 0.0 if cost.harmful else _gain(subject, found)
    return dataclasses.replace(cost, harmful=True, gain=gain) if gain > HARM else cost


def _of_most(subject: Subject) -> _Cost:
    """Compare the splits: hardly any test sample looks familiar."""
    test, train = (subject.mean_error(which) / unit(subject) for which in ("test", "train"))
    sides = "the test samples", "the training samples"
    return _Cost(_name(subject), sides, (test, train), test - train > GAP)


def _of_some(subject: Subject, found: DomainTest) -> _Cost:
    """Compare foreign and familiar test samples.

    Unusual samples are harder on healthy data, too. So only as many count as there are beyond the
    twentieth that looks unusual among the training samples.
    """
    places = rows(subject, "test").places[found.test]
    errors = subject.errors("test").detach().cpu()[places].double() / unit(subject)
    sides = "foreign-looking test samples", "familiar test samples"
    foreign, mean = found.foreign, float(errors.mean())
    if not 0 < int(foreign.sum()) < len(foreign):
        return _Cost(_name(subject), sides, (mean, mean), harmful=False)
    strange, known = errors[foreign], errors[~foreign]
    values = float(strange.mean()), float(known.mean())
    costs = _excess(found) * (values[0] - values[1])
    harmful = found.share > LEAST and costs > HARM and _larger(strange, known)
    return _Cost(_name(subject), sides, values, harmful)


def _name(subject: Subject) -> str:
    return "loss" if subject.task == "regression" else "error"


def _excess(found: DomainTest) -> float:
    return max(float(found.foreign.double().mean()) - (1 - FAMILIAR), 0.0)


def _gain(subject: Subject, found: DomainTest) -> float:
    """Return what the model gains from columns that are put back.

    Where all samples moved a little, none of them looks foreign.
    """
    if not rows(subject, "train").named:
        return 0.0
    return gain_of_putting_back(subject, found.train, found.test, _columns(subject, found).sure)


def _evidence(found: DomainTest, cost: _Cost) -> tuple[Evidence, ...]:
    percent = cost.name == "error"
    return (
        Evidence(
            name="foreign test samples, at least",
            value=math.floor(100 * found.share) / 100,  # never rounded up
            percent=True,
        ),
        Evidence(name="foreign test samples, estimated", value=_excess(found), percent=True),
        *(
            Evidence(name=f"{cost.name} on {side}", value=value, percent=percent)
            for side, value in zip(cost.sides, cost.values, strict=True)
        ),
        Evidence(name="AUC of telling the splits apart", value=found.auc),
    )


def _told(cost: _Cost) -> str:
    """Say what the shift costs."""
    rate = cost.name == "error"
    if cost.gain:
        return (
            f"The {cost.name} falls by {100 * cost.gain:.1f} %{'' if rate else _UNIT} if the changed "
            "columns get the mean and deviation of the training data again."
        )
    one, other = (f"{100 * value:.1f} %" if rate else f"{value:.3g}" for value in cost.values)
    end = "." if cost.harmful else ": the shift hardly matters to this model."
    return (
        f"The {cost.name} is {one} on {cost.sides[0]} and {other} on {cost.sides[1]}"
        f"{'' if rate else _IN_UNITS}{end}"
    )


def _undone(way: Turned | None) -> tuple[str, ...]:
    if way is None:
        return ()
    return (
        f"The test images are {way.words}. With this undone the error is {100 * way.after:.1f} % "
        f"instead of {100 * way.before:.1f} %.",
    )


def _larger(one: Tensor, other: Tensor) -> bool:
    """Tell by Fisher's exact test whether one group has more errors above the mean."""
    above = torch.cat([one, other]) > torch.cat([one, other]).mean()
    hits, drawn = int(above[: len(one)].sum()), len(one)
    return hypergeometric_tail(hits, drawn, int(above.sum()), len(above)) < 1e-3


def _what(subject: Subject, found: DomainTest) -> tuple[str, ...]:
    """Say which columns moved, or that images look inverted."""
    train, test = rows(subject, "train"), rows(subject, "test")
    if train.kind == "image" and is_single(train):
        own = train.values[found.train].mean(0)
        other = test.values[found.test[found.foreign]].mean(0)
        both = torch.stack([own, other]).double()
        alike = float(torch.corrcoef(both)[0, 1]) if min(both.std(1)) > 1e-9 else 0.0
        return ("The foreign images look inverted: dark and bright are swapped.",) * (alike < -0.5)
    if not train.named:
        return ()
    columns = _columns(subject, found)
    told = ", ".join(
        f"input {k} (mean {float(columns.moved[k]):+.2f}, deviation × {float(columns.wider[k]):.2f})"
        for k in columns.sure[:3]
    )
    return (f"Changed most, in standard deviations: {told}.",) if columns.sure else ()


def _columns(subject: Subject, found: DomainTest) -> MovedColumns:
    train, test = rows(subject, "train").values, rows(subject, "test").values
    return subject.cached(
        "moved columns", lambda: moved_columns(train[found.train], test[found.test])
    )


def _where(subject: Subject, found: DomainTest) -> tuple[Chart, ...]:
    """Show which inputs moved: a map of an image or a sequence, bars of a table."""
    train, test = rows(subject, "train"), rows(subject, "test")
    if train.named:
        distances = _columns(subject, found).distances
        bars = {f"input {k}": float(value) for k, value in enumerate(distances)}
        return (
            Bar.of(
                bars,
                most=SHOWN,
                title="How much the distribution of every input changed",
                y_label="distance of Kolmogorov and Smirnov",
            ),
        )
    if not is_single(train) or train.kind not in ("image", "sequence"):
        return ()
    own = train.values[found.train].mean(0)
    other = test.values[found.test[found.foreign]].mean(0)
    apart = (other - own) / train.values.std().clamp_min(1e-12)
    return (
        input_map(
            train,
            apart,
            title="Foreign-looking test samples minus training samples",
            z_label="difference of the means, in standard deviations",
            diverging=True,
        ),
    )


def _scores(found: DomainTest) -> Histogram:
    return Histogram.of(
        {"training": found.train_scores, "test": found.test_scores},
        title="How foreign samples look to a classifier that tells the splits apart",
        x_label="score",
        shares=True,
        caption="The score is in standard deviations of the training samples.",
    )


def _order(subject: Subject, found: DomainTest) -> tuple[Tensor, Tensor]:
    """Return places and scores of the foreign-looking test samples, the worst first."""
    chosen = found.foreign.nonzero().flatten()
    chosen = chosen[found.test_scores[chosen].argsort(descending=True)]
    return rows(subject, "test").places[found.test[chosen]], found.test_scores[chosen]


def _gallery(subject: Subject, found: DomainTest) -> Gallery:
    places, scores = (part[:SHOWN] for part in _order(subject, found))
    targets = subject.targets("test").cpu()
    shown = as_shown(shown_inputs(subject.split("test").take(places).inputs))
    return Gallery(
        title="The test samples that look most foreign",
        caption="The number is the sample's place in the test data.",
        samples=[
            Sample(
                image=told.pop("image", ""),
                facts={
                    "no.": str(place),
                    "target": in_words(subject, targets[place]),
                    "score": f"{score:.1f}",
                    **told,
                },
            )
            for place, score, told in zip(places.tolist(), scores.tolist(), shown, strict=True)
        ],
    )


def _suspects(subject: Subject, found: DomainTest) -> Suspects:
    places, scores = _order(subject, found)
    targets, answers = subject.targets("test").cpu(), subject.predictions("test").cpu()
    return Suspects(
        split="test",
        index=places.tolist(),
        columns={
            "score": [round(score, 2) for score in scores.tolist()],
            "target": [in_words(subject, targets[k]) for k in places.tolist()],
            "prediction": [in_words(subject, answers[k]) for k in places.tolist()],
        },
    )


def _advice(diagnosis: Diagnosis, way: Turned | None) -> tuple[Advice, ...]:
    undo = () if way is None else (Advice(text="Undo it:", code=f"test_inputs = {way.code}"),)
    return (
        *undo,
        Advice(
            text="Prepare test inputs with the same code and the same numbers as training inputs, "
            "and look at the samples that look most foreign."
        ),
        Advice(
            text="If such samples are to be expected in use, add some of them to the training "
            "data. If not, judge the model without them:",
            code=f"{diagnosis.listing('foreign')}\n"
            "familiar = [k for k in range(len(test_targets)) if k not in set(foreign)]",
        ),
    )
