"""certify: train a PAC-Bayes posterior and give a certificate of its 0-1 risk.

The certificate of one scale of the prior: train the posterior, draw its weights, apply the
theorems.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Literal

import torch

from mindgap._version import __version__
from mindgap.core import (
    Certificate,
    InputError,
    Recipe,
    Split,
    Subject,
    binomial_tail_inverse,
    choice,
    number,
)
from mindgap.ops.pac_bayes import bounds as pac_bayes
from mindgap.ops.pac_bayes.per_sample_draws import Drawn, expected_losses
from mindgap.ops.pac_bayes.posterior import Kind, RandomModel, random_model
from mindgap.training.certify.material import Material, of_recipe, of_subject
from mindgap.training.certify.posterior import train_posterior
from mindgap.training.certify.settings import Settings, broken, checked, checked_scales
from mindgap.training.fitted import Fitted

TRAINING, DRAWING, TESTING = (
    500_003,
    500_009,
    500_029,
)  # set apart the random numbers of the three stages


def certificate_of(
    material: Material, settings: Settings, scale: float, candidates: int, progress: bool
) -> Certificate:
    """The certificate of one scale, which gets its share of the probability of failure."""
    model = random_model(material.network, settings.posterior, scale)
    broke, control = broken(model, material.bound), _control(model, material, settings.delta)
    if material.start is not None:
        model.move_to(torch.cat([material.start[name].flatten() for name in model.shapes]))
    drawn_delta = settings.monte_carlo_delta / candidates
    rest = settings.delta / candidates - drawn_delta
    _train(model, material, settings, rest, progress)
    drawn = _drawn(model, material.bound, settings, DRAWING, settings.draws, broke)
    return Certificate(
        **_limits(
            drawn,
            max(0.0, float(model.divergence().detach())),
            len(material.bound),
            rest,
            drawn_delta,
        ),
        guess=1 - float(material.bound.targets.long().bincount().max()) / len(material.bound),
        delta=settings.delta,
        monte_carlo_delta=settings.monte_carlo_delta,
        name=material.name,
        prior=material.prior,
        posterior=settings.posterior,
        scale=scale,
        prior_error=control[0],
        prior_bound=control[1],
        test_error=_test_error(model, material, settings, broke),
        digests=material.digests,
        notes=material.notes,
        sizes={**material.sizes, "train": len(material.train), "weights": model.center.numel()},
        settings={
            **dataclasses.asdict(settings),
            "own_draws": drawn.own_draws,
            "candidates": candidates,
        },
        broken=broke,
        version=__version__,
        model=model,
    )


def _train(
    model: RandomModel, material: Material, settings: Settings, delta: float, progress: bool
) -> None:
    names = ("objective", "epochs", "batch_size", "learning_rate", "floor")
    train_posterior(
        model,
        material.train,
        samples=len(material.bound),
        delta=delta,
        seed=_stream(settings.seed, TRAINING),
        progress=progress,
        **{name: getattr(settings, name) for name in names},
    )


def _drawn(
    model: RandomModel, split: Split, settings: Settings, stage: int, draws: int, broke: str
) -> Drawn:
    """Draws of the weights; what answers batches only gets batches of eight."""
    return expected_losses(
        model,
        split,
        draws=max(1, len(split) // 8) if broke else draws,
        floor=settings.floor,
        seed=_stream(settings.seed, stage),
        whole=bool(broke),
    )


def _limits(
    drawn: Drawn, kl: float, samples: int, delta: float, drawn_delta: float
) -> dict[str, Any]:
    """What was drawn, its Monte-Carlo limits, and the theorems on them with what is left of δ."""
    limits = [
        pac_bayes.monte_carlo(mean, drawn.draws, drawn_delta) for mean in (drawn.error, drawn.loss)
    ]
    bounds, loss_bounds = (
        {name: f(limit, kl, samples, delta) for name, f in _FORMULAS.items()} for limit in limits
    )
    return {
        "bound": min(1.0, bounds["kl"]),
        "bounds": bounds,
        "loss_bounds": loss_bounds,
        "kl": kl,
        "samples": samples,
        "error": drawn.error,
        "error_limit": limits[0],
        "loss": drawn.loss,
        "loss_limit": limits[1],
        "draws": drawn.draws,
    }


_FORMULAS = {
    "kl": pac_bayes.small_kl,
    "quadratic": pac_bayes.quadratic,
    "mcallester": pac_bayes.mcallester,
    "catoni": pac_bayes.catoni,
}


def _control(
    model: RandomModel, material: Material, delta: float
) -> tuple[float | None, float | None]:
    """A learned prior's mean weights on the bound data, and the held-out bound: what it takes to beat."""
    if material.learned_on is None:
        return None, None
    wrong = sum(
        int((model.mean_answer(batch.inputs).argmax(1).cpu() != batch.target.cpu().long()).sum())
        for batch in material.bound.batches(512)
    )
    return wrong / len(material.bound), binomial_tail_inverse(wrong, len(material.bound), delta)


