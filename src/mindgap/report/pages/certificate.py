"""The page of ``mindgap certify``: the promise, its parts, and every number in words."""

import functools
import math
import os
from pathlib import Path

from mindgap.core import Advice, Bar, Certificate, Mark, Series, write_whole
from mindgap.core.certificate import THEOREMS
from mindgap.ops.pac_bayes import bounds
from mindgap.report import html, wording
from mindgap.report.draw import draw
from mindgap.report.parts import Tone, Verdict
from mindgap.report.style import GREEN, TEST

PARTS = {
    "seen": "error on the bound data",
    "drawn": "Monte Carlo part",
    "sure": "complexity term without KL",
    "kl": "complexity term of the KL",
    "paid": "paid for choices",
}


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
        sentences=(*reason, _seen(certificate), *_control(certificate)),
        advice=tuple(Advice(text=text) for text in _next_steps(certificate)),
    )


def _seen(certificate: Certificate) -> str:
    seen = (
        f"The stochastic classifier errs on {wording.percent(certificate.error)} of "
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
    if certificate.vacuous and certificate.error_limit >= certificate.baseline:
        return ["Train the prior longer, or use less noise: the classifier has learned too little."]
    if certificate.vacuous:
        learned = certificate.prior == "learned"
        prior = [] if learned else ["Learn the prior on a part of the data (``--prior learned``)."]
        return [*prior, "More bound samples lower the complexity term."]
    steps = ["Draw new weights for every answer: the promise is about the stochastic classifier."]
    if certificate.prior_bound is not None and certificate.prior_bound <= certificate.bound:
        steps.append("To use one fixed model, take the prior's mean weights and their own bound.")
    return [*steps, "Check that the data in use are of the same kind as the bound data."]


def shares(certificate: Certificate, theorem: str) -> dict[str, float]:
    """Split a bound into error seen, Monte-Carlo part, and complexity without KL, by it and paid."""
    rest, fixed = certificate.delta - certificate.monte_carlo_delta, {}
    if not certificate.paid:  # saved before choices were paid in nats
        rest /= int(certificate.settings.get("candidates", 1))
    if theorem == "catoni" and certificate.inverse_temperature is not None:
        fixed = {"inverse_temperature": certificate.inverse_temperature}
    bound = functools.partial(
        bounds.THEOREMS[theorem], samples=certificate.samples, delta=rest, **fixed
    )
    without, paid = (
        bound(empirical=certificate.error_limit, kl=nats)
        for nats in (0.0, math.fsum(certificate.paid.values()))
    )
    return {
        "seen": certificate.error,
        "drawn": certificate.error_limit - certificate.error,
        "sure": without - certificate.error_limit,
        "kl": certificate.bounds[theorem] - paid,
        "paid": paid - without,
    }


def _chart(certificate: Certificate) -> Bar:
    """Stack the parts of the bound by every theorem, with lines for test error and control."""
    lines = (
        []
        if certificate.test_error is None
        else ["The line of the test error is the stochastic classifier's error on test data."]
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
                "Every bar is the same promise by another theorem. "
                "The first theorem was chosen in advance.",
                *lines,
            ]
        ),
        y_label="error rate",
        percent=True,
        series=[
            Series(name=words, x=names, y=[share[part] for share in found])
            for part, words in PARTS.items()
            if part != "paid" or certificate.paid
        ],
        stacked=True,
        horizontal=True,
        notes=[wording.at_most(value, 2) for value in certificate.bounds.values()],
        marks=marks,
        top=min(1.3 * widest, max(1.05, 1.3 * certificate.bound)),
    )


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
        f"the bound data and of the weights; {certificate.monte_carlo_delta:g} of δ is kept for "
        "the draws of the weights (δ')",
        "Error seen": f"{100 * certificate.error:.2f} % of the answers on {samples} were wrong",
        "Its limit": f"{above(certificate.error_limit)}: the expected error on the bound data is "
        f"at most this, by {certificate.draws:,} independent draws of the weights",
        "KL": f"{certificate.kl:,.2f} nats: how far the posterior went from its prior, "
        f"{certificate.kl / certificate.samples:.2g} per sample",
        "Cross entropy": f"at most {above(certificate.loss_bounds[certificate.theorem])} of its largest value, "
        f"by the same theorem ({100 * certificate.loss:.2f} % seen); this holds with the same "
        "confidence on its own",
        "Majority class": f"{100 * certificate.baseline:.2f} %: the error of always answering the "
        "most frequent class",
    }
    if certificate.prior_bound is not None and certificate.prior_error is not None:
        rows["Control"] = (
            f"{above(certificate.prior_bound)}: the held-out bound, at the same δ, on the "
            f"prior's mean weights, which err on {100 * certificate.prior_error:.2f} % of the bound data. "
            "PAC-Bayes gains only what the certificate is below this"
        )
    if certificate.test_error is not None:
        rows["Test error"] = (
            f"{100 * certificate.test_error:.2f} % of {certificate.sizes.get('test', 0):,} test "
            "answers were wrong, each with weights of its own"
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
    return {
        "Prior": f"{prior}; {certificate.posterior} noise of {_scale_in_words(certificate)}, "
        f"{certificate.chosen}",
        "Posterior": f"{certificate.posterior}, over {sizes.get('weights', 0):,} weights, trained "
        f"on {sizes.get('train', 0):,} samples for "
        f"{wording.count(settings.get('epochs', 0), 'epoch')} to minimize the "
        f"{settings.get('objective')} bound",
        "Draws": f"{certificate.draws:,}; {own}",
        "Seed": str(settings.get("seed", "")),
        "Data": ", ".join(
            f"{name} {sizes.get(name, 0):,} ({text})" for name, text in certificate.digests.items()
        ),
        "Time": f"{wording.seconds(certificate.cost.get('cpu_seconds', 0.0))} of CPU time",
        **{f"Note {k}": note for k, note in enumerate(certificate.notes, 1)},
    }
