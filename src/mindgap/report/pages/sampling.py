"""The page of `mindgap sample`: the points, why they were chosen, what failed, the settings."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from mindgap.core import Advice, write_whole
from mindgap.report import html, wording
from mindgap.report.draw import draw
from mindgap.report.pages.sampling_charts import KINDS, acquisition_of, sampling_charts
from mindgap.report.parts import Tone, Verdict
from mindgap.sampling.comparison import Comparison
from mindgap.sampling.taylor_sampler import TaylorSampler

MANY_FAILED = 0.1  # of the points: from here on what is known says little about some places
ACQUISITION = {
    "derivative": "the Taylor metric Df of order {order} by automatic differentiation, noise of variance {epsilon}",
    "differences": "the Taylor metric Df of order {order} by central differences, noise of variance {epsilon}",
    "sampled": "the variance of the function under noise of variance {epsilon}, from {draws} calls per point",
    "neighbors": "the variance of the known values among the {neighbors} nearest points, the point itself included",
}
PROPOSAL = {
    "pool": "uniform candidates, drawn by the acquisition values of the known points around them",
    "exact": "uniform candidates, drawn by their own acquisition values",
    "mixture": "a Gaussian mixture of {components} components, fitted to the known points by their acquisition values",
}
COMPARED: Mapping[str, tuple[str, Tone, str]] = {
    "better": ("Better than uniform", "good", "Uniform points would have done worse."),
    "worse": ("Worse than uniform", "bad", "Uniform points would have done better."),
    "unclear": ("No gain shown", "neutral", "No difference to as many uniform points is shown."),
}
STEPS = {
    "Better than uniform": [
        "Train your model on these points: another model may profit more or less."
    ],
    "Worse than uniform": ["Take uniform points, or a larger initial design."],
    "No gain shown": ["Take uniform points, or compare on more of them: ``--compare``."],
}
DESIGN = {
    "sobol": "a Sobol sequence",
    "grid": "a grid",
    "uniform": "uniform",
    "latin-hypercube": "a Latin hypercube",
}


def sampling_page(
    sampler: TaylorSampler,
    path: str | os.PathLike[str],
    *,
    names: Sequence[str] = (),
    outputs: Sequence[str] = (),
    source: str = "",
    comparison: Comparison | None = None,
) -> Path:
    """Write a page about all points of a sampler to one HTML file that needs nothing else."""
    text = sampling_html(
        sampler, names=names, outputs=outputs, source=source, comparison=comparison
    )
    return write_whole(path, text)


def sampling_html(
    sampler: TaylorSampler,
    *,
    names: Sequence[str] = (),
    outputs: Sequence[str] = (),
    source: str = "",
    comparison: Comparison | None = None,
) -> str:
    """Return the page as text.

    Args:
        sampler: The sampler, with its points and values.
        names: What the inputs are called.
        outputs: What the values are called.
        source: What was sampled.
        comparison: Whether uniform points would have done as well, if it is known.
    """
    names = list(names) or [f"x{k}" for k in range(sampler.domain.dimension)]
    outputs = list(outputs) or [f"y{k}" for k in range(sampler.width or 1)]
    acquisition = acquisition_of(sampler)
    charts = sampling_charts(sampler, acquisition, names, outputs)
    return html.render(
        "sampling.html",
        verdict=judge_sampling(sampler, acquisition, comparison),
        comparison=comparison,
        source=source or "Taylor Based Sampling",
        known=len(sampler.answers),
        failed=len(sampler.failed),
        inputs=sampler.domain.dimension,
        charts=[draw(chart, "points") for chart in charts],
        counts=counts(sampler),
        reasons=Counter(sampler.failed.values()).most_common(12),
        settings=settings_in_words(sampler, names),
    )


def judge_sampling(
    sampler: TaylorSampler, acquisition: Tensor, comparison: Comparison | None = None
) -> Verdict:
    """Say how far the sampling came, and whether new points lie where the function changes.

    Args:
        sampler: The sampler, with its points and values.
        acquisition: The acquisition values of the known points, or none.
        comparison: Whether uniform points would have done as well, if it is known.
    """
    new = int(sampler.found().new.sum()) if sampler.answers else 0
    ratio = _ratio(sampler, acquisition)
    label, tone, headline = _case(sampler, new, ratio)
    judged = comparison is not None and label == "Not tested yet" and COMPARED.get(comparison.word)
    if judged:
        label, tone, headline = judged
    told = [
        f"{wording.count(len(sampler.answers), 'value')} of "
        f"{wording.count(len(sampler.asked), 'point')} are known, {new:,} of them at points that "
        "the acquisition function chose."
    ]
    if ratio is not None:
        told.append(
            f"The acquisition function is {wording.number(ratio, 3)} times as large at new points "
            "as at the others, on average."
        )
    if sampler.failed or sampler.pending:
        told.append(f"{len(sampler.failed):,} failed and {len(sampler.pending):,} are pending.")
    return Verdict(
        kind=label.lower(),
        label=label,
        tone=tone,
        headline=headline,
        sentences=tuple(told if sampler.asked else ()),
        advice=tuple(
            Advice(text=text) for text in (STEPS[label] if judged else _next_steps(sampler, new))
        ),
    )


def _ratio(sampler: TaylorSampler, acquisition: Tensor) -> float | None:
    """Compare the acquisition function at new points with the others.

    Only where a point has its value by itself: the variance among neighbors falls where points
    gather, so it would understate how well they were chosen.
    """
    if sampler.acquisition.kind == "neighbors" or not len(acquisition):
        return None
    new = sampler.found().new
    if not bool(new.any()) or not float(acquisition[~new].sum()):
        return None
    return float(acquisition[new].mean() / acquisition[~new].mean())


def _case(sampler: TaylorSampler, new: int, ratio: float | None) -> tuple[str, Tone, str]:
    asked, failed, pending = (len(x) for x in (sampler.asked, sampler.failed, sampler.pending))
    if not asked:
        return "Not started", "neutral", "No point was asked for yet."
    if failed > MANY_FAILED * asked:
        return (
            "Many failures",
            "warn",
            f"{failed:,} of {wording.count(asked, 'point')} failed: a part of the domain may be "
            "missing.",
        )
    if pending:
        verb = "waits for its value" if pending == 1 else "wait for their values"
        return "Unfinished", "neutral", f"{pending:,} of {wording.count(asked, 'point')} {verb}."
    if not new:
        return "Initial design only", "neutral", "The acquisition function chose no point yet."
    if ratio is not None and ratio <= 1:
        return (
            "Not where expected",
            "warn",
            "New points do not lie where the function changes more.",
        )
    where = "lie where the function changes more" if ratio is not None else "are evaluated"
    return (
        "Not tested yet",
        "neutral",
        f"{wording.count(new, 'new point')} {where}; whether they help a model is not known yet.",
    )


def _next_steps(sampler: TaylorSampler, new: int) -> list[str]:
    test = "Compare with uniform points: ``--compare N`` evaluates N of them for that alone."
    if sampler.failed:
        return ["Read why points failed, below, and evaluate again what can be mended.", test]
    if not sampler.asked:
        return ["Run ``mindgap sample`` to choose points and evaluate them."]
    if sampler.pending:
        return ["Evaluate the points that wait: ``mindgap sample`` resumes where it stopped."]
    return [test] if new else ["Ask for new points: ``mindgap sample --new 16``."]


def counts(sampler: TaylorSampler) -> list[tuple[str, int, int, int, int]]:
    """Count the points of every kind: all, those with a value, failed, and pending."""
    answers, failed = sampler.answers, sampler.failed
    rows = []
    for why, (name, _) in KINDS.items():
        mine = [one.number for one in sampler.asked if one.why == why]
        known, lost = sum(key in answers for key in mine), sum(key in failed for key in mine)
        if mine:
            rows.append((name, len(mine), known, lost, len(mine) - known - lost))
    return rows


def settings_in_words(sampler: TaylorSampler, names: Sequence[str]) -> dict[str, str]:
    """Return every setting as a reader would say it."""
    low, high = (end.tolist() for end in sampler.domain.bounds)
    ends = [
        f"{name} from {wording.number(a)} to {wording.number(b)}"
        for name, a, b in zip(names, low, high, strict=True)
    ]
    shape = type(sampler.domain).__name__.lower()
    acquisition, proposal = sampler.acquisition, sampler.proposal
    neighbors = acquisition.neighbors or 2 * sampler.domain.dimension + 1
    fields = {
        "order": acquisition.order,
        "epsilon": wording.number(acquisition.epsilon),
        "draws": acquisition.draws,
    }
    capped = (
        "" if proposal.cap == 1 else f", capped at its {wording.percent(proposal.cap)} quantile"
    )
    tempered = "as it stands" if proposal.temper == 1 else f"to the power {proposal.temper:g}"
    uniform = (
        f"; {wording.percent(proposal.uniform_share)} of the points are uniform"
        if proposal.uniform_share
        else ""
    )
    return {
        "Domain": ("" if shape == "box" else f"{shape}: ")
        + ", ".join(ends[:8])
        + (" …" if len(ends) > 8 else ""),
        "Initial design": f"{wording.count(sampler.initial, 'point')}, {DESIGN[sampler.initial_design]}"
        if sampler.initial
        else "none",
        "Acquisition function": ACQUISITION[acquisition.kind].format(**fields, neighbors=neighbors),
        "Drawn from": PROPOSAL[proposal.kind].format(components=proposal.components or "up to six"),
        "Acquisition values count": f"{tempered}{capped}{uniform}",
        "Seed": str(sampler.seed),
        **({"Session": str(sampler.session)} if sampler.session else {}),
    }
