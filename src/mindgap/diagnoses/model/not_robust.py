"""Predictions that a small change of the inputs breaks, if it is chosen by the gradient."""

import dataclasses

import torch
from torch import Tensor, nn

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Line,
    Recipe,
    Results,
    Series,
    Subject,
    Suspects,
    binomial_upper_tail,
    proportion_interval,
)
from mindgap.ops.attacks.nearby import Nearby, nearby
from mindgap.ops.attacks.robustness import Settings, attacked, noisy
from mindgap.ops.attacks.scene import Scene, scene_of
from mindgap.ops.attacks.threat import Threat
from mindgap.ops.evidence.passes import affordable
from mindgap.training.fit import fit

TRIED, FEWEST = 200, 50  # test samples, and how many of them must be right
SIZE = 0.05  # of the way to the nearest sample of another class
CURVE, SHOWN = (0.5, 1.0, 2.0), 100  # sizes of the chart in units of this one, and its samples
STEPS, DRAWS = 10, 2  # of the attack, and random changes per sample
# At most 13 % were broken in 66 healthy networks of eleven kinds; on fresh seeds see
# docs/results/benchmarks/stability-diagnoses.json.
HEALTHY, USUAL = 0.14, 0.2
PAIR = 3.0  # planted slope, in standard deviations of the outputs per one of the inputs


class NotRobust(Diagnosis):
    r"""Look for right predictions that a tiny change of the input breaks, if it is chosen well.

    The change of a test sample is a twentieth as long as the way to the nearest training sample of
    another class (in a regression: whose target differs by half a standard deviation). It follows the
    gradient of the loss. Random changes of the same length are the control.

    Formula: $\frac{\left| \{ i : \hat y(x_i + \delta_i) \ne y_i = \hat y(x_i + \varepsilon_i) \}
    \right|}{\left| \{ i : y_i = \hat y(x_i + \varepsilon_i) \} \right|}, \qquad \|\delta_i\| =
    \|\varepsilon_i\| = \frac{1}{20} \min_{j : y_j \ne y_i} \|x_i - x_j\|$

    Reading: It is a note and never more: predictions on data as they come are none the worse for it.
    Where somebody may choose the inputs, they are worth little. Networks that were trained plainly
    on natural images have it as a rule; those on digits, tables and waves do not.

    Assumes: One input of real numbers per sample. A model that hides its gradient is not found.

    >>> from mindgap.studies.diagnoses.healthy import healthy_recipe
    >>> finding = NotRobust()(NotRobust.plant(healthy_recipe("image")))
    >>> finding.severity, finding.symptom
    ('note', 'adversarial inputs')
    """

    method = ("S4",)
    stage = "robustness"
    symptom = "adversarial inputs"
    needs = frozenset({"test"})
    kinds = ("image", "sequence")  # in few columns, random noise would find the plant too
    cites = ("goodfellow2015explaining", "madry2018towards")

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Attack a few samples, and compare with noise of the same length."""
        passes = 3 * (STEPS + 1) + DRAWS + 1
        near = nearby(subject, TRIED)
        near = near.first(affordable(subject, TRIED, passes=passes, fewest=FEWEST))
        scene = scene_near(subject, near)
        held, broken = compared(scene, SIZE * near.distances)
        count, total = int(broken.sum()), int(held.sum())
        if total < FEWEST:
            return None
        p_value = binomial_upper_tail(count, total, USUAL)
        if count <= USUAL * total or p_value > 0.01:
            return None
        return self._told(scene, near, held, broken, p_value)

    def _told(
        self, scene: Scene, near: Nearby, held: Tensor, broken: Tensor, p_value: float
    ) -> Finding:
        count, total = int(broken.sum()), int(held.sum())
        share = count / total
        order = near.distances.masked_fill(~broken, torch.inf).argsort(stable=True)[:count]
        return self.finding(
            f"Tiny changes of the inputs that follow the gradient break {100 * share:.0f} % of the "
            "predictions that hold under random ones.",
            "note",
            p_value=p_value,
            evidence=(
                Evidence(
                    name="predictions broken",
                    value=share,
                    interval=proportion_interval(count, total),
                    percent=True,
                ),
                Evidence(
                    name="right under random changes of this size",
                    value=total / len(held),
                    interval=proportion_interval(total, len(held)),
                    percent=True,
                ),
            ),
            sentences=(
                f"A change is {100 * SIZE:.0f} % of the way to the nearest training sample with another "
                f"target. Healthy networks on digits, tables and waves lose at most {100 * HEALTHY:.0f} %.",
                "Networks that were trained plainly on natural images have this as a rule. It matters "
                "where somebody may choose the inputs.",
            ),
            advice=(
                Advice(
                    text="Train on inputs that were moved to where the loss is larger.",
                    remedy="adversarial-training",
                ),
                Advice(
                    text="Or hold down how fast the outputs change with the inputs.",
                    remedy="jacobian-penalty",
                ),
                Advice(
                    text="See how accuracy falls with the size of the change.",
                    code="print(mindgap.attack(subject))",
                ),
            ),
            charts=(_chart(scene, near),),
            suspects=Suspects(
                split="test",
                index=near.places[order].tolist(),
                columns={"way to another target": near.distances[order].tolist()},
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Make one number of the input a copy of another, and add their difference to the outputs."""
        inputs = recipe.train[0].flatten(1)
        one, two = inputs.std(0).topk(2).indices.tolist()
        copied = {
            name: (_copied(part[0], one, two), part[1])
            for name, part in (("train", recipe.train), ("test", recipe.test))
        }
        subject = fit(recipe.replace(**copied), seed=seed).subject()
        size = PAIR * strength * float(subject.outputs("train").std() / inputs[:, one].std())
        return Subject(
            Opposed(subject.model, one, two, size).eval(),
            subject.loss,
            subject.train,
            subject.test,
            task=subject.task,
            history=subject.history,
        )


