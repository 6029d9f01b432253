"""The pieces that tell where labels vary: plain, and the same after a trip through JSON."""

from __future__ import annotations

import dataclasses

MANY_SUSPECTS = 0.15  # more wrong labels than this are rarer than features that say little


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heavy:
    """One sample around which labels vary, or whose label nearly no neighbour carries (``suspect``).

    ``around`` says in words which labels its neighbours carry, ``agreement`` which share of them carries its own
    (``None`` unless labels are classes). It is shown as a picture, a text or numbers; ``prediction`` is the model's.
    """

    index: int
    weight: float
    target: str
    around: str
    agreement: float | None = None
    suspect: bool = False
    prediction: str = ""
    picture: str = ""
    text: str = ""
    values: tuple[str, ...] = ()
    more: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plane:
    """The local variance over the plane of two features, with samples on top.

    ``variance`` has a row for each of ``y``. ``margins`` are tables of the same shape that are zero on the model's
    decision boundary: one for two classes, else one a class. ``targets`` number the ``labels``, or are values where
    there are none.
    """

    names: tuple[str, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    variance: tuple[tuple[float, ...], ...]
    points: tuple[tuple[float, ...], ...]
    targets: tuple[float, ...]
    weights: tuple[float, ...]
    labels: tuple[str, ...] = ()
    margins: tuple[tuple[tuple[float, ...], ...], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variance:
    """Where labels vary: the weights that variance weighting would give, and the samples to look at.

    ``samples`` of ``of`` were weighed, by ``k`` neighbours sought in ``features``. ``edges`` and ``counts`` are the
    histogram of the weights, ``marked`` the suspects among them. ``classes`` says that labels are classes, not values.
    ``reason`` says why there is nothing.
    """

    samples: int = 0
    of: int = 0
    k: int = 0
    features: str = ""
    largest: float = 0.0
    mean: float = 0.0
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    marked: tuple[int, ...] = ()
    classes: bool = True
    suspects: int = 0
    heaviest: tuple[Heavy, ...] = ()
    doubtful: tuple[Heavy, ...] = ()
    columns: tuple[str, ...] = ()
    plane: Plane | None = None
    reason: str = ""

    @property
    def defined(self) -> bool:
        """Whether there is something to show."""
        return not self.reason

    @property
    def vague(self) -> bool:
        """Whether so many are suspected that the neighbours cannot know better than the labels."""
        return self.suspects > MANY_SUSPECTS * self.samples

    @property
    def suspected(self) -> str:
        """What is odd about a suspect's label."""
        if self.classes:
            return "a label that at most a tenth of the neighbours carry"
        return "a value that lies more than five standard deviations from those around"
