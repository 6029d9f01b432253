"""certify: train a PAC-Bayes posterior, draw its weights, and bound the 0-1 risk."""

import dataclasses
import functools
import inspect
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from mindgap.core import (
    Certificate,
    InputError,
    Recipe,
    Split,
    Subject,
    binomial_tail_inverse,
    implements,
    integer,
    number,
    same_environment,
    validated,
)
from mindgap.ops.pac_bayes import bounds as pac_bayes
from mindgap.ops.pac_bayes.per_sample_draws import Drawn
from mindgap.ops.pac_bayes.posterior import GRID, Kind, StochasticModel, stochastic_model
from mindgap.training.certify import modes
from mindgap.training.certify.checks import broken
from mindgap.training.certify.material import Material, material_of
from mindgap.training.certify.posterior import rules, train_posterior
from mindgap.training.certify.settings import (
    DRAWING,
    PILOT,
    SCALING,
    TESTING,
    TRAINING,
    Settings,
    checked,
    checked_scales,
    completed,
    enough_draws,
    refuse_unused,
    some_of,
)
from mindgap.training.certify.transform import Transform
from mindgap.training.fitted import Fitted

DEFAULT = next(iter(pac_bayes.THEOREMS))  # chosen in advance; the others are shown beside it
Prior = Literal["learned", "initial"]
Mode = Literal["pac-bayes", "held-out", "progressive"]
STREAM_SHARE = 0.5  # of the data, for the first model of a stream: the later ones get more
# Of the noise of a learned prior, where none is given. The largest that raises the cross entropy on
# so many of the prior's own samples, in so many draws, by at most this share is taken.
SCALES, RISE = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003), 0.002
LOOKED_AT, WHOLE_DRAWS = 1024, 16
UNIFORM_SCALE = 0.05  # of a uniform prior around initial weights
Theorems = Mapping[str, Callable[[float, float, int, float], float]]


def _certificate_of(
    material: Material, settings: Settings, scale: float | None, candidates: int, progress: bool
) -> Certificate:
    """Certify one scale of the prior, with its share of the probability of failure.

    Args:
        material: The prior's network and the data.
        settings: How the posterior is trained and judged.
        scale: The scale of the prior's noise; None to learn one for every parameter tensor.
        candidates: How many scales are tried. By a union bound each gets an equal part of δ.
        progress: Whether to show a progress bar.
    """
    settings = completed(settings, rules(material.prior, scale, len(material.train)))
    model = stochastic_model(material.network, settings.posterior, scale)
    # Both look at the prior's mean weights, so they come before the posterior moves them.
    unstable = broken(model, material.bound)
    control = _control(model, material, settings.delta / settings.tried)
    # Each prior that is tried is held to an equal part of δ': a failure of the draws for any of
    # them may be what made it the best.
    looks = candidates * settings.tried
    drawn_delta = settings.monte_carlo_delta / looks
    rest = settings.delta - settings.monte_carlo_delta
    rate = modes.fixed_rate(material, model.mean_outputs, settings.delta)
    if material.start is not None:
        model.move_to(torch.cat([material.start[name].flatten() for name in model.shapes]))
    _train(model, material, settings, rest / looks, progress)
    kl = max(0.0, float(model.divergence().detach()))
    paid = {
        name: nats
        for name, nats in (
            ("tried", math.log(settings.tried)),
            ("scales", math.log(candidates) + model.choice_cost),
        )
        if nats
    }
    judge = functools.partial(
        _judged, _theorems(rate), kl + math.fsum(paid.values()), len(material.bound), rest
    )
    bound_at: Callable[[float], float] = lambda limit: judge(limit)[DEFAULT]  # noqa: E731
    draws = settings.draws or enough_draws(
        model, material.bound, settings, bound_at, drawn_delta, unstable
    )
    drawn = settings.draw(model, material.bound, DRAWING, draws, unstable)
    return Certificate(
        **_limits(drawn, judge, drawn_delta),
        **modes.told(material, settings),
        kl=kl,
        paid=paid,
        samples=len(material.bound),
        theorem=DEFAULT,
        inverse_temperature=rate,
        monte_carlo_delta=settings.monte_carlo_delta,
        posterior=settings.posterior,
        scale=scale or 0.0,
        scales=model.prior_scales() if scale is None else {},
        prior_error=control[0],
        prior_bound=control[1],
        test_error=_test_error(model, material, settings, unstable),
        notes=(*material.notes, *_more_draws(drawn, settings.draws, unstable)),
        sizes={**material.sizes, "train": len(material.train), "weights": model.center.numel()},
        settings={
            **dataclasses.asdict(settings),
            "own_draws": drawn.own_draws,
            "candidates": candidates,
            "pilot": 0 if settings.draws else min(PILOT, len(material.bound)),
        },
        broken=material.broken or unstable,
        model=model,
    )


