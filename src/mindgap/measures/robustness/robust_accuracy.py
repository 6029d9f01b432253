"""The share of predictions that hold under attack."""

from mindgap.core import Bar, Estimate, Measure, Subject, option, proportion_interval
from mindgap.ops.attacks.masking import zero_gradients
from mindgap.ops.attacks.robustness import Settings, attacked, noisy, unattacked
from mindgap.ops.attacks.scene import EPSILON, scene_of, undefined_without
from mindgap.ops.evidence.passes import affordable, limited

FEWEST, NOISE = 10, Settings().draws  # samples of a large model, and random changes of each


class RobustAccuracy(Measure):
    r"""Share of test predictions that stay right when an attack moves the inputs a little.

    Formula: $\frac{1}{n} \left| \left\{ i : \hat y(x_i + \delta) = y_i \text{ for all } \delta \text{
    tried}, \; \lVert \delta / u \rVert_\infty \le \epsilon \right\} \right|$

    Reading: An upper bound: a stronger attack may break more. The unit u is the range of the
    training inputs: of every column of a table, of every channel of images, of all numbers
    otherwise. The radius of 8/255 is what the literature allows for natural images; it is not tuned.
    ``noise`` is the accuracy under random changes of the same size. A number counts as right within
    half a standard deviation of its target. Where gradients are exactly zero (``zero_gradients``),
    the logits are attacked as well.

    Assumes: One input of real numbers per sample, whose small changes do not change the target.

    >>> import torch
    >>> x, y = torch.tensor([[0.0], [0.4], [0.51], [1.0]]), torch.tensor([0, 0, 1, 1])
    >>> model = torch.nn.Linear(1, 2)
    >>> with torch.no_grad():
    ...     _ = model.weight.copy_(torch.tensor([[0.0], [1.0]]))
    ...     _ = model.bias.copy_(torch.tensor([0.5, 0.0]))
    >>> float(RobustAccuracy()(Subject(model, "cross_entropy", (x, y), (x, y))))
    0.75
    """

    method = ("S4",)
    cites = ("madry2018towards", "goodfellow2015explaining")
    direction = "none"
    needs = frozenset({"test"})
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})
    cost = "moderate"

    epsilon: float = option(EPSILON, help="radius, as a share of the range of the inputs", low=0)
    steps: int = option(10, help="steps of the attack", low=1)
    samples: int = option(200, help="test samples to attack, at most", low=1)
    work: float = limited()

    def compute(self, subject: Subject) -> Estimate:
        """Attack from the samples themselves, which depends on no draw and no order."""
        undefined_without(subject)
        passes = 2 * 3 * (self.steps + 1) + NOISE + 1  # a second attack may be needed
        most = affordable(subject, self.samples, passes=passes, fewest=FEWEST, work=self.work)
        scene = scene_of(subject, samples=most)
        how = Settings(steps=self.steps, random_start=False, batch_size=subject.batch_size)
        clean, found = unattacked(scene, how), attacked(scene, self.epsilon, how)
        silent = zero_gradients(found.silent, ~clean.broken)
        broken = clean.broken | found.broken
        if silent.found:
            broken = broken | attacked(scene, self.epsilon, how, "margin").broken
        noise = 1 - float(noisy(scene, self.epsilon, how).broken.double().mean())
        count, right = len(broken), int((~broken).sum())
        told = {"clean": 1 - float(clean.broken.double().mean()), "noise": noise}
        chart = Bar.of(
            {"clean": told["clean"], "random noise": noise, "attack": right / count},
            title="Predictions that are right",
            percent=True,
            wide=False,
            caption="Noise and attack move every input by at most the same small amount.",
        )
        return Estimate(
            value=right / count,
            status="estimate",
            interval=proportion_interval(right, count),
            terms={**told, "zero_gradients": silent.share, "attacked": float(count)},
            charts=(chart,),
        )
