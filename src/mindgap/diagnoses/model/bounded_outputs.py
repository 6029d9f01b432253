"""Outputs that a last activation keeps from reaching the targets, or the logits that the loss needs."""

import math
from collections.abc import Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Histogram,
    InputError,
    Recipe,
    Results,
    Subject,
    align,
    call,
    copied,
    evaluating,
    mapped,
)
from mindgap.ops.evidence.passes import SAMPLES, constant_loss, errors_of, some_places
from mindgap.ops.samples import class_name
from mindgap.training.fit import fit

LOWER, UPPER = (0.0, -1.0), (0.0, 1.0)  # bounds of ReLU, softplus, sigmoid, tanh and ELU
ASKED = 256  # samples at which the model is asked how far its outputs go
FACTOR = 1e3  # of the inputs, and of the weights of the last layer
NEAR, REACH = 1e-6, 5  # how many outputs must come how near to a bound to reach it
COST = 0.01  # share of a constant's loss that cannot be avoided; noise of targets crosses zero, too
COST_OF_CLASSES = 0.1
FAR = 30.0  # a logit that leaves no loss

Bounds = tuple[float | None, float | None]
ACTIVATIONS: Mapping[Bounds, str] = {
    (0.0, None): "a ReLU",
    (0.0, 1.0): "a sigmoid",
    (-1.0, 1.0): "a tanh",
    (-1.0, None): "an ELU",
}


