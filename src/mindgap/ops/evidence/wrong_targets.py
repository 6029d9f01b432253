"""A finding of wrong targets in one split: its sentences, its list of suspects and its charts."""

import torch
from torch import Tensor

from mindgap.core import Advice, Diagnosis, Evidence, Finding, Histogram, Subject, Suspects, Which
from mindgap.ops.evidence.contradicted import Contradicted, contradicted
from mindgap.ops.evidence.label_noise import LEVEL, TESTS, Noise, listed_pair, noise
from mindgap.ops.evidence.reference import Reference, reference
from mindgap.ops.evidence.rows import rows
from mindgap.ops.evidence.shown import gallery
from mindgap.ops.samples import class_name, in_words

RATE = 0.015  # share of wrong targets below which the fit hardly suffers
PAIR_RATE = 0.1  # share of a class; smaller shares of a class matter as little
MOST = 0.5  # share of wrong targets above which a list of them would be of nearly all samples
NAMES = {"train": "training", "test": "test"}


def wrong_targets(
    diagnosis: Diagnosis, subject: Subject, which: Which, learned: Which = "train"
) -> Finding | None:
    """Look for wrong targets in one split, and list the suspects.

    Args:
        diagnosis: In whose name the finding is made.
        subject: A classification or regression with test data.
        which: The split whose targets are doubted.
        learned: The split from which the reference predictor learns.
    """
    found, marks = noise(subject, which, learned), contradicted(subject, learned)
    tests = TESTS if marks.classes else 1
    tests *= 1 if learned == "train" else 2  # it comes second
    whole = found.rate >= RATE and tests * found.p_value < LEVEL
    pair = found.pair_rate >= PAIR_RATE and tests * found.pair_p_value < LEVEL
    if not (whole or pair):
        return None
    broad = whole and (not pair or found.p_value <= found.pair_p_value)
    p_value = tests * (found.p_value if broad else found.pair_p_value)
    listed, right = found.listed[: 0 if found.rate > MOST else None], found.right
    if not broad:
        listed, right = listed_pair(marks, which, found.pair)
    suspects = _suspects(subject, reference(subject, learned), marks, which, listed)
    return diagnosis.finding(
        _headline(subject, found, which, broad),
        p_value=p_value,
        evidence=_evidence(found, len(listed), right, broad),
        sentences=_sentences(subject, which, len(listed), right),
        advice=(_advice(diagnosis, which, len(listed)),),
        charts=_charts(subject, marks, which, suspects),
        suspects=suspects,
    )


def _word(subject: Subject) -> str:
    return "labels" if subject.task == "classification" else "targets"


def _headline(subject: Subject, found: Noise, which: Which, broad: bool) -> str:
    split = NAMES[which]
    if broad:
        ends = f"{100 * found.interval.low:.0f} % to {100 * found.interval.high:.0f} %"
        return f"About {100 * found.rate:.0f} % of the {split} {_word(subject)} are wrong ({ends})."
    predicted, given = (
        f"class {class_name(subject.classes, k)!r}" if k >= 0 else "another class"
        for k in found.pair
    )
    share = f"About {100 * found.pair_rate:.0f} % of the {split} samples"
    if found.pair[0] < 0:
        return f"{share} labeled {given} are wrong."
    return f"{share} that look like {predicted} are labeled {given}."


def _evidence(found: Noise, listed: int, right: float, broad: bool) -> tuple[Evidence, ...]:
    share = Evidence(
        name="share of wrong targets", value=found.rate, interval=found.interval, percent=True
    )
    pair = Evidence(name="share of the class", value=found.pair_rate, percent=True)
    told = (
        Evidence(name="suspects listed", value=listed),
        Evidence(name="of them expected to be wrong", value=right, percent=True),
    )
    return (share if broad else pair, *(told if listed else ()))


def _sentences(subject: Subject, which: Which, listed: int, right: float) -> tuple[str, ...]:
    other = NAMES["test" if which == "train" else "train"]
    told = (
        f"The list names {listed:,} of them; about {100 * right:.0f} % of these are expected to be wrong.",
    )
    return (
        *(told if listed else ()),
        f"A predictor that has not seen them contradicts more of them than of the {other} "
        f"{_word(subject)}.",
        "Errors that both splits share are not counted.",
    )


def _advice(diagnosis: Diagnosis, which: Which, listed: int) -> Advice:
    split = NAMES[which]
    if not listed:
        return Advice(text=f"Check a sample of the {split} data by hand: how were they labeled?")
    return Advice(
        text=f"Check the {listed:,} listed {split} samples; correct them, or leave them out.",
        code=(
            diagnosis.listing() + "\n"
            f"keep = torch.ones(len({which}_targets), dtype=torch.bool)\n"
            "keep[list(suspects)] = False\n"
            f"{which}_inputs, {which}_targets = {which}_inputs[keep], {which}_targets[keep]"
        ),
    )


def _suspects(
    subject: Subject, known: Reference, marks: Contradicted, which: Which, listed: Tensor
) -> Suspects:
    places = marks.places[listed]
    targets = subject.targets(which).cpu()[places]
    at = torch.searchsorted(rows(subject, which).places, places)
    scores = known.scores(which)[at]
    suggested = scores.argmax(1) if marks.classes else scores
    return Suspects(
        split=which,
        index=places.tolist(),
        columns={
            "label" if marks.classes else "target": [in_words(subject, y) for y in targets],
            "suggested": [in_words(subject, y) for y in suggested],
            "score": [round(float(value), 4) for value in marks.doubt[listed]],
        },
    )


def _charts(
    subject: Subject, marks: Contradicted, which: Which, suspects: Suspects
) -> tuple[Histogram | object, ...]:
    histogram = Histogram.of(
        {"training": marks.doubt[marks.train], "test": marks.doubt[~marks.train]},
        shares=True,
        bins=15,
        y_scale="log",  # most are not contradicted at all
        title=f"How strongly the {_word(subject)} are contradicted",
        x_label="distance of the given target from the reference prediction",
        y_label="share of samples",
    )
    if not suspects.index:
        return (histogram,)
    columns = {name: list(map(str, words)) for name, words in suspects.columns.items()}
    shown = gallery(
        subject,
        which,
        torch.tensor(suspects.index),
        columns,
        title=f"{NAMES[which].capitalize()} samples whose {_word(subject)[:-1]} is doubtful",
        caption="The worst first. Suggested is what the reference predictor says.",
    )
    return histogram, shown
