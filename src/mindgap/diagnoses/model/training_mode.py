"""A model that was handed over in training mode."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    Recipe,
    Results,
    Series,
    Subject,
    call,
    mean_interval,
    seeded,
)
from mindgap.ops.evidence.passes import (
    SAMPLES,
    affordable,
    errors_of,
    pass_over,
    some_places,
    unlike,
    unseen,
)
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.ops.evidence.permutation import sign_flip_tail
from mindgap.training.fit import fit

PASSES = 4  # in training mode, whose mean error is taken: dropout is random
# That the model is in training mode is certain. The test only says whether it matters.
SURE = 0.01
WORSE = 0.005  # half a point of error, or of the loss: less matters to nobody


class TrainingMode(Diagnosis):
    r"""Look for a model in training mode, and compare its predictions in both modes.

    Formula: $\frac{1}{n} \sum_i \left( e(f_{\text{train}}(x_i), y_i) - e(f_{\text{eval}}(x_i), y_i)
    \right)$

    Reading: All other numbers here are of evaluation mode. Whoever uses the model as it is gets
    random predictions (dropout) or ones that depend on the batch (BatchNorm).

    Assumes: Dropout and BatchNorm are the layers that differ between the modes.

    >>> net = nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5))
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> finding = TrainingMode()(Subject(net, "mse", (x, x)))
    >>> finding.advice[0].code
    'model.eval()'
    >>> TrainingMode()(Subject(net.eval(), "mse", (x, x))) is None
    True
    """

    stage = "evaluation"
    symptom = "broken evaluation"
    exact = True
    method = ("S3",)
    cites = ("srivastava2014dropout", "ioffe2015batch")

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare the errors of both modes if a layer is in training mode."""
        on = _on(subject.model)
        if not on:
            return None
        evaluated, trained, moved = _compared(subject)
        worse = trained - evaluated
        harms = float(worse.mean()) > WORSE and sign_flip_tail(worse) < SURE
        return self._told(subject, on, (evaluated, trained), moved, harms)

    def _told(
        self,
        subject: Subject,
        on: list[str],
        errors: tuple[Tensor, Tensor],
        moved: float,
        harms: bool,
    ) -> Finding:
        rate = subject.task != "regression"
        data = "training" if unseen(subject) == "train" else "test"
        what = f"{data} error" if rate else f"{data} loss, as a share of the baseline's,"
        means = [float(error.mean()) for error in errors]
        intervals = [mean_interval(error.tolist()) for error in errors]
        names = ("in evaluation mode", "in training mode")
        told = f"the {what} is {100 * means[1]:.1f} % instead of {100 * means[0]:.1f} %"
        sentence = (
            f"The model is in training mode: without model.eval() {told}."
            if harms
            else f"The model is in training mode, which changes {100 * moved:.1f} % of its predictions."
        )
        return self.finding(
            sentence,
            "suspect" if harms else "note",
            evidence=(
                *(
                    Evidence(name=f"{what} {name}", value=mean, interval=interval, percent=True)
                    for name, mean, interval in zip(names, means, intervals, strict=True)
                ),
                Evidence(name="predictions that change", value=moved, percent=True),
            ),
            sentences=(
                f"{_listed(on)} in training mode. All numbers here are of evaluation mode.",
            ),
            advice=(Advice(text="Switch to evaluation mode before use.", code="model.eval()"),),
            charts=(
                Bar(
                    title=f"Error on the {data} data by mode",
                    series=(
                        Series(
                            x=names,
                            y=means,
                            low=[interval.low for interval in intervals],
                            high=[interval.high for interval in intervals],
                        ),
                    ),
                    percent=True,
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train with dropout and forget to switch to evaluation mode."""
        rate = 0.5 * min(strength, 1.5)
        made = with_layer(recipe, lambda _: nn.Dropout(rate), after=True)
        subject = fit(made, seed=seed).subject()
        subject.model.train()
        return subject


def _on(model: nn.Module) -> list[str]:
    """Name the layers in training mode that behave otherwise there."""
    return [
        name or type(module).__name__
        for name, module in model.named_modules()
        if module.training
        and (
            (isinstance(module, _DropoutNd) and module.p > 0)
            or (isinstance(module, _BatchNorm) and module.running_var is not None)
        )
    ]


def _compared(subject: Subject) -> tuple[Tensor, Tensor, float]:
    """Return the errors in evaluation mode and in the modes of now, and how much changes."""
    which = unseen(subject)
    some = subject.split(which).subset(
        some_places(subject, which, affordable(subject, SAMPLES, passes=PASSES + 1, fewest=64))
    )
    # A copy, because a pass in training mode moves the statistics of BatchNorm.
    model = copy.deepcopy(subject.model)
    like = next(model.parameters(), torch.empty(0))
    answer = lambda inputs: call(model, inputs, like)  # noqa: E731
    with seeded(0):
        trained = [pass_over(answer, some, subject.batch_size) for _ in range(PASSES)]
    model.eval()
    evaluated = pass_over(answer, some, subject.batch_size)
    errors = [errors_of(subject, out, some.targets).double() for out in (evaluated, *trained)]
    moved = float(unlike(subject, evaluated, trained[0]).double().mean())
    return errors[0], torch.stack(errors[1:]).mean(0), moved


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:3])) + (" and others" if len(names) > 3 else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'}"
