"""What measures of curvature share: the samples that they look at, and how they refuse."""

import torch

from mindgap.core import InputError, Measure, Subject, Undefined, generator, option
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import check_deterministic, hessian_products
from mindgap.ops.curvature.spectrum import Eigenpairs, top_eigenpairs
from mindgap.ops.evidence.passes import operations

MOST = 100  # products of one search for eigenvalues
WORK = 2**33  # operations of the forward passes of one product: of larger networks, fewer samples
FEWEST = 100  # samples that a search looks at, however large the network


class CurvatureMeasure(Measure, abstract=True):
    """A measure of the training loss around the weights, on some of the training samples."""

    needs = frozenset({"gradients"})

    samples: int = option(
        1_000, help="training samples to use, drawn at random if there are more", low=2
    )
    seed: int = option(0, help="seed of everything that is drawn", low=0)

    def flat(self, subject: Subject) -> FlatLoss:
        """Make the loss on the samples a function of the weights; what has none is undefined."""
        try:
            some = subject.cached(
                ("curvature", self.samples, self.seed), lambda: self._some(subject)
            )
            check_deterministic(some)
            return FlatLoss(some)
        except InputError as error:
            raise Undefined(str(error)) from error

    def _some(self, subject: Subject) -> Subject:
        if len(subject.train) <= self.samples:
            return subject
        order = torch.randperm(len(subject.train), generator=generator(self.seed))
        return subject.part(order[: self.samples])

    def searched(self, flat: FlatLoss) -> FlatLoss:
        """Return the loss on as many of the samples as a search for eigenvalues can afford."""
        subject = flat.subject
        most = max(FEWEST, WORK // operations(subject))
        if flat.samples <= most:
            return flat
        order = torch.randperm(flat.samples, generator=generator(self.seed))[:most]
        return FlatLoss(subject.cached(("searched", most, self.seed), lambda: subject.part(order)))

    def pairs(self, flat: FlatLoss) -> Eigenpairs:
        """Search the ends of the Hessian's spectrum; measures of one subject share the search.

        Args:
            flat: The loss on what :meth:`searched` returned.
        """
        return flat.subject.cached(
            ("hessian-ends", self.seed),
            lambda: top_eigenpairs(
                hessian_products(flat), 2, smallest=1, most=MOST, seed=self.seed
            ),
        )

    def told(self, flat: FlatLoss, subject: Subject) -> dict[str, int]:
        """Say how many of the samples were used."""
        return {"samples": flat.samples, "of_samples": len(subject.train)}