def _train(
    model: StochasticModel, material: Material, settings: Settings, delta: float, progress: bool
) -> None:
    names = ("objective", "epochs", "batch_size", "learning_rate", "floor")
    train_posterior(
        model,
        material.train,
        samples=len(material.bound),
        delta=delta,
        seed=settings.stream(TRAINING),
        progress=progress,
        **{name: getattr(settings, name) for name in names},
    )


def _more_draws(drawn: Drawn, wanted: int | None, unstable: str) -> tuple[str, ...]:
    """Say that more weights were drawn than asked for, if they were."""
    if unstable or wanted is None or drawn.draws == wanted:
        return ()
    return (
        f"{wanted:,} draws were asked for and {drawn.draws:,} made: every bound sample gets equally "
        "many.",
    )


def _theorems(rate: float | None) -> Theorems:
    """Return the theorems, Catoni's with its λ if there is one from the prior's data."""
    if rate is None:
        return pac_bayes.THEOREMS
    own = functools.partial(pac_bayes.catoni, inverse_temperature=rate)
    return {**pac_bayes.THEOREMS, "catoni": own}


def _judged(
    theorems: Theorems, nats: float, samples: int, delta: float, limit: float
) -> dict[str, float]:
    """Apply every theorem, with the rest of δ, to a limit of what is expected on the bound data."""
    return {name: theorem(limit, nats, samples, delta) for name, theorem in theorems.items()}


def _limits(
    drawn: Drawn, judge: Callable[[float], dict[str, float]], delta: float
) -> dict[str, Any]:
    """Apply the theorems to the Monte-Carlo limits of what was drawn."""
    error_limit, loss_limit = (
        pac_bayes.monte_carlo(mean, drawn.draws, delta) for mean in (drawn.error, drawn.loss)
    )
    bounds = judge(error_limit)
    return {
        "bound": min(1.0, bounds[DEFAULT]),
        "bounds": bounds,
        "loss_bounds": judge(loss_limit),
        "error": drawn.error,
        "error_limit": error_limit,
        "loss": drawn.loss,
        "loss_limit": loss_limit,
        "draws": drawn.draws,
    }


def _control(
    model: StochasticModel, material: Material, delta: float
) -> tuple[float | None, float | None]:
    """Bound the error of a learned prior's mean weights on the bound data, as a control.

    A certificate is worth its effort only where it is below this bound.
    """
    if material.learned_on is None:
        return None, None
    wrong, _ = modes.judged(model.mean_outputs, material.bound)
    return wrong / len(material.bound), binomial_tail_inverse(wrong, len(material.bound), delta)


def _test_error(
    model: StochasticModel, material: Material, settings: Settings, unstable: str
) -> float | None:
    if material.test is None:
        return None
    return settings.draw(model, material.test, TESTING, len(material.test), unstable).error


