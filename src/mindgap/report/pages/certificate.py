"""The page of ``mindgap certify``: the promise, its parts, and every number in words."""

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path

from mindgap.core import Advice, Bar, Certificate, Mark, Series, binomial_tail_inverse, write_whole
from mindgap.core.certificate import PAID, THEOREMS
from mindgap.ops.pac_bayes import bounds
from mindgap.report import html, wording
from mindgap.report.draw import draw
from mindgap.report.parts import Tone, Verdict
from mindgap.report.style import GREEN, TEST

PARTS = {
    "seen": "error on the bound data",
    "sure": "for the confidence, at a KL of 0",
    "kl": "for the KL",
    "drawn": "for the Monte-Carlo draws",
    "paid": "paid for choices",
}
WHO = {
    "pac-bayes": "The stochastic classifier",
    "held-out": "The network",
    "progressive": "A model drawn from the stream",
}
OBJECTIVES = {"tangent": "tangent of the kl bound"}  # the others are bounds by name
WITHOUT_NOISE = ("seen", "sure")  # parts of the bound on fixed models


def certificate_page(certificate: Certificate, path: str | os.PathLike[str]) -> Path:
    """Write the page to one HTML file that needs nothing else."""
    return write_whole(path, certificate_html(certificate))


def certificate_html(certificate: Certificate) -> str:
    """Write the page as text."""
    return html.render(
        "certificate.html",
        certificate=certificate,
        verdict=judge_certificate(certificate),
        numbers=_numbers_in_words(certificate),
        predictors=_predictors(certificate),
        vouched=_vouched(certificate),
        made=_made_in_words(certificate),
        charts=[draw(_chart(certificate), "parts")],
    )


def judge_certificate(certificate: Certificate) -> Verdict:
    """Say what the certificate promises, how it compares with its control, and what to do."""
    label, _, why = certificate.verdict.partition(" (")
    tone: Tone = "bad" if not certificate.valid else "warn" if certificate.vacuous else "good"
    reason = [f"{why[:1].upper()}{why[1:-1]}."] if why else []
    return Verdict(
        kind=label,
        label=label[:1].upper() + label[1:],
        tone=tone,
        headline=certificate.promise
        if certificate.valid
        else "No promise follows from these numbers.",
        sentences=(
            *reason,
            _seen(certificate),
            *_control(certificate),
            *([certificate.recommendation] if certificate.recommendation else []),
        ),
        advice=tuple(Advice(text=text) for text in _next_steps(certificate)),
    )


def _seen(certificate: Certificate) -> str:
    seen = (
        f"{WHO[certificate.mode]} errs on {wording.percent(certificate.error)} of "
        f"{wording.count(certificate.samples, 'bound sample')}"
    )
    if certificate.test_error is None:
        return f"{seen}. There were no test data."
    return f"{seen} and on {wording.percent(certificate.test_error)} of the test data."


def _control(certificate: Certificate) -> list[str]:
    """Compare with the held-out bound of the prior alone, which needs no PAC-Bayes."""
    if certificate.prior_bound is None or not certificate.valid:
        return []
    bound = wording.at_most(certificate.prior_bound, 2)
    if certificate.prior_bound <= certificate.bound:
        return [
            f"The control is tighter: the held-out bound on the prior's mean weights is {bound}. "
            "Here PAC-Bayes gains nothing over it."
        ]
    return [f"It is below its control, the held-out bound of {bound} on the prior's mean weights."]


def _next_steps(certificate: Certificate) -> list[str]:
    if not certificate.valid:
        return ["Do not quote the bound.", "Remove the cause and run ``mindgap certify`` again."]
    if certificate.mode != "pac-bayes":
        return _steps_without_noise(certificate)
    learned = certificate.prior == "learned"
    if certificate.vacuous and certificate.error_limit >= certificate.baseline:
        longer = "the prior longer, or use less noise" if learned else "longer (``--epochs``)"
        return [f"Train {longer}: the classifier has learned too little."]
    if certificate.vacuous:
        prior = [] if learned else ["Learn the prior on a part of the data (``--prior learned``)."]
        return [*prior, "More bound samples lower the complexity term."]
    steps = ["Draw new weights for every answer: the promise is about the stochastic classifier."]
    if certificate.prior_bound is not None and certificate.prior_bound <= certificate.bound:
        steps.append("To use one fixed model, take the prior's mean weights and their own bound.")
    return [*steps, "Check that the data in use are of the same kind as the bound data."]


