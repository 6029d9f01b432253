"""Label smoothing."""

import torch.nn.functional as F
from torch import Tensor

from mindgap.core import Losses, Remedy, TrainingState, option


class LabelSmoothing(Remedy):
    r"""Gives a share of every label's probability to all classes alike.

    Formula: $\ell_\epsilon(f(x), y) = (1 - \epsilon)\, \ell(f(x), y) - \frac{\epsilon}{K}
    \sum_{k=1}^{K} \ln \mathrm{softmax}(f(x))_k$

    Reading: The best answer is no longer a probability of one, so the logits stay moderate and a
    wrong label does less harm. Curves show the loss without smoothing, except ``running_loss``,
    which is what the optimizer sees. Zero turns it off.

    Assumes: A classification, whose outputs are one logit or log-probability per class.

    >>> import torch
    >>> from torch import nn
    >>> state = TrainingState(model=nn.Identity(), optimizer=None)
    >>> output, target = torch.tensor([[4.0, 0.0, 0.0]]), torch.tensor([0])
    >>> plain = nn.CrossEntropyLoss(reduction="none")
    >>> smooth = LabelSmoothing(share=0.3).losses(state, plain, output, target)
    >>> print(f"{plain(output, target).item():.3f} {smooth.item():.3f}")
    0.036 0.836
    """

    method = ("E5",)
    cites = ("szegedy2016rethinking", "muller2019when")
    strength = "share"
    treats = frozenset({"over-confidence", "over-fitting", "wrong labels"})
    needs = frozenset({"classification"})
    cost = 1.1
    rowwise = True

    share: float = option(
        0.1, help="share ε of the probability spread over all classes; 0 is off", low=0, below=1
    )

    def losses(self, state: TrainingState, loss: Losses, output: Tensor, target: Tensor) -> Tensor:  # noqa: ARG002
        """Mix the loss with that of a label that names every class alike."""
        uniform = -F.log_softmax(output, 1).mean(1)
        own = uniform if uniform.ndim == 1 else uniform.flatten(1).mean(1)
        return (1 - self.share) * loss(output, target) + self.share * own
