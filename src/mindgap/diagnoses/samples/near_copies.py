"""Test samples that are near copies of training samples."""

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Histogram,
    Recipe,
    Results,
    Subject,
    Suspects,
    Which,
    proportion_interval,
)
from mindgap.ops.evidence.copies.copy_counts import (
    EQUAL_TARGETS,
    TINY_CHANGES,
    CopyCount,
    copy_counts,
)
from mindgap.ops.evidence.copies.near_copies import CopySearch, Nearest
from mindgap.ops.evidence.rows import rows
from mindgap.ops.evidence.shown import gallery
from mindgap.ops.evidence.spoiled import some
from mindgap.ops.overlap import shared_samples
from mindgap.ops.samples import has_twin, in_words
from mindgap.training.fit import fit

QUERIES = 1_000  # samples of either split that the test looks at; the list looks at all
LEAST = 30  # samples per split below which nothing is said
LEVEL = 1e-3  # of a permutation test; correction for all diagnoses follows
EXCESS = 0.01  # share of the test samples beyond what is usual; less does not move a test error
USUAL, NOISE = 0.2, 0.1  # share that a plant replaces; its noise in standard deviations


class NearCopies(Diagnosis):
    r"""Look for test samples that are shifted, mirrored, cropped or noisy training samples.

    Formula: $r_i = d_1(x'_i) / \mathrm{median}(d_1, \dots, d_6)$, the distance to the nearest
    training sample over that to the six nearest; more test samples than training samples with a
    small r are copies

    Reading: The test error is too small, and no guarantee from held-out data holds. The training
    samples, among each other, show how many near neighbors are natural.

    Assumes: Images are compared in gray, without brightness and contrast, shifted by up to two
    pixels, mirrored and cropped; sequences shifted by up to two steps. In few dimensions copies
    with much noise cannot be told from neighbors, unless their targets are equal numbers.

    >>> random = torch.Generator().manual_seed(0)
    >>> x, y = torch.randn(400, 8, generator=random), torch.arange(400) % 2
    >>> copies = x[:20] + 0.02 * torch.randn(20, 8, generator=random)
    >>> test = torch.cat([copies, x[200:]]), torch.cat([y[:20], y[200:]])
    >>> subject = Subject(torch.nn.Linear(8, 2), "cross_entropy", (x[:200], y[:200]), test)
    >>> NearCopies()(subject).sentence
    '10 % of the test samples are near copies of training samples.'
    """

    method = ("K2",)
    cites = ("barz2020cifar", "kaufman2012leakage")
    stage = "leak"
    voids = True
    symptom = "leak"
    needs = frozenset({"test"})
    explains = frozenset({"wrong-labels", "wrong-test-labels", "under-confidence"})

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare the nearest training samples of test and of training samples."""
        alone: dict[Which, Tensor] = {
            "train": _alone(subject, "train"),
            "test": _alone(subject, "test"),
        }
        if min(map(len, alone.values())) < LEAST:
            return None
        search = CopySearch(subject)
        found = {which: search.nearest(which, _some(part)) for which, part in alone.items()}
        best = min(copy_counts(subject, found), key=lambda count: count.p_value)
        if best.p_value > LEVEL or best.share - best.base < max(EXCESS, best.base):
            return None
        whole = search.nearest("test", alone["test"])
        return self._found(subject, found, whole, best)

    def _found(
        self, subject: Subject, found: dict[Which, Nearest], whole: Nearest, best: CopyCount
    ) -> Finding:
        places, copies, ratio = _copies(subject, whole, best.level)
        targets = [in_words(subject, y) for y in subject.targets("test").cpu()[places]]
        interval = proportion_interval(best.hits, best.tried)
        return self.finding(
            f"{100 * best.share:.0f} % of the test samples are near copies of training samples.",
            p_value=best.p_value,
            evidence=(
                Evidence(
                    name="near copies among test samples",
                    value=best.share,
                    interval=interval,
                    percent=True,
                ),
                Evidence(name="the same among training samples", value=best.base, percent=True),
            ),
            sentences=(
                "No guarantee from held-out data holds, because the model has nearly seen them.",
                f"Of the training samples {100 * best.base:.1f} % have such a near neighbor.",
            ),
            advice=(
                Advice(
                    text="Remove the listed samples from the test data; split the originals before "
                    "they are augmented, cut or filmed.",
                    code=(
                        self.listing("copies") + "\n"
                        "keep = torch.ones(len(test_targets), dtype=torch.bool)\n"
                        "keep[list(copies)] = False\n"
                        "test_inputs, test_targets = test_inputs[keep], test_targets[keep]"
                    ),
                ),
            ),
            charts=(
                Histogram.of(
                    {"test": found["test"].ratio, "training": found["train"].ratio},
                    shares=True,
                    clip_low=False,
                    title="How near the nearest training sample is",
                    x_label="distance to the nearest over the usual distance",
                    y_label="share of samples",
                ),
                gallery(
                    subject,
                    "test",
                    places,
                    {"copy of no.": list(map(str, copies.tolist())), "target": targets},
                    title="Test samples that are near copies",
                    caption="The nearest first. The number is that of the training sample.",
                ),
            ),
            suspects=Suspects(
                split="test",
                index=places.tolist(),
                columns={
                    "training sample": copies.tolist(),
                    "ratio": [round(float(value), 4) for value in ratio],
                    "target": targets,
                },
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Replace a share of the test samples by training samples with noise."""
        random = torch.Generator().manual_seed(seed)
        inputs, targets = (part.clone() for part in recipe.test)
        source = recipe.train[0]
        places = some(len(targets), USUAL * strength, random)
        copied = torch.randperm(len(source), generator=random)[: len(places)]
        places = places[: len(copied)]
        # One scale for all pixels: a pixel that is always black must not stay black.
        spread = source.std(0) if source.ndim == 2 else source.std()
        noise = torch.randn(source[copied].shape, generator=random)
        inputs[places] = source[copied] + NOISE * spread * noise
        targets[places] = recipe.train[1][copied]
        return fit(recipe.replace(test=(inputs, targets)), seed=seed).subject()


def _alone(subject: Subject, which: Which) -> Tensor:
    """Rows without an equal training sample: equal ones are another finding."""
    return (~has_twin(subject, which)[rows(subject, which).places]).nonzero().flatten()


def _some(part: Tensor) -> Tensor:
    random = torch.Generator().manual_seed(3)
    return part[torch.randperm(len(part), generator=random)[:QUERIES].sort().values]


def _copies(subject: Subject, whole: Nearest, level: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return places in the test and training data, and ratios, the nearest first."""
    near, other = whole.ratio < level, whole.nearest
    at = rows(subject, "test").places[whole.rows]
    if level == EQUAL_TARGETS:
        near, other = whole.equals >= 0, whole.equals
    elif level == TINY_CHANGES:
        near = shared_samples(subject).near[at]
    order = whole.ratio[near].argsort()
    copies = rows(subject, "train").places[other[near][order]]
    return at[near][order], copies, whole.ratio[near][order]
