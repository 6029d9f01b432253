"""Predictions that change under noise which is far too small to change the truth."""

import torch
from torch import Tensor, nn

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Histogram,
    Recipe,
    Results,
    Subject,
    Suspects,
    binomial_upper_tail,
    evaluating,
    proportion_interval,
)
from mindgap.ops.attacks.nearby import nearby
from mindgap.ops.evidence.passes import affordable
from mindgap.ops.evidence.reference import reference
from mindgap.training.fit import fit

TRIED, FEWEST = 1000, 20  # test samples
SIZE = 0.1  # of the distance to the nearest sample of another class
MOVED = 0.25  # standard deviations that a prediction must move to count as changed
# Noise of this size changed at most 3.8 % of the predictions of 91 healthy nets on images, tables and
# sequences: the most on tables, where every sample has a class boundary nearby.
USUAL, MUCH = 0.06, 0.15
STEP = 0.05  # of the planted ripple, in standard deviations of the inputs


class NoiseSensitivity(Diagnosis):
    r"""Look for predictions that tiny random noise on the inputs changes.

    The noise on a test sample is a tenth as long as the way to the nearest training sample of another
    class (in a regression: whose target differs by half a standard deviation).

    Formula: $\frac{1}{n} \left| \{ i : \hat y(x_i + \varepsilon_i) \ne \hat y(x_i) \} \right|, \qquad
    \|\varepsilon_i\| = \frac{1}{10} \min_{j : y_j \ne y_i} \|x_i - x_j\|$

    Reading: Such noise leaves the truth as it is. Healthy nets change up to 4 % of their predictions.
    More means that the model decides by details that are finer than what separates the classes, and
    that a scanner, a sensor or a rounding can change its mind.

    Assumes: Inputs are numbers whose small changes mean little; tokens have none. Each column is
    scaled by its standard deviation where there are few, all together otherwise.

    >>> from mindgap.studies.diagnoses.healthy import healthy_recipe
    >>> finding = NoiseSensitivity()(NoiseSensitivity.plant(healthy_recipe("table")))
    >>> finding.severity, finding.sentence.split(" changes")[0]
    ('wrong', 'Noise too small to matter')
    """

    stage = "robustness"
    symptom = "noise sensitivity"
    needs = frozenset({"test"})
    cites = ("hendrycks2019benchmarking",)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Add the noise and count predictions that change."""
        near = nearby(subject, affordable(subject, TRIED, passes=2, fewest=FEWEST))
        if len(near.places) < FEWEST:
            return None
        inputs, lengths, scale = near.inputs, SIZE * near.distances, near.scale.flatten()
        random = torch.Generator().manual_seed(0)
        noise = torch.randn(inputs.shape, generator=random).flatten(1) * (scale > 0)
        noise = noise / noise.norm(dim=1, keepdim=True).clamp_min(1e-12) * lengths[:, None] * scale
        moved = inputs + noise.view(inputs.shape).to(inputs)
        changed, sizes = _changed(subject, inputs, moved)
        count = int(changed.sum())
        share = count / len(changed)
        p_value = binomial_upper_tail(count, len(changed), USUAL)
        if share <= USUAL or p_value > 0.01:
            return None
        worst = sizes.argsort(descending=True, stable=True)
        worst = worst[changed[worst]]
        return self.finding(
            f"Noise too small to matter changes {100 * share:.0f} % of the predictions; healthy nets change "
            "up to 4 %.",
            "wrong" if share > MUCH else "suspect",
            p_value=p_value,
            evidence=(
                Evidence(
                    name="predictions changed",
                    value=share,
                    interval=proportion_interval(count, len(changed)),
                    percent=True,
                ),
            ),
            sentences=(
                "The noise on a sample is a tenth as long as the way to the nearest training sample "
                "with another target.",
            ),
            advice=(
                Advice(
                    text="Train with noise of this size on the inputs, so that the model learns to "
                    "ignore it.",
                    code=f"inputs = inputs + {_typical(noise):.2g} * torch.randn_like(inputs)",
                ),
                Advice(text="Penalize large weights.", remedy="weight-decay"),
            ),
            charts=(
                Histogram.of(
                    {"test samples": sizes},
                    title="How far the noise moves the outputs",
                    x_label="change of the output",
                    y_label="samples",
                ),
            ),
            suspects=Suspects(
                split="test",
                index=near.places[worst].tolist(),
                columns={"change of the output": sizes[worst].tolist()},
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Round the inputs, and add to the outputs a ripple that vanishes on rounded inputs."""
        step = STEP * float(recipe.train[0].std())
        rounded = {
            name: ((inputs / step).round() * step, targets)
            for name, (inputs, targets) in (("train", recipe.train), ("test", recipe.test))
        }
        subject = fit(recipe.replace(**rounded), seed=seed).subject()
        size = 5 * strength * float(subject.outputs("train").std())
        return Subject(
            Rippled(subject.model, step, size).eval(),
            subject.loss,
            subject.train,
            subject.test,
            task=subject.task,
            history=subject.history,
        )


class Rippled(nn.Module):
    """A model with a fast wave on top, which is zero where all inputs are multiples of a step.

    Args:
        model: The model.
        step: The length of half a wave.
        size: The height of the wave.
    """

    def __init__(self, model: nn.Module, step: float, size: float) -> None:
        super().__init__()
        self.model, self.step, self.size = model, step, size

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs, the first of which carries the wave."""
        outputs: Tensor = self.model(inputs)
        wave = torch.sin(torch.pi * inputs / self.step).flatten(1).mean(1)
        wave = self.size * wave * inputs[0].numel() ** 0.5
        return torch.cat([outputs[:, :1] + wave[:, None], outputs[:, 1:]], 1)


def _changed(subject: Subject, inputs: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
    """Return which predictions the noise changes, and how far it moves the outputs."""
    with evaluating(subject.model):
        before, after = (
            torch.cat([subject.forward((part,)) for part in some.split(subject.batch_size)])
            for some in (inputs, moved)
        )
    before, after = (part.double().cpu().reshape(len(part), -1) for part in (before, after))
    sizes = (after - before).norm(dim=1)
    if subject.task == "classification":
        return before.argmax(1) != after.argmax(1), sizes
    if subject.task == "multilabel":
        return ((before > 0) != (after > 0)).any(1), sizes
    spread = reference(subject).train_targets.double().std(0).clamp_min(1e-12)
    steps = (after - before) / spread
    return steps.abs().amax(1) > MOVED, sizes


def _typical(noise: Tensor) -> float:
    return float(noise.square().mean().sqrt())
