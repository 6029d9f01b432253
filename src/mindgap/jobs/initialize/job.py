"""initialize: follow a batch through a network as it is, and as every scheme would start it."""

import math
from collections.abc import Sequence

from torch import nn

from mindgap.core import InputError, Progress, Subject, integer, validated
from mindgap.jobs.initialize.answer import PLACES, Initialization, Origin, told
from mindgap.jobs.initialize.weights import weights_of
from mindgap.ops.initialization.propagation import Propagation, propagation
from mindgap.ops.initialization.reinitialize import redrawn
from mindgap.ops.initialization.schemes import Fan, Scheme, SchemeName
from mindgap.ops.initialization.subject import batch_of, initial_model
from mindgap.training.fitted import Fitted

ALL: tuple[SchemeName, ...] = SchemeName.__args__  # type: ignore[attr-defined]


@validated
def initialize(
    subject: Subject | Fitted,
    *,
    schemes: Sequence[str] | None = None,
    fan: Fan = "in",
    gain: float | None = None,
    samples: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Initialization:
    """Tell whether signals and gradients pass a network's initial weights, and which are better.

    One batch of training data passes through the network with its initial weights, and through
    copies that every scheme re-initialized. The scheme is suggested whose signals and gradients
    stay furthest from the limits of healthy networks. The batch alone decides; test data are not
    used. The model is not changed.

    Args:
        subject: A model with its loss and data, or what ``fit`` returned. Its initial weights are
            followed if it has any or a recipe that makes them, otherwise its weights as they are.
        schemes: Names of schemes, as in ``mindgap.reinitialized``; by default all that take
            ``fan`` and ``gain``, and "identity" of recurrent networks only.
        fan: Whether Kaiming's schemes keep the variance of activations ("in") or of gradients
            ("out").
        gain: The factor of all weights; by default it follows from the pass, layer by layer.
        samples: How many training samples to follow; by default 256, or fewer of a large network.
        seed: Seed of the draws.
        progress: Whether to show a progress bar.

    >>> import torch
    >>> layers = [nn.Linear(8, 8, bias=False) for _ in range(20)]
    >>> for layer in layers:
    ...     _ = layer.weight.data.copy_(0.1 * torch.eye(8))
    >>> x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    >>> found = initialize(Subject(nn.Sequential(*layers), "mse", (x, x)), schemes=["orthogonal"])
    >>> found.verdict.kind, found.suggested
    ('vanishing signals', 'orthogonal')
    >>> [(row.name, round(row.forward, 3)) for row in found.weights]
    [('as it is', 0.01), ('orthogonal', 1.0)]
    """
    subject = subject.subject() if isinstance(subject, Fitted) else subject
    if samples is not None:
        integer("samples", samples, 2)
    integer("seed", seed, 0)
    chosen = None if schemes is None else _named(schemes, fan, gain)
    if len(subject.train) < 2:
        raise InputError(
            "The subject must have at least two training samples, got one. Signals are what differs "
            "between samples."
        )
    model, origin = _before(subject)
    inputs, loss = batch_of(subject, samples)
    found = propagation(model, inputs, loss=loss)
    _check(found)
    rows = [weights_of("as it is" if origin == "model" else "initial", PLACES[origin], found)]
    chosen = chosen or _named(_applicable(fan, gain, _recurrent(model, found)), fan, gain)
    best, suggested, kept = model, chosen[0].name, list[str]()
    with Progress(len(chosen), unit="scheme", title="initialize", shown=progress) as bar:
        for how in chosen:
            fresh, kept = redrawn(model, inputs, how, seed)
            moments = propagation(fresh, inputs, loss=loss)
            rows.append(weights_of(how.name, f"with {how.name}", moments))
            # Of schemes that are equally good, the first is kept.
            if rows[-1].share < min((row.share for row in rows[1:-1]), default=math.inf):
                best, suggested = fresh, how.name
            bar.advance()
    return told(
        subject.name,
        origin,
        rows,
        suggested=suggested,
        kept=tuple(kept),
        model=best,
        samples=len(next(iter(inputs.values() if isinstance(inputs, dict) else inputs))),
        fan=fan,
        gain=gain,
        seed=seed,
    )


def _before(subject: Subject) -> tuple[nn.Module, Origin]:
    """Return the network before training if it is known, and where its weights are from."""
    model = initial_model(subject)
    if model is None:
        return subject.model, "model"
    return model, "recipe" if subject.initial is None else "initial"


def _check(found: Propagation) -> None:
    names = {row.layer for row in found.layers}
    if len(names) < 2:
        raise InputError(
            f"The model must have at least two layers with weights, got one: {min(names)!r}. Signals "
            "vanish or explode from layer to layer."
        )


def _recurrent(model: nn.Module, found: Propagation) -> bool:
    """Tell whether any weights are called again and again, which is what "identity" is for."""
    again = any(row.layer != row.name for row in found.layers)
    return again or any(isinstance(part, nn.RNNBase) for part in model.modules())


def _applicable(fan: Fan, gain: float | None, recurrent: bool) -> list[SchemeName]:
    """List the schemes that take these settings."""
    return [
        name
        for name in ALL
        if (fan == "in" or name.startswith("kaiming"))
        and (gain is None or name != "lsuv")
        and (recurrent or name != "identity")
    ]


def _named(names: Sequence[str], fan: Fan, gain: float | None) -> list[Scheme]:
    if not names:
        raise InputError("schemes must name at least one scheme, got none. Leave it out for all.")
    return [Scheme(name, fan, gain) for name in dict.fromkeys(names)]  # type: ignore[arg-type]
