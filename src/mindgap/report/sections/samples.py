"""The hardest samples: those with the largest loss, as images, numbers or tokens."""

from torch import Tensor

from mindgap.core import Inputs, Subject, Which
from mindgap.ops.images import as_images
from mindgap.report import wording
from mindgap.report.parts import Sample

MOST_VALUES = 12  # a row that a reader can still take in


def hardest(subject: Subject, count: int) -> tuple[Sample, ...]:
    """The ``count`` samples with the largest loss, of the test data if there are any."""
    which: Which = "train" if subject.test is None else "test"
    losses = subject.losses(which)
    order = losses.argsort(descending=True)[:count].cpu()
    if len(order) == 0:
        return ()
    shown = shown_inputs(subject.split(which).take(order).inputs)
    images = as_images(shown)
    return tuple(
        Sample(
            index=place,
            which=which,
            loss=float(losses[place]),
            target=label(subject, subject.targets(which)[place]),
            prediction=label(subject, subject.predictions(which)[place]),
            confidence=_confidence(subject, which, place),
            image=images[k] if images else "",
            values=() if images else row(shown[k]),
            more=0 if images else max(shown[k].numel() - MOST_VALUES, 0),
        )
        for k, place in enumerate(order.tolist())
    )


def shown_inputs(inputs: Inputs) -> Tensor:
    """The tensor to show where a model takes several: token numbers, or the first."""
    if isinstance(inputs, dict):
        return inputs["input_ids"] if "input_ids" in inputs else next(iter(inputs.values()))
    return inputs[0]


def label(subject: Subject, value: Tensor) -> str:
    """A target or prediction in words."""
    if subject.task == "classification":
        return class_name(subject.classes, int(value))
    if subject.task == "multilabel":
        chosen = value.flatten().nonzero().flatten().tolist()
        return ", ".join(class_name(subject.classes, k) for k in chosen) or "none"
    return ", ".join(wording.number(float(item)) for item in value.flatten()[:MOST_VALUES])


def class_name(classes: tuple[str, ...], place: int) -> str:
    """The class's name, or its number where it has none."""
    return str(classes[place]) if place < len(classes) else str(place)


def _confidence(subject: Subject, which: Which, place: int) -> float | None:
    if subject.task != "classification":
        return None
    return float(subject.outputs(which)[place].double().softmax(0).max())


def row(value: Tensor) -> tuple[str, ...]:
    """The first numbers of a sample, or its first tokens."""
    first = value.flatten()[:MOST_VALUES].tolist()
    return tuple(
        wording.number(item, 3) if isinstance(item, float) else str(item) for item in first
    )