def _steps_without_noise(certificate: Certificate) -> list[str]:
    if certificate.vacuous:
        return ["Train longer, or hold out more samples (a smaller ``--prior-share``)."]
    use = {
        "held-out": "Use the network with its weights as they are: another training is another "
        "network.",
        "progressive": "Draw a model of the stream for every answer: no single one is certified.",
    }
    return [
        use[certificate.mode],
        "Check that the data in use are of the same kind as the bound data.",
    ]


def _predictors(certificate: Certificate) -> dict[str, str]:
    """Say what is promised about each predictor that somebody could use."""
    bound = wording.at_most(certificate.bound, 2)
    other = "Nothing is promised about it"
    if not certificate.valid:
        return dict.fromkeys(_USED[certificate.mode], other)
    if certificate.mode == "held-out":
        return {
            "This network": f"At most {bound} of its answers are wrong",
            "The same network trained again, or on all data": other,
        }
    if certificate.mode == "progressive":
        return {
            "A model drawn from the stream": f"At most {bound} of the answers are wrong, if a model "
            "is drawn for every answer",
            "The last model alone": f"{other}, though it has seen the most data",
        }
    twice = min(1.0, 2 * certificate.bound)
    found = {
        "Stochastic": f"At most {bound} of the answers are wrong, if new weights are drawn for every "
        "answer. This is what the certificate is about",
        "Mean weights": "Nothing is promised about them. They often err less, but that is seen on test "
        "data and not proved",
        "Vote": f"At most {wording.at_most(twice, 2)}, twice as much: where the vote of many draws is "
        "wrong, at least half of the draws are",
    }
    if certificate.prior_bound is not None:
        found["The prior's mean weights"] = (
            f"At most {wording.at_most(certificate.prior_bound, 2)} of their answers are wrong, by "
            "the held-out bound. It holds with the same confidence on its own"
        )
    return found


_USED = {
    "pac-bayes": ("Stochastic", "Mean weights", "Vote"),
    "held-out": ("This network",),
    "progressive": ("A model drawn from the stream",),
}


def _vouched(certificate: Certificate) -> list[str]:
    """List what no program can see, and whoever quotes the certificate answers for."""
    tried = int(certificate.settings.get("tried", 1))
    own = (
        "This architecture, its seed and its settings are the first that were tried on these bound "
        "data, or were chosen without them. If not, say how many were tried with ``--tried``."
        if tried == 1
        else f"No more than {tried:,} architectures, seeds and settings were tried on these bound "
        f"data. The certificate pays ln {tried:,} = {math.log(tried):.2f} nats for them."
    )
    return [
        "The bound data were drawn independently from the source of the data in use.",
        own,
        "Constants in the preprocessing, such as a mean and a standard deviation, do not come from "
        "the bound data. Constants that were published for a data set often do.",
        "No statistic in the model, such as those of batch normalization, was computed from them.",
    ]


def shares(certificate: Certificate, theorem: str) -> dict[str, float]:
    """Split a bound into what was seen and what is added for confidence, KL, draws and choices."""
    drawn, paid = _invert(certificate, theorem), math.fsum(certificate.paid.values())
    sure, kl, choices = (
        drawn(certificate.error, nats) for nats in (0.0, certificate.kl, certificate.kl + paid)
    )
    return {
        "seen": certificate.error,
        "sure": sure - certificate.error,
        "kl": kl - sure,
        "drawn": certificate.bounds[theorem] - choices,
        "paid": choices - kl,
    }


