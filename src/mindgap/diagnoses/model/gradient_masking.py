"""Gradients that are hidden, so that attacks fail and training cannot go on."""

import torch
from torch import Tensor, nn

from mindgap.core import Advice, Diagnosis, Evidence, Finding, Recipe, Results, Subject
from mindgap.ops.attacks.robustness import Level, Settings, noisy, signs, unattacked
from mindgap.ops.attacks.scene import EPSILON, attackable, has_gradient, scene_of
from mindgap.ops.evidence.passes import affordable
from mindgap.training.fit import fit

TRIED, FEWEST = 100, 20  # test samples, and of a large model
PASSES = 40  # of each: its attack and random changes
RADIUS = 4 * EPSILON  # of the range of the inputs: large enough that attacks can be told apart
STEP = 0.05  # to which a plant rounds the inputs, in standard deviations


class GradientMasking(Diagnosis):
    r"""Look for a gradient that is zero, or that misleads attacks.

    Three signs are looked for: the gradient of the loss by the inputs is exactly zero at more than
    5 % of the samples; one large step along it, or random noise, breaks predictions that many small
    steps do not; predictions hold although any input in the range of the data is allowed.

    Formula: $\frac{1}{n} \left| \{ i : \nabla_x \ell(f(x_i), y_i) = 0 \} \right| > 0.05$

    Reading: Rounding, a softmax before the loss or outputs too large for their precision hide the
    gradient. Attacks by gradient then fail, and the model looks robust although it is not.

    Assumes: One input of real numbers per sample. A model that does not depend on its inputs hides
    nothing and is not accused, nor is an estimator of scikit-learn, which has no gradient. In a
    regression only a gradient of zero counts: a healthy function may have peaks and plateaus on
    which small steps end.

    >>> from mindgap.studies.diagnoses.healthy import healthy_recipe
    >>> finding = GradientMasking()(
    ...     GradientMasking.plant(healthy_recipe("table").replace(epochs=2))
    ... )
    >>> finding.severity, finding.evidence[0].name, finding.evidence[0].value
    ('suspect', 'zero gradients', 1.0)
    """

    method = ("S4",)
    stage = "robustness"
    needs = frozenset({"test"})
    exact = True
    cites = ("athalye2018obfuscated",)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Attack a few samples, and look for signs that the gradient is hidden."""
        if not has_gradient(subject):
            return None
        attackable(subject, "test", torch.arange(1))  # refuses others than real numbers
        most = affordable(subject, TRIED, passes=PASSES, fewest=FEWEST)
        scene = scene_of(subject, samples=most)
        how = Settings(steps=10, draws=5, batch_size=subject.batch_size)
        clean = unattacked(scene, how)
        if float(clean.broken.double().mean()) == 1 or not bool(_moves(clean.outputs)):
            return None
        found = signs(scene, Level(RADIUS, clean, noisy(scene, RADIUS, how)), how)
        if subject.task == "regression":
            found = tuple(sign for sign in found if sign.name == "zero gradients")
        seen = [sign for sign in found if sign.found]
        if not seen:
            return None
        return self.finding(
            f"The model hides its gradient: {seen[0].sentence}.",
            "suspect",
            evidence=tuple(
                Evidence(name=sign.name, value=sign.share, percent=True)
                for sign in sorted(found, key=lambda sign: not sign.found)
            ),
            sentences=(
                "Attacks that follow the gradient fail on it, so that robust accuracy is overrated.",
                *(f"Also, {sign.sentence}." for sign in seen[1:]),
            ),
            advice=(
                Advice(
                    text="Remove what hides the gradient: rounding, a softmax before the loss, or "
                    "outputs that are too large."
                ),
                Advice(
                    text="Trust only attacks that need no gradient, or that see the logits.",
                    code="print(mindgap.attack(subject))",
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Round the inputs of a trained model, finely enough to leave its predictions alone."""
        subject = fit(recipe, seed=seed).subject()
        step = STEP * strength * float(recipe.train[0].std())
        return Subject(
            Rounded(subject.model, step).eval(),
            subject.loss,
            subject.train,
            subject.test,
            task=subject.task,
            history=subject.history,
        )


class Rounded(nn.Module):
    """A model that sees rounded inputs, whose derivative is zero.

    Args:
        model: The model.
        step: The inputs become multiples of it.
    """

    def __init__(self, model: nn.Module, step: float) -> None:
        super().__init__()
        self.model, self.step = model, step

    def forward(self, inputs: Tensor) -> Tensor:
        """Round, and ask the model."""
        answer: Tensor = self.model((inputs / self.step).round() * self.step)
        return answer


def _moves(outputs: Tensor) -> Tensor:
    """Tell whether the outputs differ between samples at all."""
    return (outputs != outputs[:1]).any()
