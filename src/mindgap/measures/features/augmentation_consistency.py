"""How often a small shift leaves the prediction of an image as it was."""

import torch
from torch import Tensor
from torch.nn import functional

from mindgap.core import Bar, Estimate, Measure, Subject, Undefined, evaluating, option
from mindgap.ops.evidence.passes import affordable, limited, some_places, unlike
from mindgap.ops.paths.subject import inputs_of

SAMPLES = 2000
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class AugmentationConsistency(Measure):
    r"""Share of training images whose prediction stays the same when they are shifted.

    Formula: $\frac{1}{4n} \sum_{i=1}^{n} \sum_{k=1}^{4} \left[ \hat y(t_k(x_i)) = \hat y(x_i)
    \right], \qquad t_k \text{ a shift up, down, left or right}$

    Reading: Near 1 the network does not depend on the exact place of things. Entries of this kind
    did well in a competition on predicting generalization. ``mirrored`` says the same of images
    flipped left to right; it means something only where left and right do not matter.

    Assumes: Images of shape (channels, height, width). Pixels that come in repeat the edge. A
    prediction of a regression counts as changed beyond a tenth of the targets' standard deviation.

    >>> images, labels = torch.zeros(4, 1, 3, 3), torch.tensor([0, 1, 0, 1])
    >>> images[labels == 1] = 1.0
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 2))
    >>> float(AugmentationConsistency()(Subject(net, "cross_entropy", (images, labels))))
    1.0
    """

    method = ("E10",)
    cites = ("aithal2021robustness",)
    direction = "higher"
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )

    pixels: int = option(1, help="how far images are shifted", low=1)
    work: float = limited()

    def compute(self, subject: Subject) -> Estimate:
        """Return the share, by direction as well."""
        most = affordable(subject, SAMPLES, passes=len(MOVES) + 2, work=self.work)
        places = some_places(subject, "train", most)
        images = inputs_of(subject, "train", places)
        if images.ndim != 4 or min(images.shape[2:]) <= self.pixels:
            raise Undefined(
                "needs images of shape (channels, height, width) that are larger than the shift"
            )
        before = _outputs(subject, images)
        stays = {
            name: ~unlike(subject, _outputs(subject, self._shifted(images, *move)), before)
            for name, move in MOVES.items()
        }
        mirrored = ~unlike(subject, _outputs(subject, images.flip(3)), before)
        share = torch.stack(list(stays.values())).double().mean(0)
        named = {name: float(row.double().mean()) for name, row in stays.items()}
        named["mirrored"] = float(mirrored.double().mean())
        spread = float(share.std(correction=0)) / len(share) ** 0.5
        return Estimate(
            value=float(share.mean()),
            status="estimate",
            standard_error=spread,
            terms={"samples": len(share), **named},
            charts=(
                Bar.of(
                    named,
                    title="Predictions that stay the same",
                    x_label="change of the image",
                    y_label="share of images",
                    percent=True,
                ),
            ),
        )

    def _shifted(self, images: Tensor, down: int, right: int) -> Tensor:
        """Move images by the pixels; what comes in repeats the edge."""
        high, wide = images.shape[2:]
        padded = functional.pad(images, [self.pixels] * 4, mode="replicate")
        top, left = self.pixels * (1 - down), self.pixels * (1 - right)
        return padded[:, :, top : top + high, left : left + wide]


def _outputs(subject: Subject, images: Tensor) -> Tensor:
    with evaluating(subject.model):
        return torch.cat(
            [subject.forward((rows,)) for rows in images.split(subject.batch_size)]
        ).cpu()
