"""A short run: train a copy of a model for a few steps and see whether its losses still fall."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Subject, Which, call, same_environment, seeded
from mindgap.core.split import Batch, Inputs
from mindgap.ops.evidence.calibration import tempered_losses
from mindgap.ops.evidence.passes import counted
from mindgap.ops.evidence.permutation import sign_flip_tail

# Two hundred steps at three times Adam's usual rate tell a net that was stopped early (its loss falls
# by a third and more) from one that is too small (a tenth and less); a hundred at 1e-3 do not.
STEPS, BATCH, RATE = 200, 64, 3e-3
SMALL_BATCH = 16  # of expensive models: many small steps go further than few large ones
HELD = 1000  # training samples that the run does not use, on which its effect is measured
TESTED = 2000  # test samples on which its effect is measured
# The work is counted, not timed: the same subject must give the same numbers on every machine.
WORK = 1.2e10  # operations, about half a CPU second
PER_WEIGHT = 60  # operations that a step of Adam takes per weight, by time
LEAST = 20  # steps below which a run says nothing
MOST_WORK = 3 * WORK  # a model that needs more for LEAST steps is not tried

Start = Literal["present", "initial"]


@dataclasses.dataclass(frozen=True)
class Brake:
    """What a short run trains under; nothing by default.

    Args:
        noise: Whether the copy is in training mode, where dropout and other noise act.
        decay: The weight decay.
        decoupled: Whether the decay is apart from the gradient, as AdamW has it.
    """

    noise: bool = False
    decay: float = 0.0
    decoupled: bool = False


FREE = Brake()


@dataclasses.dataclass(frozen=True)
class ShortRun:
    """Losses before and after the run, sample by sample.

    Where the model is over-confident on its training data, the losses are those of its logits
    divided by their best temperature: otherwise a run that shrinks all outputs would seem to learn.

    Args:
        places: Places of the training samples that the run did not use.
        before: Their losses before the run.
        after: Their losses after the run.
        outputs: The outputs of these samples after the run.
        test_before: Losses of test samples before the run; empty without test data.
        test_after: Their losses after the run.
        steps: How many steps it took.
        epochs: How many samples it saw, as a multiple of the training data.
    """

    places: Tensor
    before: Tensor
    after: Tensor
    outputs: Tensor
    test_before: Tensor
    test_after: Tensor
    steps: int
    epochs: float

    @property
    def fall(self) -> float:
        """The share of the loss that the run saved, on held-out training samples."""
        return _fall(self.before, self.after)

    @property
    def test_fall(self) -> float:
        """The share of the test loss that the run saved; that of training samples without test."""
        return _fall(self.test_before, self.test_after) if len(self.test_after) else self.fall

    @property
    def p_value(self) -> float:
        """How likely a run of no use lowers both losses so much by chance."""
        parts = [self.before - self.after, self.test_before - self.test_after]
        return max(sign_flip_tail(part) for part in parts if len(part))


def _fall(before: Tensor, after: Tensor) -> float:
    return 1 - float(after.mean()) / max(float(before.mean()), 1e-300)


def short_run(
    subject: Subject, start: Start = "present", times: int = 1, brake: Brake = FREE
) -> ShortRun:
    """Train a copy of the model for a few steps, once per subject.

    The copy is in evaluation mode, so that statistics of batches stay and nothing is dropped, unless
    noise is wanted. The losses are those in evaluation mode in either case. The rate falls to zero:
    the noise of the last steps would hide whether the loss falls.

    Args:
        subject: With a model that has gradients.
        start: Whether to begin from the present weights or from those before training. The losses
            "before" are those of the present model in either case.
        times: How many times as many steps to take as usual.
        brake: What to train under, such as the dropout of the model.

    >>> x = torch.linspace(-1, 1, 400)[:, None]
    >>> run = short_run(Subject(nn.Linear(1, 1), "mse", (x, 0.5 * x)))
    >>> run.steps, bool(run.after.mean() < run.before.mean())
    (200, True)
    """
    return subject.cached(
        ("short run", start, times, brake), lambda: _short_run(subject, start, times, brake)
    )


@same_environment()
def _short_run(subject: Subject, start: Start, times: int, brake: Brake) -> ShortRun:
    random = torch.Generator().manual_seed(0)
    order = torch.randperm(len(subject.train), generator=random)
    held, used = order[: min(HELD, len(order) // 4)], order[min(HELD, len(order) // 4) :]
    tested = _tested(subject, random)
    model = _copy(subject, start, brake.noise)
    with seeded(0):  # of dropout
        steps, batch = _plan(model, subject, used, times)
        picks = used[torch.randint(len(used), (steps, batch), generator=random)]
        _train(model, subject, picks, brake)
    outputs = _outputs(model, subject, "train", held)
    test_outputs = _outputs(model, subject, "test", tested)
    return ShortRun(
        held,
        _losses(subject, "train", held, subject.outputs("train").detach()[held]),
        _losses(subject, "train", held, outputs),
        outputs,
        _losses(subject, "test", tested, _known(subject, tested)),
        _losses(subject, "test", tested, test_outputs),
        steps,
        steps * batch / len(order),
    )


def _tested(subject: Subject, random: torch.Generator) -> Tensor:
    if subject.test is None:
        return torch.empty(0, dtype=torch.long)
    return torch.randperm(len(subject.test), generator=random)[:TESTED]


def _known(subject: Subject, places: Tensor) -> Tensor:
    return subject.outputs("test").detach()[places] if len(places) else torch.empty(0)


def _losses(subject: Subject, which: Which, places: Tensor, outputs: Tensor) -> Tensor:
    if not len(places):
        return torch.empty(0, dtype=torch.float64)
    targets = subject.targets(which)[places.to(subject.targets(which).device)]
    return tempered_losses(subject, outputs, targets).double().cpu()


def _copy(subject: Subject, start: Start, noise: bool) -> nn.Module:
    twin = copy.deepcopy(subject.model).train(noise)
    if start == "initial":
        if subject.initial is None:
            raise InputError("A short run from the start must have initial weights, got none.")
        twin.load_state_dict(subject.initial)
    for module in twin.modules():
        if isinstance(module, nn.RNNBase):  # its fast kernels have gradients in training mode only
            module.train()
            module.dropout *= noise
    if not any(weight.requires_grad for weight in twin.parameters()):
        for weight in twin.parameters():
            weight.requires_grad_(weight.is_floating_point())
    return twin


def _plan(model: nn.Module, subject: Subject, used: Tensor, times: int) -> tuple[int, int]:
    """Return how many steps of how many samples fit into the work.

    A forward and a backward pass cost about three forward passes.
    """
    batch = subject.train.take(used[:BATCH])
    with torch.no_grad():
        found = counted(lambda: call(model, batch.inputs, _like(model)))
    weights = PER_WEIGHT * sum(weight.numel() for weight in model.parameters())
    sample = 3.0 * found / len(batch.target)
    if LEAST * (sample * SMALL_BATCH + weights) > MOST_WORK:
        raise InputError(
            f"A short run must take at most {MOST_WORK:.0e} operations, got a model that takes "
            f"{sample:.0e} per sample. Train it longer yourself and compare."
        )
    fitting = (WORK / STEPS - weights) / max(sample, 1.0)
    size = int(min(BATCH, max(SMALL_BATCH, fitting)))
    most = times * WORK // (sample * size + weights + 1)
    return int(min(times * STEPS, max(LEAST, most))), size


def _like(model: nn.Module) -> Tensor:
    found = next((weight for weight in model.parameters() if weight.is_floating_point()), None)
    if found is None:
        raise InputError("A short run must have weights to train, got a model without any.")
    return found


def _train(model: nn.Module, subject: Subject, picks: Tensor, brake: Brake) -> None:
    weights, like = [w for w in model.parameters() if w.requires_grad], _like(model)
    rate = RATE * max(picks.shape[1] / BATCH, 1 / 3)  # small batches are noisy
    kind = torch.optim.AdamW if brake.decoupled else torch.optim.Adam
    optimizer = kind(weights, lr=rate, weight_decay=brake.decay)
    batch, targets = subject.train.take(picks.flatten()), subject.targets("train")
    inputs = _cut(batch, picks.shape[1])
    for step, places in enumerate(picks):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / len(picks))
        optimizer.zero_grad()
        with torch.enable_grad():
            output = call(model, inputs(step), like)
            loss = subject.loss(output, targets[places.to(targets.device)]).mean()
            if not loss.requires_grad:
                raise InputError("A short run must have gradients, got a model without any.")
            loss.backward()
        optimizer.step()


def _cut(batch: Batch, size: int) -> Callable[[int], Inputs]:
    """Return a function that gives the inputs of a step out of those of all steps."""

    def inputs(step: int) -> Inputs:
        span = slice(step * size, (step + 1) * size)
        if isinstance(batch.inputs, dict):
            return {name: value[span] for name, value in batch.inputs.items()}
        return tuple(value[span] for value in batch.inputs)

    return inputs


def _outputs(model: nn.Module, subject: Subject, which: Which, places: Tensor) -> Tensor:
    if not len(places):
        return torch.empty(0)
    model.eval()
    with torch.no_grad():
        parts = [
            call(model, subject.split(which).take(some).inputs, _like(model))
            for some in places.split(subject.batch_size)
        ]
    return torch.cat(parts)
