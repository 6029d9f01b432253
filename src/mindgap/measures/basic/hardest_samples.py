"""The samples with the largest loss."""

import torch

from mindgap.core import Estimate, Gallery, Measure, Sample, Subject, Which, option
from mindgap.core.chart.numbers import number, percent
from mindgap.ops.samples import as_shown, in_words, shown_inputs


class HardestSamples(Measure):
    r"""Largest loss of a single sample, and the samples that the model finds hardest.

    Formula: $\max_i \ell(f(x_i), y_i)$

    Reading: Wrong labels and odd inputs tend to gather among the hardest samples: look at them
    before you change the model. A model that is very sure of a wrong answer has a very large loss.

    Assumes: Nothing. Test data are used if there are any.

    >>> data = torch.tensor([[1.0], [2.0], [7.0]]), torch.tensor([[1.0], [2.5], [2.0]])
    >>> result = HardestSamples(shown=2)(Subject(torch.nn.Identity(), "mse", data))
    >>> float(result), result.details["samples"]
    (25.0, [{'index': 2, 'loss': 25.0}, {'index': 1, 'loss': 0.25}])
    """

    method = ("V10",)
    cites = ("shalevshwartz2016minimizing",)
    direction = "lower"
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    shown: int = option(24, help="samples to show", low=0)

    def compute(self, subject: Subject) -> Estimate:
        """Return the largest loss, and the places and losses of the hardest samples."""
        which: Which = "train" if subject.test is None else "test"
        losses = subject.losses(which)
        order = losses.argsort(descending=True)[: self.shown].cpu()
        samples = [{"index": place, "loss": float(losses[place])} for place in order.tolist()]
        return Estimate(
            value=float(losses.max()),
            details={"which": which, "samples": samples},
            charts=(_gallery(subject, which, order.tolist()),) if len(order) else (),
        )


def _gallery(subject: Subject, which: Which, places: list[int]) -> Gallery:
    shown = as_shown(shown_inputs(subject.split(which).take(torch.tensor(places)).inputs))
    data = "test" if which == "test" else "training"
    arrow = "Label → prediction. " if "image" in shown[0] else ""
    return Gallery(
        title=f"The {len(places)} {data} samples with the largest loss",
        caption=f"{arrow}The number is the sample's place in the {data} data.",
        samples=[
            _sample(subject, which, place, told) for place, told in zip(places, shown, strict=True)
        ],
    )


def _sample(subject: Subject, which: Which, place: int, told: dict[str, str]) -> Sample:
    target = in_words(subject, subject.targets(which)[place])
    answer = in_words(subject, subject.predictions(which)[place])
    facts = {"no.": str(place), "loss": number(float(subject.losses(which)[place]))}
    if subject.task == "classification":
        facts["sure"] = percent(float(subject.outputs(which)[place].double().softmax(0).max()))
    if "image" in told:
        return Sample(image=told["image"], caption=f"{target} → {answer}", facts=facts)
    return Sample(facts={**facts, "target": target, "prediction": answer, **told})