class BoundedOutputs(Diagnosis):
    r"""Look for outputs that cannot leave a range, while targets are beyond or the loss needs more.

    The model is asked, not its layers: it is called with its inputs, and with the weights of its last
    layer, multiplied by large factors of both signs.

    Formula: $a \le f(x) \le b$ for all $x$, but $\frac{1}{n} \sum_i [\, y_i \notin [a, b] \,] > 0$

    Reading: The model ends in an activation such as a ReLU, a sigmoid or a tanh. Whatever it learns,
    it cannot predict targets beyond the range of the activation. Logits that end in a tanh keep the
    loss above a floor, and those behind a ReLU get stuck at zero.

    Assumes: The model has weights. Bounds at 0, 1 and -1 are looked for, and count if they cost at
    least 1 % of the loss of the best constant (10 % in a classification).

    >>> x = torch.linspace(-1, 1, 200)[:, None]
    >>> net = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    >>> BoundedOutputs()(Subject(net, "mse", (x, x))).sentence
    'The outputs cannot fall below 0, as after a ReLU, but 50 % of the training targets are below.'
    """

    stage = "evaluation"
    exact = True
    cites = ("goodfellow2016deep",)
    explains = frozenset(
        {
            "constant-predictor",
            "dead-units",
            "gradient-masking",
            "idle-layer",
            "ignored-class",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "over-confidence",
            "over-regularized",
            "rank-collapse",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
            "vanishing-gradients",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Ask how far the outputs go, where they would have to go further."""
        seen = _bounds(subject.outputs("train").detach(), reach=0)
        stuck = _stuck(subject) if seen[0] == 0 else []
        if seen == (None, None) or not (stuck or _cost(subject, seen) >= _least(subject)):
            return None
        bounds = _bounds(torch.cat(list(_asked(subject))), reach=REACH)
        if stuck and bounds == (0.0, None):
            return self._never(subject, bounds, stuck)
        cost = _cost(subject, bounds)
        if cost < _least(subject):
            return None
        if subject.task == "regression":
            return self._beyond(subject, bounds, cost)
        # Probabilities that the loss takes for logits have a name of their own.
        return None if bounds == (0.0, 1.0) else self._logits(subject, bounds, cost)

    def _beyond(self, subject: Subject, bounds: Bounds, cost: float) -> Finding:
        targets = align(subject.outputs("train"), subject.targets("train")).double()
        share = float((targets != targets.clamp(*bounds)).double().mean())
        return self.finding(
            f"The outputs {_range(bounds)}, but {100 * share:.0f} % of the training targets are "
            f"{_side(bounds)}.",
            evidence=(
                Evidence(name="training targets out of reach", value=share, percent=True),
                Evidence(name="share of a constant's loss that remains", value=cost, percent=True),
                Evidence(name="smallest target", value=float(targets.min())),
                Evidence(name="largest target", value=float(targets.max())),
            ),
            sentences=(
                f"Even the best outputs in this range keep {100 * cost:.2g} % of the loss of a "
                "constant prediction.",
            ),
            advice=(_remove(subject.model), *_scale(bounds)),
            charts=(_chart(subject),),
        )

    def _never(self, subject: Subject, bounds: Bounds, stuck: list[int]) -> Finding:
        names = [repr(class_name(subject.classes, k)) for k in stuck]
        several = (
            f"es {', '.join(names[:-1])} and {names[-1]} are" if names[1:] else f" {names[0]} is"
        )
        return self.finding(
            f"The outputs {_range(bounds)}, and {'those' if names[1:] else 'that'} of class{several} "
            "always 0.",
            evidence=(
                Evidence(name="classes whose output is always 0", value=len(stuck)),
                Evidence(name="training error", value=subject.mean_error("train"), percent=True),
            ),
            sentences=(
                "There the activation has no slope, so that no sample changes these outputs any more.",
            ),
            advice=(_remove(subject.model),),
            charts=(_chart(subject),),
        )

    def _logits(self, subject: Subject, bounds: Bounds, cost: float) -> Finding:
        floor = cost * constant_loss(subject)
        return self.finding(
            f"The outputs {_range(bounds)}, but the loss takes logits: it cannot fall below "
            f"{floor:.2f}.",
            evidence=(
                Evidence(name="lowest loss that is possible", value=floor),
                Evidence(name="training loss", value=subject.mean_loss("train")),
            ),
            sentences=("The model seems unsure of all samples, and its gradients are small.",),
            advice=(_remove(subject.model),),
            charts=(_chart(subject),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """End the model with a tanh; in a regression with a ReLU, and half of the targets below 0.

        At half the strength a quarter of the targets is below.
        """
        made, changed = recipe.model, recipe
        end: nn.Module = nn.Tanh()
        if recipe.train[1].is_floating_point():
            end = nn.ReLU()
            middle = recipe.train[1].quantile(0.5 * strength)
            parts = ((inputs, targets - middle) for inputs, targets in (recipe.train, recipe.test))
            train, test = parts
            changed = recipe.replace(train=train, test=test)
        return fit(changed.replace(model=lambda: nn.Sequential(made(), end)), seed=seed).subject()


def _bounds(outputs: Tensor, reach: int) -> Bounds:
    """Return between which of the usual bounds all outputs lie; at least so many must reach them."""
    known = outputs[~outputs.isnan()]
    low, high = (float(known.min()), float(known.max())) if len(known) else (math.nan, math.nan)
    lower = next((b for b in LOWER if low >= b - NEAR), None)
    upper = next((b for b in UPPER if high <= b + NEAR), None)
    if reach and high - low <= NEAR:  # a constant model reaches nothing
        return None, None
    return tuple(  # type: ignore[return-value]
        None if b is None or int(((known - b).abs() <= NEAR).sum()) < reach else b
        for b in (lower, upper)
    )


def _stuck(subject: Subject) -> list[int]:
    """Return the classes of training samples whose output is zero for all of them."""
    if subject.task != "classification":
        return []
    outputs, targets = subject.outputs("train").detach(), subject.targets("train")
    zero = outputs.abs().amax(0) <= NEAR
    return [k for k in zero.nonzero().flatten().tolist() if bool((targets == k).any())]


def _asked(subject: Subject) -> Iterator[Tensor]:
    """Give outputs for samples, for multiples of them, and with multiples of the last weights."""
    inputs = subject.train.take(some_places(subject, "train", ASKED)).inputs
    model = copied(subject.model)
    like = next((weight for weight in model.parameters() if weight.is_floating_point()), None)
    if like is None:
        raise InputError("The model must have weights, got one without any.")
    with evaluating(model):
        for factor in (1.0, FACTOR, -FACTOR):
            yield call(model, mapped(inputs, partial(_times, factor)), like).flatten()
        weights = _last_weights(model, inputs, like)
        for factor in (FACTOR, -1.0):
            for weight in weights:
                weight.mul_(factor)
            yield call(model, inputs, like).flatten()


def _times(factor: float, inputs: Tensor) -> Tensor:
    return inputs * factor if inputs.is_floating_point() else inputs


def _last_weights(model: nn.Module, inputs: object, like: Tensor) -> list[Tensor]:
    """Return the weights of the layer that is called last, of those that have weights."""
    called = list[nn.Module]()
    handles = [
        module.register_forward_hook(lambda module, *_: called.append(module))
        for module in model.modules()
        if any(True for _ in module.parameters(recurse=False))
    ]
    call(model, inputs, like)  # type: ignore[arg-type]
    for handle in handles:
        handle.remove()
    return list(called[-1].parameters(recurse=False)) if called else []


def _least(subject: Subject) -> float:
    return COST if subject.task == "regression" else COST_OF_CLASSES


def _cost(subject: Subject, bounds: Bounds) -> float:
    """Return the loss of the best outputs within the bounds, as a share of that of a constant.

    The loss itself is asked, so that one that takes outputs in other units than the targets is none.
    """
    places = some_places(subject, "train", SAMPLES)
    outputs = subject.outputs("train")[places].detach()
    targets = subject.targets("train")[places].to(outputs.device)
    wanted = align(outputs, targets)
    if subject.task == "regression":
        if wanted.shape != outputs.shape:
            return 0.0
        best = wanted.clamp(*bounds) if bounds != (None, None) else wanted
        lost = errors_of(subject, best, targets) - errors_of(subject, wanted, targets)
        return float(lost.double().mean())
    low, high = ((sign * FAR if b is None else b) for sign, b in zip((-1, 1), bounds, strict=True))
    if subject.task == "classification":
        wanted = nn.functional.one_hot(targets, outputs.shape[1])
    best = torch.where(wanted > 0.5, high, low).to(outputs)
    return float(subject.loss(best, targets).double().mean()) / constant_loss(subject)


def _range(bounds: Bounds) -> str:
    low, high = bounds
    after = f", as after {ACTIVATIONS[bounds]}" if bounds in ACTIVATIONS else ""
    if low is None or high is None:
        return f"cannot {'rise above' if low is None else 'fall below'} {low or high or 0:g}{after}"
    return f"stay between {low:g} and {high:g}{after}"


def _side(bounds: Bounds) -> str:
    return "above" if bounds[0] is None else "below" if bounds[1] is None else "beyond"


def _remove(model: nn.Module) -> Advice:
    last = list(model.children())[-1:] if isinstance(model, nn.Sequential) else []
    plain = any(not any(True for _ in module.parameters()) for module in last)
    return Advice(
        text="Remove the last activation from the model and retrain.",
        code="model = model[:-1]" if plain else "",
    )


def _scale(bounds: Bounds) -> tuple[Advice, ...]:
    low, high = bounds
    if low is None or high is None:
        return ()
    return (
        Advice(
            text=f"Or scale the targets of both splits into {low:g} to {high:g}, by the range of the "
            "training targets.",
            code="low, high = train_targets.min(), train_targets.max()\n"
            f"train_targets = {low:g} + {high - low:g} * (train_targets - low) / (high - low)\n"
            f"test_targets = {low:g} + {high - low:g} * (test_targets - low) / (high - low)",
        ),
    )


def _chart(subject: Subject) -> Histogram:
    sides = {"outputs": subject.outputs("train").detach().flatten()}
    if subject.task == "regression":
        sides["targets"] = subject.targets("train").flatten()
    return Histogram.of(
        sides,
        title="Outputs of the model on training samples",
        x_label="output",
        clip_low=False,
    )
