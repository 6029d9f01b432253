"""Certificates without noise on the weights: of one held-out model, and of a stream of models."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mindgap._version import __version__
from mindgap.core import (
    Certificate,
    InputError,
    Inputs,
    Recipe,
    Split,
    binomial_tail_inverse,
    call,
    evaluating,
    instability,
    kl_inverse,
)
from mindgap.ops.pac_bayes import bounds as pac_bayes
from mindgap.ops.pac_bayes.hessian import bounded_cross_entropy
from mindgap.training.certify.material import Material, parted
from mindgap.training.certify.settings import Settings
from mindgap.training.fit import fit

Answer = Callable[[Inputs], Tensor]


class StreamModel(nn.Module):
    """Models of a stream, of which one is drawn at random for every answer.

    Args:
        models: The models.
        sizes: How many samples each of them was judged on; its chance is proportional to this.
    """

    def __init__(self, models: list[nn.Module], sizes: list[int]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.sizes = sizes
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Answer every sample by a model drawn for it."""
        answers = torch.stack([model(*inputs, **named) for model in self.models], 1)
        chance = torch.tensor(self.sizes, dtype=torch.float64)
        drawn = torch.multinomial(chance, len(answers), replacement=True, generator=self.generator)
        return answers[torch.arange(len(answers)), drawn.to(answers.device)]


def answer_of(network: nn.Module) -> Answer:
    """Return the outputs of a network in evaluation mode, as a function of the inputs."""
    like = next(iter(network.parameters()), torch.empty(0))

    def answer(inputs: Inputs) -> Tensor:
        with evaluating(network), torch.no_grad():
            return call(network, inputs, like)

    return answer


def judged(answer: Answer, split: Split, floor: float = 1e-5) -> tuple[int, float]:
    """Count the errors, and compute the mean bounded cross entropy."""
    wrong, loss = 0, 0.0
    for batch in split.batches(512):
        outputs = answer(batch.inputs)
        targets = batch.target.to(outputs.device, torch.long)
        wrong += int(((outputs.argmax(1) != targets) | ~torch.isfinite(outputs).all(1)).sum())
        loss += float(bounded_cross_entropy(outputs, targets, floor).double().sum())
    return wrong, loss / len(split)


def fixed_rate(material: Material, answer: Answer, delta: float) -> float | None:
    """Fix λ by the data of a learned prior, which are not the bound data.

    With the upper limit q of the prior's error on its own share and the kl inverse p of ln(1/δ)/n
    it is ln(p(1 - q)/(q(1 - p))): the best λ if new samples show the same error and the KL is zero.
    A prior that knows its share by heart makes λ too large, which costs tightness only.
    """
    if material.learned_on is None:
        return None
    wrong, _ = judged(answer, material.learned_on)
    seen = min(0.5, binomial_tail_inverse(wrong, len(material.learned_on), delta))
    above = kl_inverse(seen, math.log(1 / delta) / len(material.bound))
    return _best_rate(seen, above)


def _best_rate(seen: float, above: float) -> float:
    odds = math.log(above / seen) - math.log((1 - above) / (1 - seen))
    return min(odds, pac_bayes.LARGEST_INVERSE_TEMPERATURE)


def held_out(material: Material, settings: Settings) -> dict[str, Any]:
    """Bound the error of the prior's network, as it is, by the binomial tail."""
    answer = answer_of(material.network)
    (wrong, loss), count = judged(answer, material.bound, settings.floor), len(material.bound)
    test = None if material.test is None else judged(answer, material.test)[0] / len(material.test)
    return {
        **_common(material, wrong / count, loss),
        "bound": binomial_tail_inverse(wrong, count, settings.delta / settings.tried),
        "theorem": "binomial",
        "test_error": test,
        "broken": material.broken or instability(answer, material.bound),
        "model": material.network,
    }