def _invert(certificate: Certificate, theorem: str) -> Callable[[float, float], float]:
    """Return a theorem as a function of the error and of the nats."""
    rest, samples = certificate.delta - certificate.monte_carlo_delta, certificate.samples
    if theorem == "binomial":
        return lambda error, nats: binomial_tail_inverse(
            round(error * samples), samples, rest * math.exp(-nats)
        )
    if not certificate.paid:  # saved before choices were paid in nats
        rest /= int(certificate.settings.get("candidates", 1))
    rate = certificate.inverse_temperature
    own: Callable[[float, float, int, float], float]
    if theorem in ("catoni", "martingale") and rate is not None:
        own = functools.partial(bounds.catoni, inverse_temperature=rate)
    else:
        own = bounds.THEOREMS[theorem]
    most = 1.0 if theorem == "martingale" else math.inf
    return lambda error, nats: min(most, own(error, nats, samples, rest))


def _chart(certificate: Certificate) -> Bar:
    """Stack the parts of the bound by every theorem, with lines for test error and control."""
    who = WHO[certificate.mode][0].lower() + WHO[certificate.mode][1:]
    lines = (
        []
        if certificate.test_error is None
        else [f"The line of the test error is the error of {who} on test data."]
    )
    if certificate.prior_bound is not None:
        lines.append(
            "The held-out bound is the control: a bound on the prior's mean weights, without noise."
        )
    names = [_short(name) for name in certificate.bounds]
    found = [shares(certificate, name) for name in certificate.bounds]
    marks = [
        Mark(name=words, y=value, color=color)
        for words, value, color in (
            ("test error", certificate.test_error, TEST),
            ("held-out bound", certificate.prior_bound, GREEN),
        )
        if value is not None
    ]
    widest = max([*certificate.bounds.values(), *(mark.y or 0.0 for mark in marks)])
    return Bar(
        title="What the bound is made of",
        caption=" ".join(
            [
                "Every bar is the same promise by another theorem. The first theorem was chosen in "
                "advance."
                if len(names) > 1
                else "The bound is the error that was seen and what its confidence costs.",
                *lines,
            ]
        ),
        y_label="error rate" if len(names) > 1 else "",
        percent=True,
        series=[
            Series(name=words, x=names, y=[share[part] for share in found])
            for part, words in _parts(certificate).items()
        ],
        stacked=True,
        horizontal=True,
        notes=[wording.at_most(value, 2) for value in certificate.bounds.values()],
        marks=marks,
        top=min(1.3 * widest, max(1.05, 1.3 * certificate.bound)),
    )


def _parts(certificate: Certificate) -> dict[str, str]:
    shown = PARTS if certificate.mode == "pac-bayes" else WITHOUT_NOISE
    return {
        part: words
        for part, words in PARTS.items()
        if (part in shown and part != "paid") or (part == "paid" and certificate.paid)
    }


def _short(theorem: str) -> str:
    return THEOREMS.get(theorem, theorem).split(" (")[0]


