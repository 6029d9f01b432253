"""Training on the hardest samples of every batch."""

from torch import Tensor

from mindgap.core import Losses, Remedy, TrainingState, option

_TINY = 1e-9  # so that rounding does not take a sample from a whole number of them


class HardExamples(Remedy):
    r"""Leaves the easiest samples out of every step.

    Formula: $L = \frac{1}{k} \sum_{i \in H_k} \ell_i, \qquad k = n - \lfloor s n \rfloor$

    Reading: H holds the k samples of a batch with the largest losses. Once most samples are
    learned, they no longer outvote the others. Wrong labels are hard as well, so clean them first.
    A share of zero turns it off.

    Assumes: Labels that are right.

    >>> import torch
    >>> from torch import nn
    >>> state, losses = TrainingState(model=nn.Identity(), optimizer=None), torch.tensor([1.0, 4.0])
    >>> HardExamples(share=0.5).losses(state, lambda output, target: output, losses, losses)
    tensor([0., 8.])
    """

    method = ("E5",)
    cites = ("shrivastava2016training",)
    strength = "share"
    treats = frozenset({"hard samples"})
    cost = 1.1

    share: float = option(
        0.3,
        help="share of a batch, the easiest samples, that is left out; 0 is off",
        low=0,
        below=1,
    )

    def losses(self, state: TrainingState, loss: Losses, output: Tensor, target: Tensor) -> Tensor:  # noqa: ARG002
        """Keep the largest losses, scaled so that the mean is theirs."""
        losses = loss(output, target)
        left = int(self.share * len(losses) + _TINY)
        ranks = losses.detach().argsort(stable=True).argsort()
        return losses * (ranks >= left) * (len(losses) / (len(losses) - left))
