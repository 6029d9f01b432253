"""A rival: a small perceptron that is trained from scratch in a moment, to see what is attainable."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core import Subject, Which, align, binomial_upper_tail, same_environment, seeded
from mindgap.ops.evidence.fit import SURE, WORSE, WORSE_FACTOR, WORSE_SHARE, Fit, fit_quality
from mindgap.ops.evidence.permutation import sign_flip_tail
from mindgap.ops.evidence.reference import reference
from mindgap.ops.evidence.rows import components, rows

WIDTH, STEPS, BATCH, RATE = 64, 300, 128, 1e-2
FOLDS = (
    4  # of the training samples, each of which is left out once: a quarter of them shows too little
)
LIKELY = 0.01  # p-value below which the training samples must speak for the rival too


def attainable(subject: Subject) -> Fit:
    """Compare training errors with what others reach on samples that they have not seen.

    The reference predictor is compared first. Where the model does not lose against it, a small
    perceptron is trained on three quarters of the training data, and judged on the rest and on the
    test data; so four times, until every training sample was left out once. Smooth functions of many
    inputs are easy for it and hard for the reference.

    Args:
        subject: With test data.

    >>> x = torch.linspace(-1, 1, 400)[:, None]
    >>> flat = nn.Linear(1, 1)
    >>> _ = nn.init.zeros_(flat.weight), nn.init.zeros_(flat.bias)
    >>> attainable(Subject(flat, "mse", (x[::2], x[::2].sin()), (x[1::2], x[1::2].sin()))).under
    True
    """
    return subject.cached("attainable fit", lambda: _attainable(subject))


def _attainable(subject: Subject) -> Fit:
    quality = fit_quality(subject)
    if quality.under or quality.model < (WORSE if subject.task != "regression" else WORSE_SHARE):
        return quality
    found = _against_rival(subject)
    return found if found.under else quality


def _against_rival(subject: Subject) -> Fit:
    held, train_errors, test_errors = _rival_errors(subject)
    model = _model_errors(subject, "train")[held], _model_errors(subject, "test")
    targets = reference(subject).train_targets
    unit = 1.0
    if subject.task == "regression":
        unit = max(float(targets.double().var(0, correction=0).mean()), 1e-300)
    ours, theirs = float(model[0].mean()) / unit, float(train_errors.mean()) / unit
    matters = (
        ours > WORSE_FACTOR * theirs + WORSE_SHARE
        if subject.task == "regression"
        else ours > theirs + WORSE
    )
    seen = _p_value(subject, model[0], train_errors)
    pooled = _p_value(subject, torch.cat(model), torch.cat([train_errors, test_errors]))
    p_value = max(seen, pooled) if seen > LIKELY else pooled
    return Fit(ours, theirs, p_value, matters and p_value < SURE)


def _p_value(subject: Subject, ours: Tensor, theirs: Tensor) -> float:
    if subject.task == "classification":
        worse, better = int((ours > theirs).sum()), int((ours < theirs).sum())
        return binomial_upper_tail(worse, worse + better, 0.5)
    return sign_flip_tail(ours - theirs)


def _model_errors(subject: Subject, which: Which) -> Tensor:
    places = rows(subject, which).places
    if subject.task != "regression":
        return subject.errors(which).detach().cpu()[places].double()
    outputs, targets = subject.outputs(which).detach(), subject.targets(which)
    squares = (outputs - align(outputs, targets)).double().square()
    return squares.reshape(len(squares), -1).mean(1).cpu()[places]


@same_environment()
def _rival_errors(subject: Subject) -> tuple[Tensor, Tensor, Tensor]:
    """Return in which order training rows were held out, the errors there, and on the test data."""
    random = torch.Generator().manual_seed(0)
    inputs, test_inputs = components(subject)
    scale = inputs.std().clamp_min(1e-6)
    inputs, test_inputs = inputs / scale, test_inputs / scale
    known = reference(subject)
    order = torch.randperm(len(inputs), generator=random)
    center, spread = known.train_targets.mean(0), known.train_targets.std(0).clamp_min(1e-6)
    if subject.task != "regression":
        center, spread = torch.zeros_like(center), torch.ones_like(spread)
    errors, test_errors = list[Tensor](), list[Tensor]()
    for held in order.tensor_split(FOLDS):
        used = order[~torch.isin(order, held)]
        net = _trained(inputs[used], (known.train_targets[used] - center) / spread, subject, random)
        with torch.no_grad():
            outputs = [net(part) * spread + center for part in (inputs[held], test_inputs)]
        errors.append(_errors(subject, outputs[0], known.train_targets[held]))
        test_errors.append(_errors(subject, outputs[1], known.test_targets))
    return order, torch.cat(errors), test_errors[0]  # of one net, as the model is one


def _trained(
    inputs: Tensor, targets: Tensor, subject: Subject, random: torch.Generator
) -> nn.Module:
    with seeded(0):
        net = nn.Sequential(
            nn.Linear(inputs.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, targets.shape[1])
        )
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    picks = torch.randint(len(inputs), (STEPS, BATCH), generator=random)
    with torch.enable_grad():
        for step, places in enumerate(picks):
            optimizer.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
            optimizer.zero_grad()
            _loss(subject, net(inputs[places]), targets[places]).backward()
            optimizer.step()
    return net


def _loss(subject: Subject, outputs: Tensor, targets: Tensor) -> Tensor:
    if subject.task == "classification":
        return F.cross_entropy(outputs, targets)
    if subject.task == "multilabel":
        return F.binary_cross_entropy_with_logits(outputs, targets)
    return F.mse_loss(outputs, targets)


def _errors(subject: Subject, outputs: Tensor, targets: Tensor) -> Tensor:
    if subject.task == "classification":
        return (outputs.argmax(1) != targets.argmax(1)).double()
    if subject.task == "multilabel":
        return ((outputs > 0) != (targets > 0.5)).double().mean(1)
    return (outputs - targets).double().square().mean(1)