def progressive(
    recipe: Recipe, material: Material, settings: Settings, share: float, blocks: int
) -> dict[str, Any]:
    r"""Judge every block of a stream by a model that was trained on what came before it.

    Given the past, the errors of block t are independent with the risk :math:`L_t` of its model. So
    :math:`\prod_i e^{-\lambda X_i} / (1 - (1 - e^{-\lambda}) L_{t(i)})` is a martingale with mean 1,
    and by Markov's inequality below 1/δ with probability 1 - δ. As :math:`-\ln(1 - c L)` is
    convex, the mean risk obeys Catoni's bound with a KL of zero. λ must be fixed before the stream,
    here by the data of the first model: the mean risk is random, and a learner that reacts to its
    errors would break a limit that inverts a tail.
    """
    whole, count = material.train, len(material.bound)
    if not 2 <= blocks <= count:
        raise InputError(
            f"blocks must be from 2 to the {count} samples of the stream, got {blocks}. Pass "
            "another number."
        )
    first, rest = parted(len(whole), share, settings.seed)
    # The order is drawn here: blocks that are balanced by class or group would tell each other.
    source = torch.Generator().manual_seed(settings.seed + 1)
    stream = rest[torch.randperm(count, generator=source)]
    weights = None if isinstance(recipe.sample_weights, Tensor) else recipe.sample_weights
    answer = answer_of(material.network)
    rate, broken = fixed_rate(material, answer, settings.delta), instability(answer, material.bound)
    models, sizes, wrong, loss = [material.network], list[int](), 0, 0.0
    for block in stream.tensor_split(blocks):
        if sizes:
            seen = torch.cat([first, stream[: sum(sizes)]]).sort().values
            own = recipe.replace(train=whole.subset(seen), test=None, sample_weights=weights)
            models.append(fit(own, seed=settings.seed, evaluate_every=0).model)
        errors, mean = judged(answer_of(models[-1]), whole.subset(block), settings.floor)
        wrong, loss = wrong + errors, loss + mean * len(block)
        sizes.append(len(block))
    bound = pac_bayes.catoni(
        wrong / count, math.log(settings.tried), count, settings.delta, inverse_temperature=rate
    )
    return {
        **_common(material, wrong / count, loss / count),
        "bound": min(1.0, bound),
        "theorem": "martingale",
        "inverse_temperature": rate,
        "test_error": _stream_error(models, sizes, material.test),
        "broken": material.broken or broken,
        "model": StreamModel(models, sizes),
    }


def told(material: Material, settings: Settings) -> dict[str, Any]:
    """Say what every mode says about its data."""
    return {
        "baseline": 1 - float(material.bound.targets.long().bincount().max()) / len(material.bound),
        "delta": settings.delta,
        "name": material.name,
        "prior": material.prior,
        "digests": material.digests,
        "version": __version__,
    }


def without_noise(
    material: Material, settings: Settings, mode: str, recipe: Any, share: float, blocks: int
) -> Certificate:
    """Certify fixed models, without a posterior.

    Args:
        material: The first network and the data.
        settings: Holds δ, the number of tries and the seed.
        mode: ``"held-out"`` or ``"progressive"``.
        recipe: Trains the models of a stream.
        share: The share of the data for the first model of a stream.
        blocks: The parts of the rest.
    """
    if material.learned_on is None:
        raise InputError(
            f"mode={mode!r} must have a learned prior, got the initial weights. Pass "
            "prior='learned', or mode='pac-bayes'."
        )
    if mode == "progressive" and not isinstance(recipe, Recipe):
        raise InputError(
            "mode='progressive' must get a recipe, which it trains on growing data, got a trained "
            "model. Pass the recipe, or mode='held-out'."
        )
    found = (
        held_out(material, settings)
        if mode == "held-out"
        else progressive(recipe, material, settings, share, blocks)
    )
    paid = {"tried": math.log(settings.tried)} if settings.tried > 1 else {}
    return Certificate(
        **{**told(material, settings), **found},
        bounds={found["theorem"]: found["bound"]},
        paid=paid,
        mode=mode,
        notes=material.notes,
        sizes={**material.sizes, "train": len(material.train)},
        settings={
            "tried": settings.tried,
            "seed": settings.seed,
            "floor": settings.floor,
            "blocks": blocks if mode == "progressive" else 1,
        },
    )


