"""lipschitz: the constant from below and above, and radii within which no prediction changes."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.core import InputError, Progress, Subject, Which, generator, integer, number, validated
from mindgap.jobs.lipschitz.answer import Lipschitz, told
from mindgap.jobs.lipschitz.around import Nearby, around_samples
from mindgap.ops.attacks.scene import attackable
from mindgap.ops.lipschitz.local import certified_radii
from mindgap.ops.lipschitz.lower import lipschitz_lower
from mindgap.ops.lipschitz.tight import STEPS
from mindgap.ops.lipschitz.upper import upper_of
from mindgap.ops.norms.layer_norms import layer_norms
from mindgap.training.fitted import Fitted

POINTS = 40  # radii of the curve, unless they are given


@validated
def lipschitz(
    subject: Subject | Fitted,
    *,
    radii: Sequence[float] | None = None,
    samples: int = 1000,
    steps: int = STEPS,
    seconds: float | None = None,
    ascent: int = 150,
    starts: int = 16,
    inside: bool = False,
    local: int = 0,
    ball: float | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Lipschitz:
    """Bound how fast a model's outputs can change, and certify its predictions.

    The upper bound is proved for all inputs; the lower bound is a slope that the model has at a
    place that is found. The certified accuracy counts right predictions that no change up to a
    Euclidean radius can break.

    Args:
        subject: A model with its loss and data, or what ``fit`` returned. Its test data are
            certified, or the training data if there are none.
        radii: Euclidean radii of the curve; by default from zero to the largest that is certified.
        samples: How many samples to certify, and to start the ascent from, at most.
        steps: Steps that improve the upper bound, at most.
        seconds: CPU seconds after which no further step begins; every step is a certificate. None
            for no limit, so that the bound does not depend on the machine.
        ascent: Steps of the search for the steepest place.
        starts: From how many places: samples, places around them, and nearer to zero.
        inside: Whether it must stay in the range of the training inputs. The upper bound is for all
            inputs in any case.
        local: How many samples get a bound of their own, in a ball around them. Each takes about
            as long as two global bounds, or a quarter of one if the ball is given.
        ball: The Euclidean radius of these balls; by default the one of each right prediction that
            certifies the largest radius. Tasks without classes need it.
        seed: Seed of the choice of samples.
        progress: Whether to show a progress bar.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> found = lipschitz(Subject(model, "mse", (torch.eye(2), torch.eye(2))))
    >>> round(found.lower, 6), round(found.upper, 6), found.method
    (4.0, 4.0, 'tight')
    """
    subject = subject.subject() if isinstance(subject, Fitted) else subject
    for name, value in (("samples", samples), ("starts", starts)):
        integer(name, value)
    for name, value in (("steps", steps), ("ascent", ascent), ("local", local), ("seed", seed)):
        integer(name, value, 0)
    if ball is not None and number("ball", ball) == 0:
        raise InputError("ball must be above zero, got 0. Leave it out to search the best.")
    limit = math.inf if seconds is None else number("seconds", seconds)
    wanted = None if radii is None else _radii(radii)
    which: Which = "train" if subject.test is None else "test"
    with Progress(3 + local, unit="stage", title="lipschitz", shown=progress) as bar:
        training = attackable(subject, "train", _places(len(subject.train), samples, seed))
        upper = upper_of(subject, steps, limit)
        bar.advance()
        box = (training.amin(0), training.amax(0)) if inside else None
        lower = lipschitz_lower(subject.model, training, steps=ascent, starts=starts, box=box)
        bar.advance()
        layers = layer_norms(subject.model, training[:1])
        places = _places(len(subject.split(which)), samples, seed)
        certified = None
        if subject.task == "classification":
            certified = certified_radii(
                subject.outputs(which).cpu()[places],
                subject.targets(which).cpu()[places],
                pairs=upper.pairs(),
                constant=upper.upper,
            )
        bar.advance()
        near = tuple[Nearby, ...]()
        if local:
            near = around_samples(
                subject, which, places, certified, upper, local, ball, seed, bar.advance
            )
    grid = wanted or _grid(certified)
    return told(subject, which, places, upper, lower, layers, certified, grid, near)


def _places(count: int, most: int, seed: int) -> Tensor:
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=generator(seed))[:most].sort().values


def _radii(radii: Sequence[float]) -> tuple[float, ...]:
    if not len(radii):
        raise InputError("radii must hold at least one radius, got none. Leave it out.")
    return tuple(sorted({number("radii", radius) for radius in radii}))


def _grid(certified: Tensor | None) -> tuple[float, ...]:
    largest = 0.0 if certified is None or not len(certified) else float(certified.max())
    return tuple(largest * k / POINTS for k in range(POINTS + 1)) if largest > 0 else (0.0,)
