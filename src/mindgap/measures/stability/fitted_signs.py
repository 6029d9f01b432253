"""Empirical Rademacher complexity of a network, estimated from below by training on noise."""

import torch
from torch import Tensor

from mindgap.core import Estimate, Measure, Recipe, Subject, Undefined, option, standard_error
from mindgap.ops.rademacher import random_signs
from mindgap.training.leave_one_out import member_outputs, operations, repeated

MOST_WORK = 3e13  # operations of all trainings, about half an hour of one CPU


class FittedSigns(Measure):
    r"""Lower estimate of a network's Rademacher complexity: how well it learns random signs.

    Formula: $\hat{\mathfrak{R}} \ge \mathbb{E}_\xi \frac{1}{n} \sum_i \xi_i \, \mathrm{sign}
    f_\xi(x_i)$, $f_\xi$ trained on the signs

    Reading: One means that the network, trained as its recipe says, learns any labels by heart, so
    that a bound by Rademacher complexity says nothing about it. Zero means that it learns none.
    Training need not find the best fit, so this is a lower estimate of the complexity, and a bound
    with it would be no bound. A classifier separates its second class from its first; a regression
    uses the sign of its first output.

    Assumes: The recipe that trained the model. Its sample weights are not used.

    >>> from mindgap.core import Recipe
    >>> from mindgap.nets import MLP
    >>> x = torch.linspace(-1, 1, 6)[:, None]
    >>> recipe = Recipe(
    ...     model=lambda: MLP((1, 16, 1)), train=(x, x), loss="mse", learning_rate=0.05, epochs=100
    ... )
    >>> subject = Subject(recipe.build(0), "mse", (x, x), recipe=recipe)
    >>> 0.3 < float(FittedSigns(draws=5)(subject)) <= 1
    True
    """

    method = ("K1", "K9")
    cites = ("bartlett2002rademacher", "zhang2017understanding")
    direction = "lower"
    needs = frozenset({"recipe"})
    # The value is that of the recipe: what is done to the trained weights does not matter.
    invariant_to = frozenset({"unit-permutation", "relu-rescaling", "output-scaling"})
    cost = "expensive"

    draws: int = option(20, help="sign vectors, one training each", low=2)
    seed: int = option(0, help="seed of the signs", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Train one network per sign vector, all at once, and correlate answers and signs."""
        work = 2 * operations(subject, self.draws)
        if work > MOST_WORK:
            raise Undefined(
                f"needs at most {MOST_WORK:.0e} operations, {self.draws} trainings take "
                f"{work:.0e}; lower draws"
            )
        signs = random_signs(self.draws, len(subject.train), self.seed)
        found = (self._answers(subject, signs).cpu() * signs).double().mean(1)
        return Estimate(
            value=float(found.mean()),
            status="estimate",
            standard_error=standard_error(found.tolist()),
            terms={
                "error_on_signs": float((1 - found).mean() / 2),
                "smallest": float(found.min()),
                "largest": float(found.max()),
            },
        )

    def _answers(self, subject: Subject, signs: Tensor) -> Tensor:
        from mindgap.training.ensemble import ensemble  # examine loads it only if it trains

        members = ensemble(
            both_labels(subject),
            [subject.seed + draw for draw in range(len(signs))],
            # Twice the weight, since half of a batch has the weight zero.
            sample_weights=2.0 * torch.cat([signs > 0, signs < 0], 1),
            keep_history=False,
        )
        models = [member.model for member in members]
        outputs = member_outputs(models, subject.train, subject.batch_size).flatten(2)
        classes = subject.task == "classification"
        score = outputs[..., 1] - outputs[..., 0] if classes else outputs[..., 0]
        return score.sign()


def both_labels(subject: Subject) -> Recipe:
    """Return the recipe with every sample twice, first with the label of +1, then with that of −1.

    Members of an ensemble share their data. Weights of zero choose one label of each sample.

    Args:
        subject: With the recipe that trained it.
    """
    recipe, samples = repeated(subject), len(subject.train)
    inputs = subject.train.take(torch.arange(samples).repeat(2)).inputs
    up = torch.arange(2 * samples) < samples
    targets = subject.targets("train").cpu()
    low = -1.0 if subject.task == "regression" else 0.0
    shape = (2 * samples, *targets.shape[1:])
    labels = torch.where(up, 1.0, low).view(-1, *[1] * (targets.ndim - 1)).expand(shape)
    labels = labels.to(targets.dtype).contiguous()
    train = (inputs, labels) if isinstance(inputs, dict) else (*inputs, labels)
    return recipe.replace(
        train=train,
        target=None,
        task=subject.task,
        sample_weights=None,
        validation=0.0,
        batch_size=2 * recipe.batch_size,
    )