def _numbers_in_words(certificate: Certificate) -> dict[str, str]:
    """Say what every number of the bound is."""
    samples = f"{certificate.samples:,} bound samples"
    above = functools.partial(wording.at_most, places=2)
    rows = {
        "Bound": f"{above(certificate.bound)}: at most this share of answers is wrong, by the "
        f"{_short(certificate.theorem)}",
        "Confidence": f"{1 - certificate.delta:.4g} (δ = {certificate.delta:g}), over the draw of "
        "the bound data"
        + (
            f" and of the weights; {certificate.monte_carlo_delta:g} of δ is kept for the draws of "
            "the weights (δ')"
            if certificate.draws
            else ""
        ),
        "Error seen": f"{100 * certificate.error:.2f} % of the answers on {samples} were wrong",
    }
    if certificate.mode == "pac-bayes":
        rows |= {
            "Its limit": f"{above(certificate.error_limit)}: the expected error on the bound data is "
            f"at most this, by {certificate.draws:,} independent draws of the weights",
            "KL": f"{certificate.kl:,.2f} nats: how far the posterior went from its prior, "
            f"{certificate.kl / certificate.samples:.2g} per sample",
            "Cross entropy": f"at most {above(certificate.loss_bounds[certificate.theorem])} of its "
            f"largest value, by the same theorem ({100 * certificate.loss:.2f} % seen); this holds "
            "with the same confidence on its own",
        }
    rows |= {
        "Majority class": f"{100 * certificate.baseline:.2f} %: the error of always answering the "
        "most frequent class",
    }
    if certificate.paid:
        rows["Paid"] = (
            ", ".join(
                f"{nats:.2f} nats for {PAID.get(name, name)}"
                for name, nats in certificate.paid.items()
            )
            + ": what a union bound asks for choices that the bound data may have made"
        )
    if certificate.inverse_temperature is not None:
        rows["λ"] = (
            f"{certificate.inverse_temperature:.3g} in the "
            f"{_short('catoni' if certificate.draws else 'martingale')} bound, fixed by the prior's "
            "data"
        )
    if certificate.prior_bound is not None and certificate.prior_error is not None:
        rows["Control"] = (
            f"{above(certificate.prior_bound)}: the held-out bound, at the same δ, on the "
            f"prior's mean weights, which err on {100 * certificate.prior_error:.2f} % of the bound data. "
            "PAC-Bayes gains only what the certificate is below this"
        )
    if certificate.test_error is not None:
        rows["Test error"] = (
            f"{100 * certificate.test_error:.2f} % of {certificate.sizes.get('test', 0):,} test "
            "answers were wrong"
        )
    return rows


def _scale_in_words(certificate: Certificate) -> str:
    scales = certificate.scales.values()
    if not scales:
        return f"scale {certificate.scale:g}"
    return f"scales from {min(scales):.2g} to {max(scales):.2g}"


def _made_in_words(certificate: Certificate) -> dict[str, str]:
    """Say what was used."""
    sizes, settings = certificate.sizes, certificate.settings
    objective = str(settings.get("objective"))
    learned = certificate.prior == "learned"
    prior = (
        f"learned on {sizes.get('prior', 0):,} samples that are not bound data"
        if learned
        else "the weights before training"
    )
    own = (
        "every sample had weights of its own"
        if settings.get("own_draws")
        else "whole models were drawn"
    )
    noise = {
        "Prior": f"{prior}; {certificate.posterior} noise of {_scale_in_words(certificate)}, "
        f"{certificate.chosen}",
        "Posterior": f"{certificate.posterior}, over {sizes.get('weights', 0):,} weights, trained "
        f"on {sizes.get('train', 0):,} samples for "
        f"{wording.count(settings.get('epochs', 0), 'epoch')} to minimize the "
        f"{OBJECTIVES.get(objective, f'{objective} bound')}",
        "Draws": f"{certificate.draws:,}; {own}{_pilot(certificate)}",
    }
    fixed = {"Network": prior}
    if certificate.mode == "progressive":
        fixed = {
            "Stream": f"{settings.get('blocks', 0)} models, the first {prior}; each later one trained "
            "from scratch on everything before the block that judges it"
        }
    return {
        **(noise if certificate.mode == "pac-bayes" else fixed),
        "Seed": str(settings.get("seed", "")),
        "Data": ", ".join(
            f"{name} {sizes.get(name, 0):,} ({text})" for name, text in certificate.digests.items()
        ),
        "Time": f"{wording.seconds(certificate.cost.get('cpu_seconds', 0.0))} of CPU time",
        **{f"Note {k}": note for k, note in enumerate(certificate.notes, 1)},
    }


def _pilot(certificate: Certificate) -> str:
    pilot = int(certificate.settings.get("pilot", 0))
    return (
        f"; their number comes from a pilot of {pilot:,} others that was thrown away"
        if pilot
        else ""
    )