@implements("P1", cites=("perezortiz2021tighter", "dziugaite2017computing"))
@validated
@same_environment()
def certify(
    subject: Subject | Recipe | Fitted,
    *,
    mode: Mode = "pac-bayes",
    prior: Prior | None = None,
    posterior: Kind = "gaussian",
    held_out: Any = None,
    prior_share: float | None = None,
    blocks: int = 5,
    transform: Transform | None = None,
    delta: float = 0.05,
    monte_carlo_delta: float = 0.01,
    objective: Literal["quadratic", "kl", "classic", "tangent"] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    scale: float | Sequence[float] | None = None,
    floor: float = 1e-5,
    draws: int | None = None,
    most_draws: int = 1_000_000,
    tried: int = 1,
    seed: int = 0,
    progress: bool = False,
) -> Certificate:
    r"""Certify the error rate of a stochastic classifier on unseen data by a PAC-Bayes bound.

    Formula: $R(Q) \le \max\left\{ p : \ln \frac{1}{10} \left( \sum_{j=1}^9 e^{n(-\lambda_j \hat
    R(Q) - \ln(1 - (1 - e^{-\lambda_j}) p))} + \frac{e^{n\,\mathrm{kl}(\hat R(Q) \Vert p)}}{\xi(n)}
    \right) \le KL(Q \Vert P) + \ln\frac{1}{\delta} \right\}$

    Reading: The posterior Q draws new weights for every answer. With probability 1 - δ at most
    this share of its answers on unseen data is wrong. A small bound needs a good prior P and a
    posterior near it. Compare with the held-out bound on the prior's mean weights, which the
    certificate gives as its control.

    Assumes: The n bound data are independent draws from the source of the unseen data. The prior
    and its scale were chosen without them. So were the preprocessing and the sample weights: make
    these functions of the prior's part (``transform``, ``Recipe.sample_weights``).

    The posterior is trained on all training data to minimize a bound. Which data bound, and what
    the prior is, follows from ``subject`` and ``prior``.

    Args:
        subject: A recipe, a trained subject, or what :func:`mindgap.fit` returned.
        mode: ``"pac-bayes"`` certifies a classifier with noise on its weights. ``"held-out"``
            certifies the network that the prior's share trained, as it is, by the binomial tail.
            ``"progressive"`` certifies a model drawn at random from a stream: each of ``blocks``
            parts of the data is judged by the model trained on what came before.
        prior: ``"learned"``: a recipe is trained on ``prior_share`` of its training data, and the
            rest are the bound data. A trained subject is itself the prior of ``held_out``.
            ``"initial"``: the weights from before training are the prior, and all training data
            are the bound data. If None, a recipe learns its prior, and a subject follows
            ``held_out``.
        posterior: The distribution of the weights: ``"gaussian"``, or ``"uniform"`` in boxes.
        held_out: ``(inputs, targets)`` that a trained subject has never seen, to bound its risk.
        prior_share: The share of a recipe's training data that trains a learned prior. If None,
            0.7, or 0.5 for the first model of a stream.
        blocks: The blocks of the progressive mode, each of which costs a training. A mode refuses
            settings that it does not use.
        transform: Fitted on the prior's part of a recipe's data, and then applied to all inputs:
            a function that takes a split and returns a function of the inputs, as
            :func:`mindgap.training.certify.transform.standardize` does. The bound data must not
            enter any preprocessing before.
        delta: The whole probability with which the certificate may fail.
        monte_carlo_delta: The part of ``delta`` for the draws of the weights.
        objective: What the posterior is trained to minimize: a bound, ``"quadratic"``, ``"kl"`` or
            ``"classic"`` (McAllester's), or ``"tangent"``, which weighs cross entropy and KL as
            the kl bound does at the present error. If None, tangent around initial weights and
            quadratic around learned ones.
        epochs: Passes over the training data for the posterior. If None, 1 around learned weights,
            and as many as make 8,000 steps around initial ones.
        batch_size: Samples per step of that training; 128 or 250 if None.
        learning_rate: Its largest step size, for Adam. The means move in units of ``scale`` where
            it is fixed; the logarithms of Gaussian scales move three times as fast.
        scale: The standard deviation (Gaussian) or half width (uniform) of the prior. It must be
            chosen without the bound data. Of several scales the best certificate is returned,
            each held to an equal part of ``delta``. If None, a learned prior gets the largest of
            six scales that hardly raises the cross entropy on its own data. A Gaussian prior around
            initial weights then learns one scale per parameter tensor, which adds ln 200 nats for
            each; a uniform one has 0.05.
        floor: The probability at which the bounded cross entropy is cut off.
        draws: How many sets of weights judge the bound data. If None, a pilot decides how many keep
            the Monte-Carlo part below 5 % of the bound, and is thrown away.
        most_draws: The most that a pilot may ask for.
        tried: How many priors (architectures, seeds, settings) you tried on these bound data
            before you settled on this one. Each gets an equal part of the probability of failure,
            which adds ln ``tried`` nats.
        seed: Fixes the split, the training and the draws.
        progress: Whether to show a progress bar.

    Returns:
        The certificate, with the stochastic classifier in ``certificate.model``.

    >>> from mindgap import Recipe, certify, data, nets
    >>> digits = data.digits()
    >>> recipe = Recipe(
    ...     model=lambda: nets.MLP(widths=(64, 32, 10)),
    ...     train=digits.train,
    ...     test=digits.test,
    ...     epochs=30,
    ... )
    >>> certificate = certify(recipe, draws=10_000)
    >>> certificate.verdict, certificate.bound < 0.2
    ('valid, non-vacuous', True)
    """
    began = time.process_time()
    given = locals()
    settings = checked(given)
    integer("blocks", blocks)
    usual = inspect.signature(certify).parameters
    refuse_unused(mode, given, {name: one.default for name, one in usual.items()})
    share = _share(subject, mode, prior, prior_share)
    scales = checked_scales(scale)
    material = material_of(subject, prior, held_out, share, seed, transform)
    if mode == "pac-bayes":
        best = _best(material, settings, scales, progress)
    else:
        best = modes.without_noise(material, settings, mode, subject, share, blocks)
    return dataclasses.replace(
        best,
        recommendation=modes.recommended(best) if best.valid else "",
        settings={
            **best.settings,
            "prior_share": share if isinstance(subject, Recipe) else None,
        },
        cost={"cpu_seconds": time.process_time() - began},
    )


