"""The certificate of one scale of the prior: train the posterior, draw its weights, apply the theorems."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from mindgap._version import __version__
from mindgap.core.certificate import Certificate
from mindgap.core.split import Split
from mindgap.core.stats import binomial_tail_inverse
from mindgap.ops import pac_bayes
from mindgap.ops.posterior import RandomModel, random_model
from mindgap.ops.posterior_draws import Drawn, expected_losses
from mindgap.training.certify_checks import broken
from mindgap.training.certify_data import Material
from mindgap.training.certify_posterior import train_posterior
from mindgap.training.certify_settings import Settings

TRAINING, DRAWING, TESTING = 500_003, 500_009, 500_029  # set apart the random numbers of the three stages


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
        **_limits(drawn, max(0.0, float(model.divergence().detach())), len(material.bound), rest, drawn_delta),
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
        sizes={**material.sizes, "train": len(material.train), "weights": model.centre.numel()},
        settings={**dataclasses.asdict(settings), "own_draws": drawn.own_draws, "candidates": candidates},
        broken=broke,
        version=__version__,
        model=model,
    )


def _train(model: RandomModel, material: Material, settings: Settings, delta: float, progress: bool) -> None:
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


def _drawn(model: RandomModel, split: Split, settings: Settings, stage: int, draws: int, broke: str) -> Drawn:
    """Draws of the weights; what answers batches only gets batches of eight."""
    return expected_losses(
        model,
        split,
        draws=max(1, len(split) // 8) if broke else draws,
        floor=settings.floor,
        seed=_stream(settings.seed, stage),
        whole=bool(broke),
    )


def _limits(drawn: Drawn, kl: float, samples: int, delta: float, drawn_delta: float) -> dict[str, Any]:
    """What was drawn, its Monte-Carlo limits, and the theorems on them with what is left of δ."""
    limits = [pac_bayes.monte_carlo(mean, drawn.draws, drawn_delta) for mean in (drawn.error, drawn.loss)]
    bounds, loss_bounds = ({name: f(limit, kl, samples, delta) for name, f in _FORMULAS.items()} for limit in limits)
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


def _control(model: RandomModel, material: Material, delta: float) -> tuple[float | None, float | None]:
    """A learnt prior's mean weights on the bound data, and the held-out bound: what it takes to beat."""
    if material.learnt_on is None:
        return None, None
    wrong = sum(
        int((model.mean_answer(batch.inputs).argmax(1).cpu() != batch.target.cpu().long()).sum())
        for batch in material.bound.batches(512)
    )
    return wrong / len(material.bound), binomial_tail_inverse(wrong, len(material.bound), delta)


def _test_error(model: RandomModel, material: Material, settings: Settings, broke: str) -> float | None:
    if material.test is None:
        return None
    return _drawn(model, material.test, settings, TESTING, len(material.test), broke).error


def _stream(seed: int, stage: int) -> int:
    return (seed * 1_000_003 + stage) % 2**63
