"""Test samples that the model was trained on."""

import torch

from mindgap.core import Estimate, Gallery, Measure, Sample, Subject, option
from mindgap.ops.overlap import shared_samples
from mindgap.ops.samples import as_shown, in_words, shown_inputs


class TrainTestOverlap(Measure):
    r"""Share of the test samples that also appear, with the same target, in the training data.

    Formula: $\frac{1}{n'} \left| \left\{ i : (x'_i, y'_i) \in \{(x_1, y_1), \dots, (x_n, y_n)\}
    \right\} \right|$

    Reading: Above zero, the test data do not judge the model fairly: the gap is measured too small.
    A share of some thousandths may be natural duplicates. A larger one means that the split leaks,
    and no bound on held-out data holds.

    Assumes: Equal means equal in every number, in the coarser precision of the two. The term
    ``near_copies`` is the share of further samples that differ from a training sample by at most a
    thousandth of the standard deviations, or in one of at least 16 features. A crop of the same
    image is not found. In few dimensions samples are close by chance.

    >>> x, y = torch.arange(8.0)[:, None], torch.arange(8) % 2
    >>> subject = Subject(torch.nn.Linear(1, 2), "cross_entropy", (x[:6], y[:6]), (x[4:], y[4:]))
    >>> result = TrainTestOverlap()(subject)
    >>> float(result), result.details["samples"]
    (0.5, [0, 1])
    """

    method = ("K2",)
    cites = ("barz2020cifar",)
    direction = "lower"
    needs = frozenset({"test"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )

    shown: int = option(24, help="samples to show", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Return the share and the places of the samples."""
        found = shared_samples(subject)
        places = found.equal.nonzero().flatten()
        return Estimate(
            value=found.share,
            terms={"count": len(places), "near_copies": found.near_share},
            details={"samples": places[: self.shown].tolist()},
            charts=(self._gallery(subject, places[: self.shown]),)
            if len(places) and self.shown
            else (),
        )

    def _gallery(self, subject: Subject, places: torch.Tensor) -> Gallery:
        assert subject.test is not None
        shown = as_shown(shown_inputs(subject.test.take(places).inputs))
        targets = subject.targets("test")
        return Gallery(
            title="Test samples that are training samples",
            caption="The number is the sample's place in the test data.",
            samples=[
                Sample(
                    image=told.pop("image", ""),
                    facts={"no.": str(k), "target": in_words(subject, targets[k]), **told},
                )
                for k, told in zip(places.tolist(), shown, strict=True)
            ],
        )