def _share(
    subject: Subject | Recipe | Fitted, mode: str, prior: str | None, given: float | None
) -> float:
    """Return the share of the data for a learned prior; refuse one that nothing would use."""
    if given is None:
        return STREAM_SHARE if mode == "progressive" else modes.PRIOR_SHARE
    if prior == "initial" or not isinstance(subject, Recipe):
        what = "an initial prior" if prior == "initial" else "a trained model"
        raise InputError(
            f"prior_share belongs to a recipe that learns its prior, got {what}. Leave it away."
        )
    return number("prior_share", given, 0, 1)


def _best(
    material: Material, settings: Settings, scales: tuple[float, ...], progress: bool
) -> Certificate:
    """Certify every scale of the prior, and return the best, which pays for the choice."""
    tried = scales or (_default_scale(material, settings),)
    found = [_certificate_of(material, settings, own, len(tried), progress) for own in tried]
    best = min(found, key=lambda one: one.bound)
    if len(tried) > 1:
        paid = f"the best of {len(tried)}, each held to 1/{len(tried)} of δ and δ' (union bound)"
        return dataclasses.replace(best, chosen=paid)
    if best.scales:
        learned = f"learned, one per parameter tensor, each from a grid of {len(GRID)}"
        return dataclasses.replace(best, chosen=learned)
    if material.learned_on is not None and not scales:
        return dataclasses.replace(best, chosen="chosen on the prior's own data")
    return best


def _default_scale(material: Material, settings: Settings) -> float | None:
    """Return the scale of the prior where none is given; None to learn one per tensor.

    A learned prior gets the largest scale that hardly harms it on its own data: less noise leaves
    the posterior no room, and more costs errors. The bound data have no part in the choice.
    """
    if material.learned_on is None:
        return None if settings.posterior == "gaussian" else UNIFORM_SCALE
    few = some_of(material.learned_on, LOOKED_AT, settings.seed)
    _, clean = modes.judged(modes.answer_of(material.network), few, settings.floor)
    for scale in SCALES:
        model = stochastic_model(material.network, settings.posterior, scale)
        if _noisy_loss(model, few, settings) <= (1 + RISE) * clean:
            return scale
    return SCALES[-1]


def _noisy_loss(model: StochasticModel, split: Split, settings: Settings) -> float:
    """Average the cross entropy over a few draws of all weights, on the same samples for each."""
    source = torch.Generator().manual_seed(settings.stream(SCALING))
    losses = []
    for _ in range(WHOLE_DRAWS):
        with torch.no_grad():
            answer = functools.partial(model.outputs, model.draw(source))
            losses.append(modes.judged(answer, split, settings.floor)[1])
    return statistics.fmean(losses)
