"""BatchNorm statistics that do not belong to the weights."""

import copy
import dataclasses

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    Mark,
    Recipe,
    Results,
    Subject,
    Which,
    checked_call,
    seeded,
)
from mindgap.core.diagnosis import Severity
from mindgap.ops.evidence.passes import affordable, constant_loss, unlike, unseen
from mindgap.ops.evidence.perceptron import with_layer
from mindgap.ops.evidence.permutation import sign_flip_tail
from mindgap.training.fit import fit

SAMPLES, BATCH = 2_000, 250  # training samples of the new statistics, and per batch
FEW = 64  # training samples of the new statistics of a large model
FEWEST = 20  # below, the statistics of the layer's own samples are noise
# Healthy nets keep a running average over the last batches while the weights still move. In 124
# trained nets (batches of 4 to 250, dropout, large steps) the variances of a layer were off by at
# most |ln| = 0.22 on average over its channels, the means by at most 0.39 standard deviations.
# Beyond are only nets of fewer than 30 steps, whose averages have indeed not arrived.
OFF = 0.6
# Re-estimated statistics lower the loss of healthy nets by up to a third as well, so the loss alone
# accuses nobody. It decides between statistics that harm and layers that were frozen on purpose.
SURE = 1e-3
FALL = 0.1  # of the loss: a smaller change harms nobody, unless predictions change
CHANGED = 0.01  # of the predictions
RISE = 0.01  # of the best constant's loss: by less, new statistics are not worse

CODE = """model.train()
for module in model.modules():
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        module.reset_running_stats()
        module.momentum = None  # a plain average over all batches
with torch.no_grad():
    for inputs, _ in train_loader:
        model(inputs)
model.eval()"""


@dataclasses.dataclass(frozen=True)
class _Layer:
    """How far the stored statistics of a layer are from new ones, on average over its channels."""

    name: str
    variance: float  # |ln| of the ratio
    mean: float  # in standard deviations

    @property
    def off(self) -> float:
        return max(self.variance, self.mean)