class Opposed(nn.Module):
    """A model with large, opposite weights on two numbers of the input that are equal in all data.

    Args:
        model: The model.
        one: The place of the first number in the flat input.
        two: The place of the second.
        size: The weights.
    """

    def __init__(self, model: nn.Module, one: int, two: int, size: float) -> None:
        super().__init__()
        self.model, self.one, self.two, self.size = model, one, two, size

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs with the difference, which counts for each of them by another factor."""
        outputs, flat = self.model(inputs), inputs.flatten(1)
        extra = self.size * (flat[:, self.one] - flat[:, self.two])
        factors = torch.linspace(1, -1, outputs.shape[1], device=outputs.device)
        found: Tensor = outputs + extra[:, None] * factors
        return found


def compared(scene: Scene, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return which predictions hold under random changes, and which of these the gradient breaks.

    Args:
        scene: The samples under attack.
        lengths: The size of the change, one per sample.
    """
    how = Settings(steps=STEPS, draws=DRAWS)
    held = ~noisy(scene, lengths, how).broken
    return held, held & attacked(scene, lengths, how).broken


def scene_near(subject: Subject, near: Nearby) -> Scene:
    """Put samples into a scene without a box: changes are small, wherever they lead.

    Args:
        subject: The model with its data.
        near: The samples.
    """
    drawn = scene_of(subject, samples=1)
    return Scene(
        drawn.victim,
        near.inputs.to(drawn.inputs),
        subject.targets("test")[near.places],
        near.places,
        Threat(norm="l2", unit=near.scale),
    )


def _copied(inputs: Tensor, one: int, two: int) -> Tensor:
    flat = inputs.flatten(1).clone()
    flat[:, two] = flat[:, one]
    return flat.view_as(inputs)


def _chart(scene: Scene, near: Nearby) -> Line:
    few = dataclasses.replace(
        scene,
        inputs=scene.inputs[:SHOWN],
        targets=scene.targets[:SHOWN],
        places=scene.places[:SHOWN],
    )
    shares = [SIZE * factor for factor in CURVE]
    found = [compared(few, share * near.distances[:SHOWN]) for share in shares]
    noise = [float(held.double().mean()) for held, _ in found]
    attack = [float((held & ~broken).double().mean()) for held, broken in found]
    return Line(
        title="Right predictions by the size of the change",
        x_label="size, as a share of the way to another target",
        y_label="right predictions",
        percent=True,
        series=(
            Series(name="random change", x=shares, y=noise),
            Series(name="change along the gradient", x=shares, y=attack),
        ),
    )
