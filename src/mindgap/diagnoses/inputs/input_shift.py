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
    holm,
    hypergeometric_tail,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.domain import FAMILIAR, DomainTest, domain_test
from mindgap.ops.evidence.inputs import input_map, is_single
from mindgap.ops.evidence.passes import unit
from mindgap.ops.evidence.rows import rows
from mindgap.ops.evidence.two_sample import kolmogorov
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
SHOWN = 12  # samples and columns to show


class InputShift(Diagnosis):
    r"""Look for test samples that do not look like the training samples.

    Formula: $\mathrm{TV} \ge \max_q \; P_{test}(s > t_q) - P_{train}(s > t_q) - 3.4 \, \sigma_q$

    Reading: A classifier that tells test from training inputs scores samples that it was not fitted
    on. If more test samples than chance allows are among the highest scores, some of them are
    foreign. The share is a lower bound. A shift that costs no accuracy is a note.

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
        foreign, familiar, harm, sure = _cost(subject, found)
        harmful = found.share > LEAST and harm > HARM and sure
        if found.share > MOSTLY:
            harmful = _gap(subject) > GAP
        severity: Severity = "wrong" if harmful else "note"
        excess = max(float(found.foreign.double().mean()) - (1 - FAMILIAR), 0.0)
        told = "error" if subject.task != "regression" else "loss"
        return self.finding(
            _headline(found.share),
            severity,
            p_value=p_value,
            evidence=(
                Evidence(name="foreign test samples, at least", value=found.share, percent=True),
                Evidence(name="foreign test samples, estimated", value=excess, percent=True),
                Evidence(name=f"{told} on foreign-looking samples", value=foreign),
                Evidence(name=f"{told} on familiar samples", value=familiar),
                Evidence(name="AUC of telling the splits apart", value=found.auc),
            ),
            sentences=(
                _costs(told, foreign, familiar, harmful),
                *_what(subject, found),
            ),
            advice=_advice(),
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


def _cost(subject: Subject, found: DomainTest) -> tuple[float, float, float, bool]:
    """Return errors on foreign and familiar samples, what the excess costs, and if it is sure.

    Unusual samples are harder on healthy data, too. So only as many count as there are beyond the
    twentieth that looks unusual among the training samples.
    """
    places = rows(subject, "test").places[found.test]
    errors = subject.errors("test").detach().cpu()[places].double() / unit(subject)
    foreign = found.foreign
    if not 0 < int(foreign.sum()) < len(foreign):
        return float(errors.mean()), float(errors.mean()), 0.0, True
    strange, known = errors[foreign], errors[~foreign]
    excess = max(float(foreign.double().mean()) - (1 - FAMILIAR), 0.0)
    difference = float(strange.mean() - known.mean())
    return float(strange.mean()), float(known.mean()), excess * difference, _larger(strange, known)


def _gap(subject: Subject) -> float:
    """Return how much worse the model is on test than on training data."""
    return (subject.mean_error("test") - subject.mean_error("train")) / unit(subject)


def _larger(one: Tensor, other: Tensor) -> bool:
    """Tell by Fisher's exact test whether one group has more errors above the mean."""
    above = torch.cat([one, other]) > torch.cat([one, other]).mean()
    hits, drawn = int(above[: len(one)].sum()), len(one)
    return hypergeometric_tail(hits, drawn, int(above.sum()), len(above)) < 1e-3


def _costs(told: str, foreign: float, familiar: float, harmful: bool) -> str:
    numbers = (
        (f"{foreign:.1%}", f"{familiar:.1%}")
        if told == "error"
        else (f"{foreign:.3g}", f"{familiar:.3g}")
    )
    unit_of = "" if told == "error" else " (in units of the best constant's loss)"
    end = "." if harmful else ": the shift hardly matters to this model."
    return (
        f"The {told}{unit_of} is {numbers[0]} on foreign-looking test samples and {numbers[1]} on "
        f"familiar ones{end}"
    )


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
    sure = [k for k, p in enumerate(holm(columns.p_values.tolist())) if p < 0.01]
    sure.sort(key=lambda k: -float(columns.distances[k]))
    told = ", ".join(
        f"input {k} (mean {float(columns.moved[k]):+.2f}, deviation × {float(columns.wider[k]):.2f})"
        for k in sure[:3]
    )
    return (f"Changed most, in standard deviations: {told}.",) if sure else ()


@dataclasses.dataclass(frozen=True)
class _Columns:
    """How every column changed: its mean, its deviation, its distribution."""

    moved: Tensor
    wider: Tensor
    distances: Tensor
    p_values: Tensor


def _columns(subject: Subject, found: DomainTest) -> _Columns:
    train = rows(subject, "train").values[found.train]
    test = rows(subject, "test").values[found.test]
    spread = train.std(0)
    spread = torch.where(spread > 1e-12, spread, torch.ones_like(spread))
    moved = (test.mean(0) - train.mean(0)) / spread
    return _Columns(moved, test.std(0) / spread, *kolmogorov(train, test))


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


def _advice() -> tuple[Advice, ...]:
    return (
        Advice(
            text="Prepare test inputs with the same code and the same numbers as training inputs, "
            "and look at the samples that look most foreign."
        ),
        Advice(
            text="If such samples are to be expected in use, add some of them to the training "
            "data. If not, judge the model without them:",
            code="foreign = finding.suspects.index\n"
            "familiar = [k for k in range(len(test_targets)) if k not in set(foreign)]",
        ),
    )