class StaleBatchNorm(Diagnosis):
    r"""Look for BatchNorm statistics that do not belong to the weights, and name the layer.

    The statistics are computed from the training data, in training mode, by a copy of the model.

    Formula: $\max_l \max\left( \frac{1}{C_l} \sum_c \left| \ln \frac{v_{lc}}{\hat v_{lc}} \right|,
    \frac{1}{C_l} \sum_c \frac{|m_{lc} - \hat m_{lc}|}{\sqrt{\hat v_{lc}}} \right) > 0.6$

    Reading: In evaluation mode the model is another one than in training. Errors and losses with
    statistics from the training data say how much is lost. If they are worse, the layers were
    frozen on purpose, and the finding is a note.

    Assumes: The training data are those whose statistics the layers should hold.

    >>> from mindgap.studies.diagnoses.healthy import healthy_recipe
    >>> recipe = healthy_recipe("table").replace(epochs=2)
    >>> finding = StaleBatchNorm()(StaleBatchNorm.plant(recipe))
    >>> finding.severity, finding.sentence.split(":")[0]
    ('wrong', "The BatchNorm statistics of '2' do not fit the model")
    """

    stage = "evaluation"
    symptom = "broken evaluation"
    exact = True
    method = ("S3",)
    cites = ("ioffe2015batch",)
    explains = frozenset(
        {
            "constant-predictor",
            "dead-units",
            "ignored-class",
            "noise-sensitivity",
            "over-confidence",
            "over-fitting",
            "permuted-test-classes",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare stored statistics with new ones, and the losses under both."""
        if len(subject.train) < FEWEST or not _tracked(subject.model):
            return None
        renewed = _renewed(subject)
        layers = _compared(subject.model, renewed)
        worst = max(layers, key=lambda layer: layer.off)
        if worst.off <= OFF:
            return None
        return self._judged(subject, _twin(subject, renewed), layers, worst)

    def _judged(
        self, subject: Subject, twin: Subject, layers: list[_Layer], worst: _Layer
    ) -> Finding:
        last = unseen(subject)
        moved = float(unlike(subject, subject.outputs(last), twin.outputs(last)).double().mean())
        data = "test" if last == "test" else "training"
        before, after = subject.mean_loss(last), twin.mean_loss(last)
        return self.finding(
            f"The BatchNorm statistics of {worst.name!r} do not fit the model: {_how_far(worst)}.",
            _severity(subject, twin, moved),
            evidence=(
                Evidence(name=f"{data} loss with the stored statistics", value=before),
                Evidence(name=f"{data} loss with new statistics", value=after),
                Evidence(name=f"{data} predictions that change", value=moved, percent=True),
                Evidence(name="variances off by a factor of", value=_factor(worst.variance)),
                Evidence(name="means off by standard deviations", value=worst.mean),
            ),
            sentences=(
                f"With statistics computed from the training data the {data} loss is {after:.3g} "
                f"instead of {before:.3g}.",
                "In evaluation mode this model is another one than in training.",
            ),
            advice=(
                Advice(text="Compute the statistics again, then save the model.", code=CODE),
                Advice(
                    text="Look for what changed the weights without them: averaged or edited "
                    "weights, a partial checkpoint, a momentum near 0, training in model.eval()."
                ),
            ),
            charts=(_chart(layers),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Multiply the stored variances by random factors around e^3 or e^-3."""
        subject = fit(with_layer(recipe, nn.BatchNorm1d), seed=seed).subject()
        random = torch.Generator().manual_seed(seed)
        for module in _tracked(subject.model).values():
            assert module.running_var is not None
            signs = torch.randint(2, module.running_var.shape, generator=random) * 2 - 1
            module.running_var.mul_((3 * strength * signs).exp())
        return subject


def _tracked(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the layers that hold statistics, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.running_var is not None
    }


def _renewed(subject: Subject) -> nn.Module:
    """Return a copy of the model with statistics that are computed from the training data.

    All layers are in training mode, dropout included: so were they when the statistics were made.
    """
    model = copy.deepcopy(subject.model).train()
    for module in _tracked(model).values():
        module.reset_running_stats()
        module.momentum = None
    random = torch.Generator().manual_seed(0)
    most = affordable(subject, SAMPLES, fewest=FEW)
    order = torch.randperm(len(subject.train), generator=random)[:most]
    parts = [part for part in order.split(BATCH) if len(part) > 1]
    like = next(model.parameters())
    with torch.no_grad(), seeded(0):
        for part in parts:
            checked_call(model, subject.train.take(part).inputs, like)
    return model.eval()


def _twin(subject: Subject, model: nn.Module) -> Subject:
    return Subject(
        model,
        subject.loss,
        subject.train,
        subject.test,
        task=subject.task,
        batch_size=subject.batch_size,
        check_determinism=False,
    )


def _compared(model: nn.Module, renewed: nn.Module) -> list[_Layer]:
    pairs = zip(_tracked(model).items(), _tracked(renewed).values(), strict=True)
    return [_layer(name, stored, new) for (name, stored), new in pairs]


def _layer(name: str, stored: _BatchNorm, new: _BatchNorm) -> _Layer:
    old_var, new_var = (_variance(module) for module in (stored, new))
    assert stored.running_mean is not None
    assert new.running_mean is not None
    distance = (stored.running_mean - new.running_mean).double().abs() / new_var.sqrt()
    return _Layer(name, float((old_var / new_var).log().abs().mean()), float(distance.mean()))


def _variance(module: _BatchNorm) -> Tensor:
    """Return what the layer divides by; eps keeps channels without variance from any distance."""
    assert module.running_var is not None
    return module.running_var.double() + module.eps


def _severity(subject: Subject, twin: Subject, moved: float) -> Severity:
    """Say whether new statistics are better, worse, or hardly change anything."""
    splits: set[Which] = {"train", unseen(subject)}
    falls = [subject.losses(which) - twin.losses(which) for which in splits]
    share = max(
        float(fall.double().mean()) / max(subject.mean_loss(which), 1e-12)
        for fall, which in zip(falls, splits, strict=True)
    )
    # Errors too: a net that dropout made unsure gains confidence, and loss, from wrong statistics.
    falls += [subject.errors(which) - twin.errors(which) for which in splits]
    better = len(falls) * min(map(sign_flip_tail, falls)) < SURE
    if better and (share > FALL or moved > CHANGED):
        return "wrong"
    rise = twin.losses("train") - subject.losses("train")
    worse = float(rise.double().mean()) > RISE * constant_loss(subject)
    return "note" if worse and not better and sign_flip_tail(rise) < SURE else "suspect"


def _factor(log: float) -> float:
    return float(torch.tensor(log, dtype=torch.float64).clamp_max(50).exp())


def _how_far(layer: _Layer) -> str:
    if layer.mean > layer.variance:
        return f"stored means are off by {layer.mean:.2g} standard deviations"
    return f"stored variances are off by a factor of {_factor(layer.variance):.3g}"


def _chart(layers: list[_Layer]) -> Bar:
    return Bar.of(
        {layer.name: layer.off for layer in layers},
        title="How far stored BatchNorm statistics are off",
        y_label="mean |ln variance ratio| or mean distance in standard deviations",
        marks=(Mark(name="beyond healthy nets", y=OFF),),
    )
