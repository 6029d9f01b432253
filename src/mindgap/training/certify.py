"""certify: train a PAC-Bayes posterior and give a certificate of its 0-1 risk."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Literal

from mindgap.core.arguments import choice, number
from mindgap.core.certificate import Certificate
from mindgap.core.errors import InputError
from mindgap.core.recipe import Recipe
from mindgap.core.subject import Subject
from mindgap.ops.posterior import Kind
from mindgap.training.certify_data import Material, of_recipe, of_subject
from mindgap.training.certify_scale import certificate_of
from mindgap.training.certify_settings import checked, checked_scales
from mindgap.training.fitted import Fitted

Prior = Literal["learnt", "initial"]
SCALES = {"learnt": 0.01, "initial": 0.05}  # of the prior, where none is given


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

    A recipe is trained on ``prior_share`` of its train data: that is the prior, and the rest bounds
    (``prior="learnt"``); or the prior stands at the initial weights and all train data bound (``prior="initial"``). A
    subject's model is the prior of ``held_out`` data, which it must never have seen; without them its initial weights
    are the prior of its train data. The posterior always learns from all of them. ``delta`` is the whole probability of
    failure, ``monte_carlo_delta`` the part of it for the ``draws`` of weights. ``scale`` is the prior's standard
    deviation or half width; it must be chosen without the bound data. Of several scales the best certificate is given,
    each held to its share of ``delta``. ``floor`` is where probabilities are cut off in the bounded cross entropy.

    >>> from mindgap import certify, data, nets
    >>> digits = data.digits()
    >>> recipe = Recipe(model=lambda: nets.MLP(widths=(64, 32, 10)), train=digits.train, test=digits.test, epochs=30)
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
        settings={**best.settings, "prior_share": prior_share if isinstance(subject, Recipe) else None},
        cost={"cpu_seconds": time.process_time() - began},
    )


def _material(subject: Subject | Recipe, prior: str | None, held_out: Any, share: float, seed: int) -> Material:
    if prior is not None:
        choice("prior", prior, SCALES)
    if isinstance(subject, Recipe):
        if held_out is not None:
            raise InputError("held_out belongs to a trained subject, got a recipe. Pass prior_share instead.")
        return of_recipe(subject, prior or "learnt", share, seed)
    if not isinstance(subject, Subject):
        raise InputError(f"certify needs a Subject or a Recipe, got {type(subject).__name__}. Pass one.")
    if prior is not None and (prior == "learnt") != (held_out is not None):
        advice = "Pass held_out=(inputs, targets)" if prior == "learnt" else "Leave held_out away"
        raise InputError(f"A subject's learnt prior goes with held-out data, got prior={prior!r}. {advice}.")
    return of_subject(subject, held_out)
