"""Test samples that the model was trained on."""

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Recipe,
    Results,
    Subject,
    Suspects,
    proportion_interval,
)
from mindgap.ops.evidence.rows import Rows, rows
from mindgap.ops.evidence.shown import gallery
from mindgap.ops.evidence.spoiled import some
from mindgap.ops.overlap import TOLERATED, Overlap, copied, shared_samples
from mindgap.ops.samples import in_words, sample_hashes
from mindgap.training.fit import fit

LEAK = 0.01  # share of the test data; some thousandths are natural duplicates in many data sets
WHOLE = 0.5  # of the rows that agree in a half; copies are 1, chance a small part
MAYBE = (
    "Training samples equal each other as often: rows, such as those of a rare class, were repeated "
    "before the split, or cases were recorded twice."
)
USUAL = 0.2  # share of the test data that a plant replaces


class LeakedSamples(Diagnosis):
    r"""Look for test samples that are, with their target, in the training data.

    Formula: $\frac{1}{n'} \left| \left\{ i : (x'_i, y'_i) \in \{(x_1, y_1), \dots, (x_n, y_n)\}
    \right\} \right|$

    Reading: The test error is too small, and no guarantee from held-out data holds. It is a note
    if fewer than a hundredth of the test samples leak. If training samples repeat each other as
    often and not in the way of copies, it is a note too. Above a tenth it is then a suspicion,
    unless single columns agree far more often than whole samples do.

    Assumes: Equal means equal in every number, in the coarser precision of the two. Discrete data
    coincide by chance: the training data show how often. Copies from before the split show in how
    many samples occur once, twice and three times.

    >>> x, y = torch.arange(80.0)[:, None], torch.arange(80) % 2
    >>> subject = Subject(
    ...     torch.nn.Linear(1, 2), "cross_entropy", (x[:60], y[:60]), (x[50:], y[50:])
    ... )
    >>> LeakedSamples()(subject).sentence
    '33 % of the test samples are also in the training data.'
    """

    method = ("K2",)
    cites = ("barz2020cifar", "kaufman2012leakage")
    stage = "leak"
    voids = True
    symptom = "leak"
    needs = frozenset({"test"})
    exact = True
    explains = frozenset({"near-copies", "wrong-labels", "under-confidence"})

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare the share of equal samples with that of repeated training samples."""
        found = shared_samples(subject)
        if not found.share or (found.share <= LEAK and not found.leaks_equal):
            return None
        before = not found.leaks_equal and copied(_hashes(subject))
        natural = not (found.leaks_equal or before)
        if natural and (found.share <= TOLERATED or not _as_wholes(rows(subject, "train"))):
            return self._natural(found)
        places = found.equal.nonzero().flatten()
        interval = proportion_interval(len(places), len(found.equal))
        copies = _copies(subject, places)
        targets = [in_words(subject, y) for y in subject.targets("test")[places]]
        return self.finding(
            f"{_share(found.share)} of the test samples are also in the training data.",
            severity="suspect" if natural else "wrong" if found.share > LEAK else "note",
            evidence=(
                Evidence(
                    name="test samples in the training data",
                    value=found.share,
                    interval=interval,
                    percent=True,
                ),
                Evidence(name="repeated training samples", value=found.repeated, percent=True),
            ),
            sentences=(
                "No guarantee from held-out data holds, because the model has seen them.",
                *(("The test data are the training data in another order.",) if found.same else ()),
                *(("Samples were copied before the data were split.",) if before else ()),
                *((MAYBE,) if natural else ()),
            ),
            advice=(
                Advice(
                    text="Remove these samples from the test data, and split before any copying.",
                    code=(
                        self.listing("leaked") + "\n"
                        "keep = torch.ones(len(test_targets), dtype=torch.bool)\n"
                        "keep[list(leaked)] = False\n"
                        "test_inputs, test_targets = test_inputs[keep], test_targets[keep]"
                    ),
                ),
            ),
            charts=(
                gallery(
                    subject,
                    "test",
                    places,
                    {"training no.": list(map(str, copies)), "target": targets},
                    title="Test samples that are training samples",
                ),
            ),
            suspects=Suspects(
                split="test",
                index=places.tolist(),
                columns={"training sample": copies, "target": targets},
            ),
        )

    def _natural(self, found: Overlap) -> Finding:
        return self.finding(
            f"{_share(found.share)} of the test samples equal training samples, as training "
            "samples equal each other.",
            severity="note",
            evidence=(
                Evidence(name="equal test samples", value=found.share, percent=True),
                Evidence(name="repeated training samples", value=found.repeated, percent=True),
            ),
            sentences=(
                "The data repeat by themselves: inputs are discrete, or cases were recorded twice.",
            ),
            advice=(Advice(text="Count cases that were recorded twice once, before the split."),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Replace a share of the test samples by training samples."""
        random = torch.Generator().manual_seed(seed)
        inputs, targets = (part.clone() for part in recipe.test)
        places = some(len(targets), USUAL * strength, random)
        known = torch.randperm(len(recipe.train[1]), generator=random)[: len(places)]
        places = places[: len(known)]
        inputs[places], targets[places] = recipe.train[0][known], recipe.train[1][known]
        return fit(recipe.replace(test=(inputs, targets)), seed=seed).subject()


def _as_wholes(found: Rows) -> bool:
    """Tell whether rows that agree in half of their columns agree in all, as copies do.

    Rows of few values agree by chance, and then far more often in a half than as a whole.
    """
    order = torch.randperm(found.values.shape[1], generator=torch.Generator().manual_seed(0))
    halves = order.chunk(2)
    if found.kind == "tokens" or len(halves) < 2:
        return False
    least = min(_pairs(found.values[:, half]) for half in halves)
    return _pairs(found.values) >= WHOLE * least


def _pairs(values: Tensor) -> float:
    """Count the pairs of equal rows."""
    counts = values.unique(dim=0, return_counts=True)[1].double()
    return float((counts * (counts - 1)).sum()) / 2


def _share(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.2f} %"


def _hashes(subject: Subject) -> Tensor:
    """The hashes of all training samples, then of all test samples."""
    train, test = subject.train, subject.split("test")
    return torch.cat([sample_hashes(train, like=test), sample_hashes(test, like=train)])


def _copies(subject: Subject, places: Tensor) -> list[int]:
    """Return the place of an equal training sample for every leaked one."""
    known, asked = _hashes(subject).split([len(subject.train), len(subject.split("test"))])
    ordered, order = known.sort()
    found: list[int] = order[torch.searchsorted(ordered, asked[places])].tolist()
    return found