def _stream_error(models: list[nn.Module], sizes: list[int], test: Split | None) -> float | None:
    if test is None:
        return None
    errors = [judged(answer_of(model), test)[0] / len(test) for model in models]
    total = math.fsum(size * error for size, error in zip(sizes, errors, strict=True))
    return total / sum(sizes)


def _common(material: Material, error: float, loss: float) -> dict[str, Any]:
    """Fill in what needs no draws of the weights."""
    return {
        "loss_bounds": {},
        "kl": 0.0,
        "error": error,
        "error_limit": error,
        "loss": loss,
        "loss_limit": loss,
        "draws": 0,
        "monte_carlo_delta": 0.0,
        "posterior": "none",
        "samples": len(material.bound),
    }


def recommended(found: Certificate) -> str:
    """Say in one sentence which mode suits this problem, with the numbers that decide it."""
    error, count, delta = found.error, found.samples, found.delta
    if found.error_limit >= found.baseline:
        return "Train longer before you choose a mode: the majority class errs as seldom."
    stream = _stream_width(error, count, delta)
    if found.mode == "held-out":
        gain = pac_bayes.mixture(error, 0.0, count, 0.8 * delta) - found.bound
        return (
            f"Keep the held-out mode for one fixed model: on {count:,} bound samples the binomial "
            f"tail adds {_points(found.bound - error)} to the error, the progressive mode would add "
            f"about {_points(stream)}, and a PAC-Bayes posterior would have to err on "
            f"{_points(gain)} less to break even."
        )
    if found.mode == "progressive":
        tail = binomial_tail_inverse(round(error * count), count, delta) - error
        extra = found.bound - error - tail
        return (
            f"Keep the progressive mode only if models that learned from more data are worth "
            f"{_points(extra)}: on {count:,} samples its bound adds {_points(found.bound - error)} "
            f"to the error, and the held-out mode would add about {_points(tail)}."
        )
    if found.prior_bound is None or found.prior_error is None:
        return _for_initial(found)
    gained, added = found.prior_error - error, found.bound - error
    tail = found.prior_bound - found.prior_error
    word = f"lowers the error by {_points(gained)}" if gained > 0 else "does not lower the error"
    better = "held-out" if found.prior_bound <= found.bound else "PAC-Bayes"
    return (
        f"Use the {better} mode: on {count:,} bound samples PAC-Bayes adds {_points(added)} to the "
        f"error and the binomial tail {_points(tail)}, while the posterior {word}; the progressive "
        f"mode would add about {_points(stream)} and use all samples."
    )


def _for_initial(found: Certificate) -> str:
    """Compare with a network that would be learned on a part of the data and err as often."""
    held = max(1, round((1 - PRIOR_SHARE) * found.samples))
    tail = binomial_tail_inverse(round(found.error * held), held, found.delta) - found.error
    added = found.bound - found.error
    better = "held-out" if tail < added else "PAC-Bayes"
    return (
        f"Use the {better} mode unless no data may be held out: a network learned on "
        f"{100 * PRIOR_SHARE:.0f} % of the {found.samples:,} samples with the same error would "
        f"pay {_points(tail)} for the binomial tail, and this certificate pays {_points(added)} "
        f"at a KL of {found.kl:,.0f} nats."
    )


def _stream_width(error: float, count: int, delta: float) -> float:
    seen = min(max(error, 1 / count), 0.5)
    above = kl_inverse(seen, math.log(1 / delta) / count)
    rate = _best_rate(seen, above)
    return pac_bayes.catoni(error, 0.0, count, delta, inverse_temperature=rate) - error


def _points(value: float) -> str:
    """Write a difference of error rates in percentage points."""
    return f"{100 * value:.2g} points"


# Where nothing is known about the learner: if the error falls like m^-0.4, the held-out bound is
# within 9 % of the best of .5, .6, .7, .8 and .9 for almost all sizes and errors.
PRIOR_SHARE = 0.7
