"""What measures of curvature share: the samples that they look at, and how they refuse."""

import torch
from torch import Tensor

from mindgap.core import InputError, Measure, Subject, Undefined, generator, option
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import check_deterministic, hessian_products
from mindgap.ops.curvature.spectrum import Eigenpairs, top_eigenpairs
from mindgap.ops.evidence.passes import affordable, limited, operations

MOST = 100  # products of one search for eigenvalues
WORK = 2**33  # operations of the forward passes of one product: of larger networks, fewer samples
FEWEST = 100  # samples that a search looks at, if passes through a network do not take very long
# Of larger networks a search may take twice the limit of other measures, and looks at fewer samples.
# Its products are kept in memory, two numbers per weight of each, and copied; with fewer it ends too
# early.
SEARCH, FEW, NUMBERS, FEWEST_PRODUCTS = 2.0, 32, 2**26, 20
PASSES = 4  # of a product: the graphs of some samples are kept


class CurvatureMeasure(Measure, abstract=True):
    """A measure of the training loss around the weights, on some of the training samples."""

    needs = frozenset({"gradients"})

    samples: int = option(
        1_000, help="training samples to use, drawn at random if there are more", low=2
    )
    seed: int = option(0, help="seed of everything that is drawn", low=0)
    work: float = limited()

    def flat(self, subject: Subject, most: int | None = None) -> FlatLoss:
        """Make the loss on the samples a function of the weights; what has none is undefined.

        Args:
            subject: What is examined.
            most: How many samples at most; as many as the field says if None.
        """
        count = self.samples if most is None else min(most, self.samples)
        try:
            some = subject.cached(
                ("curvature", count, self.seed), lambda: self._some(subject, count)
            )
            check_deterministic(some)
            return FlatLoss(some)
        except InputError as error:
            raise Undefined(str(error)) from error

    def _some(self, subject: Subject, count: int) -> Subject:
        if len(subject.train) <= count:
            return subject
        order = torch.randperm(len(subject.train), generator=generator(self.seed))
        return _with_known(subject.part(order[:count]), subject)

    def groups(self, flat: FlatLoss, draws: int, passes: float) -> list[Tensor] | None:
        """Return places of other samples for every draw if all would take too long, else None.

        The spread of such draws tells the error of the samples, too.

        Args:
            flat: The loss on all samples.
            draws: How many groups.
            passes: How many passes each draw takes.
        """
        few = affordable(
            flat.subject, flat.samples, passes=draws * passes, fewest=2, work=self.work
        )
        if few >= flat.samples:
            return None
        order = torch.randperm(flat.samples, generator=generator(self.seed))
        each = min(few, flat.samples // draws)
        return list(order[: each * draws].split(each)) if each else [order[:few]] * draws

    def searched(self, flat: FlatLoss) -> FlatLoss:
        """Return the loss on as many of the samples as a search for eigenvalues can afford."""
        subject = flat.subject
        products = min(MOST, NUMBERS // (2 * len(flat.point)))
        if products < FEWEST_PRODUCTS:
            raise Undefined(
                f"needs at most {NUMBERS // (2 * FEWEST_PRODUCTS):,} weights, whose products fit in "
                f"memory, got {len(flat.point):,}; FlatLoss(subject, only=[...]) restricts "
                "top_eigenpairs to some layers"
            )
        most = affordable(
            subject,
            max(FEWEST, WORK // operations(subject)),
            passes=PASSES * products,
            fewest=FEW,
            work=SEARCH * self.work,
        )
        if flat.samples <= most:
            return flat
        order = torch.randperm(flat.samples, generator=generator(self.seed))[:most]
        return FlatLoss(
            subject.cached(
                ("searched", most, self.seed), lambda: _with_known(subject.part(order), subject)
            )
        )

    def pairs(self, flat: FlatLoss) -> Eigenpairs:
        """Search the ends of the Hessian's spectrum; measures of one subject share the search.

        Args:
            flat: The loss on what :meth:`searched` returned.
        """
        return flat.subject.cached(
            ("hessian-ends", self.seed),
            lambda: top_eigenpairs(
                hessian_products(flat),
                2,
                smallest=1,
                most=min(MOST, NUMBERS // (2 * len(flat.point))),
                seed=self.seed,
            ),
        )

    def told(
        self, flat: FlatLoss, subject: Subject, groups: list[Tensor] | None = None
    ) -> dict[str, int]:
        """Say how many of the samples were used."""
        used = flat.samples if groups is None else len(torch.cat(groups).unique())
        return {"samples": used, "of_samples": len(subject.train)}


def _with_known(part: Subject, whole: Subject) -> Subject:
    """Tell some samples of a subject what holds for all of them, which would take passes."""
    count, reason = operations(whole), whole.cached("curvature-instability", whole.instability)
    part.cached("operations", lambda: count)
    part.cached("curvature-instability", lambda: reason)
    return part
