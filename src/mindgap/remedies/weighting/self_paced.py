"""Self-paced learning."""

from torch import Tensor

from mindgap.core import InputError, Losses, Remedy, TrainingState, option

_TINY = 1e-9  # so that rounding does not take a sample from a whole number of them


class SelfPaced(Remedy):
    r"""Begins with the samples that are easy for the network, and adds the hard ones later.

    Formula: $\min_{w,\, v \in \{0, 1\}^n} \sum_i v_i \ell_i(w) - \tau \sum_i v_i \quad\Rightarrow
    \quad v_i = 1_{\ell_i < \tau}$

    Reading: In each batch the samples with the largest losses are left out; τ is the loss that
    separates them. Their share falls evenly from the first epoch to the last. A share above zero at
    the end never trains on the worst samples, among which wrong labels are. A share of zero turns
    it off.

    Assumes: A number of epochs that is fixed beforehand. Hard samples are few or wrong.

    >>> import torch
    >>> from torch import nn
    >>> state = TrainingState(model=nn.Identity(), optimizer=None, epoch=1, epochs=10)
    >>> losses = torch.tensor([1.0, 4.0])
    >>> SelfPaced(share=0.5).losses(state, lambda output, target: output, losses, losses)
    tensor([2., 0.])
    """

    method = ("E5",)
    cites = ("kumar2010self",)
    strength = "share"
    treats = frozenset({"wrong labels", "memorized noise"})
    cost = 1.1
    horizon = True

    share: float = option(
        0.3,
        help="share of a batch, the hardest samples, left out at first; 0 is off",
        low=0,
        below=1,
    )
    end: float = option(0.0, help="share that is left out in the last epoch", low=0, below=1)

    def losses(self, state: TrainingState, loss: Losses, output: Tensor, target: Tensor) -> Tensor:
        """Keep the smallest losses, scaled so that the mean is theirs."""
        losses = loss(output, target)
        left = int(self._left_out(state.epoch, state.epochs) * len(losses) + _TINY)
        ranks = losses.detach().argsort(stable=True).argsort()
        kept = len(losses) - left
        return losses * (ranks < kept) * (len(losses) / kept)

    def _left_out(self, epoch: int, epochs: int) -> float:
        if not epochs:
            raise InputError(
                "Self-paced learning must know the number of epochs, got a training loop that does "
                "not tell it. Pass epochs= to RemedyOptimizer."
            )
        return self.share + (self.end - self.share) * (epoch - 1) / max(1, epochs - 1)