def _test_error(
    model: RandomModel, material: Material, settings: Settings, broke: str
) -> float | None:
    if material.test is None:
        return None
    return _drawn(model, material.test, settings, TESTING, len(material.test), broke).error


def _stream(seed: int, stage: int) -> int:
    return (seed * 1_000_003 + stage) % 2**63


Prior = Literal["learned", "initial"]
SCALES = {"learned": 0.01, "initial": 0.05}  # of the prior, where none is given


def certify(
    subject: Subject | Recipe | Fitted,
    *,
    prior: Prior | None = None,
    posterior: Kind = "gaussian",
    held_out: Any = None,
    prior_share: float = 0.5,
    delta: float = 0.05,
    monte_carlo_delta: float = 0.01,
    objective: Literal["quadratic", "kl", "classic"] = "quadratic",
    epochs: int = 5,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    scale: float | Sequence[float] | None = None,
    floor: float = 1e-5,
    draws: int = 100_000,
    seed: int = 0,
    progress: bool = False,
) -> Certificate:
    """Train a random model down a PAC-Bayes bound and certify its error rate on unseen data.

    A recipe is trained on ``prior_share`` of its training data: that is the prior, and the rest
    bounds (``prior="learned"``); or the prior stands at the initial weights and all training data
    bound (``prior="initial"``). A subject's model is the prior of ``held_out`` data, which it must
    never have seen; without them its initial weights are the prior of its training data. The
    posterior always learns from all of them. ``delta`` is the whole probability of failure,
    ``monte_carlo_delta`` the part of it for the ``draws`` of weights. ``scale`` is the prior's
    standard deviation or half width; it must be chosen without the bound data. Of several scales
    the best certificate is given, each held to its share of ``delta``. ``floor`` is where
    probabilities are cut off in the bounded cross entropy.

    >>> from mindgap import certify, data, nets
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
    settings = checked(locals())
    scales = checked_scales(scale)
    subject = subject.subject() if isinstance(subject, Fitted) else subject
    material = _material(subject, prior, held_out, number("prior_share", prior_share, 0, 1), seed)
    tried = scales or (SCALES[material.prior],)
    found = [certificate_of(material, settings, own, len(tried), progress) for own in tried]
    best = min(found, key=lambda one: one.bound)
    paid = f"the best of {len(tried)}, each held to 1/{len(tried)} of δ and δ' (union bound)"
    return dataclasses.replace(
        best,
        chosen=best.chosen if len(tried) == 1 else paid,
        settings={
            **best.settings,
            "prior_share": prior_share if isinstance(subject, Recipe) else None,
        },
        cost={"cpu_seconds": time.process_time() - began},
    )


def _material(
    subject: Subject | Recipe, prior: str | None, held_out: Any, share: float, seed: int
) -> Material:
    if prior is not None:
        choice("prior", prior, SCALES)
    if isinstance(subject, Recipe):
        if held_out is not None:
            raise InputError(
                "held_out belongs to a trained subject, got a recipe. Pass prior_share instead."
            )
        return of_recipe(subject, prior or "learned", share, seed)
    if not isinstance(subject, Subject):
        raise InputError(
            f"certify needs a Subject or a Recipe, got {type(subject).__name__}. Pass one."
        )
    if prior is not None and (prior == "learned") != (held_out is not None):
        advice = "Pass held_out=(inputs, targets)" if prior == "learned" else "Leave held_out away"
        raise InputError(
            f"A subject's learned prior goes with held-out data, got prior={prior!r}. {advice}."
        )
    return of_subject(subject, held_out)
