"""leave_one_out: train once without each of some samples, all at once."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import stack_module_state
from torch.utils.flop_counter import FlopCounterMode

from mindgap.core import (
    InputError,
    Inputs,
    Recipe,
    Split,
    Subject,
    Which,
    call,
    evaluating,
    same_environment,
    typed,
    validated,
    with_weights,
)
from mindgap.ops.models.parameters import vmap_or_loop
from mindgap.training.fitted import Fitted

CACHED = 20_000_000  # bytes of members trained together; with more, activations leave the cache
AT_ONCE = 4_000_000  # outputs and weights of members that are held together


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """The losses of a model, and of one retrained without each of some samples.

    Args:
        places: Places of the removed samples in the training data.
        before: Losses of all training samples and then all test samples, trained on all data.
        after: The same losses after each removal, one row per place.
        samples: Number of training samples.
        members: The model trained on all data, and then one per place.
    """

    places: Tensor
    before: Tensor
    after: Tensor
    samples: int
    members: tuple[Fitted, ...]

    @property
    def own(self) -> Tensor:
        """How much the loss of each removed sample rises when it is removed."""
        rows = torch.arange(len(self.places))
        return self.after[rows, self.places] - self.before[self.places]

    @property
    def largest(self) -> Tensor:
        """The largest change of any sample's loss, for each removed sample."""
        return (self.after - self.before).abs().amax(1)


@validated
@same_environment()
def leave_one_out(subject: Subject, places: Tensor) -> LeftOut:
    """Train a subject's recipe on all its data, and once without each of some samples.

    A removed sample keeps its place in the batches and gets the weight zero. All trainings see the
    same batches, so removals differ by the sample alone, and one vectorized call trains them all.

    Args:
        subject: With the recipe and the seed that trained it.
        places: Places in the training data of the samples to remove, one training each.

    Returns:
        The losses of all samples before and after each removal.

    >>> from mindgap.nets import MLP
    >>> x = torch.linspace(-1, 1, 6)[:, None]
    >>> recipe = Recipe(model=lambda: MLP((1, 4, 1)), train=(x, x**2), loss="mse", epochs=2)
    >>> subject = Subject(recipe.build(0), "mse", (x, x**2), recipe=recipe)
    >>> leave_one_out(subject, torch.arange(6)).after.shape
    torch.Size([6, 6])
    """
    # Every examination loads this file, and few train.
    from mindgap.training.ensemble import ensemble
    from mindgap.training.vectorized.block import members_at_once

    recipe = repeated(subject)
    weights = removal_weights(recipe.weights(subject.train), places, len(subject.train))
    members = ensemble(
        recipe.replace(sample_weights=None),
        [subject.seed] * len(weights),
        sample_weights=weights,
        keep_history=False,
        block=members_at_once(subject.model, recipe, CACHED),
    )
    stopped = next((member.stopped for member in members if member.stopped), "")
    if stopped:
        raise InputError(
            f"Training without a sample must end as the recipe says, got one that {stopped}. Lower "
            "the learning rate."
        )
    splits: list[Which] = ["train"] if subject.test is None else ["train", "test"]
    models = [member.model for member in members]
    losses = torch.cat([member_losses(subject, models, which) for which in splits], 1)
    return LeftOut(places, losses[0], losses[1:], len(subject.train), members)


def repeated(subject: Subject) -> Recipe:
    """Return the recipe of a subject, on the subject's own data."""
    if subject.recipe is None:
        raise InputError(
            "Retraining needs the recipe of the model, got a subject without. Pass recipe=… to "
            "Subject, or use fit(recipe).subject()."
        )
    return subject.recipe.replace(train=subject.train, test=None)


def removal_weights(weights: Tensor | None, places: Tensor, samples: int) -> Tensor:
    """Make the sample weights of all trainings: nothing removed, then one place per row.

    Args:
        weights: The recipe's own weights, if it has any.
        places: The samples to remove.
        samples: Number of training samples.

    >>> removal_weights(None, torch.tensor([2]), 3).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
    """
    own = torch.ones(samples) if weights is None else weights
    rows = own.repeat(len(places) + 1, 1)
    rows[torch.arange(1, len(rows)), places] = 0
    return rows


def member_losses(subject: Subject, models: Sequence[nn.Module], which: Which) -> Tensor:
    """Compute the losses of all samples for many models of one kind, in double precision.

    Args:
        subject: Its data and loss.
        models: Models that differ in their weights alone.
        which: The split.

    Returns:
        One row per model, one column per sample.
    """
    outputs = member_outputs(models, subject.split(which), subject.batch_size)
    targets = typed(subject.split(which).targets, subject.task, outputs[0])
    # The loss takes samples along the first dimension; those of all models make one long batch.
    flat = targets.repeat(len(models), *[1] * (targets.ndim - 1))
    losses = subject.loss(outputs.flatten(0, 1).double(), _double(flat))
    return losses.view(len(models), -1)


def member_outputs(models: Sequence[nn.Module], split: Split, batch_size: int) -> Tensor:
    """Compute the outputs of many models of one kind: models × samples × outputs.

    Args:
        models: Models that differ in their weights alone.
        split: The samples.
        batch_size: How many samples go through a model at once.
    """
    size = sum(value.numel() for value in models[0].state_dict().values())
    block = max(1, AT_ONCE // max(size, 64 * batch_size))
    parts = [models[k : k + block] for k in range(0, len(models), block)]
    return torch.cat([_outputs(part, split, batch_size) for part in parts])


def _outputs(models: Sequence[nn.Module], split: Split, batch_size: int) -> Tensor:
    weights, buffers = stack_module_state(list(models))
    states = {name: value.detach() for name, value in {**weights, **buffers}.items()}
    like = next(iter(states.values()))

    def answer(state: dict[str, Tensor], inputs: Inputs) -> Tensor:
        def model(*given: Tensor, **named: Tensor) -> Any:
            return with_weights(models[0], state, given, named)

        return call(cast("nn.Module", model), inputs, like)

    with torch.no_grad():
        found = [
            vmap_or_loop(functools.partial(answer, inputs=batch.inputs), states)
            for batch in split.batches(batch_size)
        ]
    return torch.cat(found, 1)


def _double(targets: Tensor) -> Tensor:
    return targets.double() if targets.is_floating_point() else targets


def operations(subject: Subject, trainings: int) -> float:
    """Estimate the operations of some trainings of the subject's recipe.

    A forward and a backward pass cost about three forward passes.

    Args:
        subject: With the recipe that trained it.
        trainings: How many there are.
    """
    recipe, batch = repeated(subject), subject.train.take(torch.arange(1))
    counting = FlopCounterMode(display=False)
    # Without gradients it fails on a model that returns a view of a weight.
    with evaluating(subject.model), torch.enable_grad(), counting as counter:
        subject.forward(batch.inputs)
    passes = 3.0 * recipe.epochs * len(subject.train) * trainings
    return passes * float(counter.get_total_flops())
