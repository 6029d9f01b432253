"""Suspicious samples as a gallery: what they look like, and what is known about them."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from mindgap.core import Gallery, Sample, Subject, Which
from mindgap.ops.samples import as_shown, shown_inputs

SHOWN = 24  # samples that a reader looks through


def gallery(
    subject: Subject,
    which: Which,
    places: Tensor,
    facts: Mapping[str, Sequence[str]],
    *,
    title: str,
    caption: str = "",
) -> Gallery:
    """Show the first samples of a list.

    Args:
        subject: What is examined.
        which: The split.
        places: The places of the samples in the split, the worst first.
        facts: Columns of words, one entry per place.
        title: What the samples have in common.
        caption: What the facts mean.

    >>> import torch
    >>> data = (torch.eye(3), torch.tensor([0, 1, 0]))
    >>> subject = Subject(torch.nn.Linear(3, 2), "cross_entropy", data)
    >>> print(gallery(subject, "train", torch.tensor([2]), {"label": ["0"]}, title="Look"))
    Look
      no. 2, label 0, inputs 0 · 0 · 1
    """
    places = places[:SHOWN]
    shown = as_shown(shown_inputs(subject.split(which).take(places).inputs))
    samples = []
    for row, (place, told) in enumerate(zip(places.tolist(), shown, strict=True)):
        known = {name: words[row] for name, words in facts.items()}
        image = told.pop("image", "")
        samples.append(Sample(image=image, facts={"no.": str(place), **known, **told}))
    return Gallery(title=title, caption=caption, samples=samples)
