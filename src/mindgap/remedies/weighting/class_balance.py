"""Class-balanced sample weights."""

from torch import Tensor

from mindgap.core import InputError, Recipe, Remedy, Split, option


class ClassBalance(Remedy):
    r"""Weights the samples of rare classes more than those of frequent ones.

    Formula: $w_i \propto \frac{1 - \beta}{1 - \beta^{n_{y_i}}}, \qquad \frac{1}{n} \sum_i w_i = 1$

    Reading: n is the number of training samples of a class. (1 - βⁿ)/(1 - β) counts how many of
    them are effectively different: close to n while n is far below 1/(1 - β), and never above it.
    So a β near one weights every class alike, and a small one hardly changes anything. The error on
    rare classes falls and that on frequent ones rises: look at the balanced error. Zero turns it
    off.

    Assumes: A classification. Test data that matter class by class, not sample by sample.

    >>> import torch
    >>> ClassBalance(beta=0.9).sample_weights(torch.tensor([0, 0, 0, 1])).tolist()
    [0.7005..., 0.7005..., 0.7005..., 1.8984...]
    """

    method = ("E5",)
    cites = ("cui2019class",)
    strength = "beta"
    treats = frozenset({"imbalance"})
    needs = frozenset({"classification"})

    beta: float = option(
        0.999, help="how much a further sample of a class adds, β; 0 is off", low=0, below=1
    )

    def sample_weights(self, targets: Tensor) -> Tensor:
        """Return one weight per sample, with mean one.

        Args:
            targets: The class numbers of the training samples.
        """
        if targets.ndim != 1 or targets.is_floating_point():
            raise InputError(
                "Class balance must see one class number per sample, got targets of "
                f"{targets.dtype} and shape {tuple(targets.shape)}. Leave the remedy out."
            )
        labels, counts = targets.unique(return_inverse=True, return_counts=True)[1:]
        weights: Tensor = (1 - self.beta) / (1 - self.beta ** counts.double())
        return weights[labels] / weights[labels].mean()

    def prepare(self, recipe: Recipe, data: Split) -> Recipe:
        """Multiply the recipe's sample weights by those of the classes."""
        weights, given = self.sample_weights(data.targets), recipe.weights(data)
        return recipe.replace(sample_weights=weights if given is None else weights * given)
