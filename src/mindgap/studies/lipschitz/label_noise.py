"""The Lipschitz constant as capacity: it grows with the share of labels that are noise."""

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from mindgap.core import Claim, Line, Record, Series, Study, Table, Trial, generator, option
from mindgap.core.stats.comparisons import holm, mean_interval, paired, spearman
from mindgap.nets import MLP
from mindgap.ops.lipschitz.lower import lipschitz_lower
from mindgap.ops.lipschitz.upper import certified_upper

LOBES = 4  # of the sine on [-1, 1]
POINTS = 201  # at which the functions of the figure are drawn
NAMES = {"lower": "found slope", "upper": "certified bound", "product": "product"}


class LipschitzLabelNoise(Study):
    r"""Lipschitz constant of networks that interpolate more and more noise.

    Formula: $L(f) \ge \max_{i \neq j} \frac{|y_i - y_j|}{|x_i - x_j|} \text{ if } f(x_i) = y_i$

    Reading: A function that fits all samples is at least as steep as the steepest pair of them. Noise
    puts opposite labels next to each other, so that the constant must grow with its share. The
    figure shows the functions of the first seed.

    Assumes: Targets ±1 of a sine's sign on [−1, 1], at points where the sine is far from zero. A share
    of them is flipped. An MLP 1-64-64-1, whose first kinks are spread over the interval because it
    otherwise does not fit flipped neighbors, is trained with Adam on all samples at once.

    >>> len(LipschitzLabelNoise(seeds=2).trials())
    10
    """

    method = ("E9",)
    cites = ("bartlett2017spectrally", "zhang2017understanding")
    reproduces = ("expressivity: Lipschitz constant",)

    seeds: int = option(5, help="training sets per share of noise", low=2)
    samples: int = option(12, help="training samples", low=5)
    epochs: int = option(2000, help="steps of training", low=1)
    shares: tuple[float, ...] = option(
        (0.0, 0.1, 0.25, 0.4, 0.5), help="shares of flipped labels", low=0, high=1
    )

    def trials(self) -> Sequence[Trial]:
        """One trial per share and training set."""
        return [
            Trial(parameters={"share": share}, seed=seed)
            for share in self.shares
            for seed in range(self.seeds)
        ]

    def run(self, trial: Trial) -> Record:
        """Train on flipped labels and bound the constant from below and above."""
        x, y = _data(self.samples, float(trial["share"]), trial.seed)
        model = _trained(x, y, self.epochs, trial.seed)
        upper = certified_upper(model, x[0], steps=60)
        grid = torch.linspace(-1, 1, POINTS)[:, None]
        lower = lipschitz_lower(model, torch.cat([x, grid]), steps=40, box=(-1.0, 1.0))
        with torch.no_grad():
            drawn = model(grid)[:, 0]
            wrong = float((model(x) * y < 0).double().mean())
        gaps = (x - x.T).abs() + torch.eye(len(x)) * 1e9
        return {
            "upper": upper.upper,
            "product": upper.product,
            "lower": lower.lower,
            "steepest_pair": float(((y - y.T).abs() / gaps).max()),
            "train_error": wrong,
            "function": [round(float(value), 4) for value in drawn],
        }

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per share, with means over seeds, and the rank correlation with the share."""
        rows, charts = list[tuple[object, ...]](), list[Series]()
        keys = ("steepest_pair", "lower", "upper", "product", "train_error")
        for share in self.shares:
            own = [record for trial, record in records if trial["share"] == share]
            if own:
                rows.append((share, *(_told([record[key] for record in own]) for key in keys)))
                charts.append(_drawn(share, own[0]))
        return Table(
            title="The Lipschitz constant over the share of flipped labels",
            columns=(
                "share",
                "steepest pair",
                "found slope",
                "certified",
                "product",
                "training error",
            ),
            rows=tuple(rows),
            notes=_notes(self.shares, records),
            charts=(_curve(self.shares, records), _functions(charts)),
            claims=_claims(records),
        )

    def tiny(self) -> Self:
        """Use two seeds, two shares and hardly any training."""
        return self.replace(seeds=2, samples=8, epochs=5, shares=(0.0, 0.5))


def _data(samples: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Draw one point from each of equal intervals of the lobes of the sine, away from their ends."""
    random = generator(seed)
    inner = (torch.arange(samples) + 0.25 + 0.5 * torch.rand(samples, generator=random)) / samples
    lobe = (LOBES * inner).floor()
    x = ((lobe + 0.5 + (LOBES * inner - lobe - 0.5) / 3) / LOBES * 2 - 1)[:, None]
    y = 1 - 2 * (lobe % 2)[:, None]
    flipped = torch.randperm(samples, generator=random)[: round(share * samples)]
    y[flipped] *= -1
    return x, y


def _trained(x: Tensor, y: Tensor, epochs: int, seed: int) -> MLP:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MLP(widths=(1, 64, 64, 1), activation="relu")
        with torch.no_grad():
            first = next(layer for layer in model.modules() if isinstance(layer, nn.Linear))
            first.weight.copy_(4 * first.weight.sign())
            first.bias.copy_(-first.weight[:, 0] * (2 * torch.rand(len(first.bias)) - 1))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
    return model.eval()


def _claims(records: Sequence[tuple[Trial, Record]]) -> tuple[Claim, ...]:
    """Compare the largest share of noise with the smallest, paired by seed."""
    shares = sorted({trial["share"] for trial, _ in records})
    ends = [{t.seed: r for t, r in records if t["share"] == shares[k]} for k in (-1, 0)]
    both = sorted(ends[0].keys() & ends[1].keys())
    if len(shares) < 2 or len(both) < 2:
        return ()
    words = {"lower": "The largest slope that is found", "upper": "The certified constant"}
    tests = [paired(*([end[seed][key] for seed in both] for end in ends)) for key in words]
    corrected = holm([test.p_value for test in tests])
    return tuple(
        Claim.shown(f"{name} grows with the noise.", test.difference > 0 and p < 0.05)
        for name, test, p in zip(words.values(), tests, corrected, strict=True)
    )


def _notes(shares: Sequence[float], records: Sequence[tuple[Trial, Record]]) -> tuple[str, ...]:
    """Compare most noise with none, seed by seed, and look at the networks that fit all labels."""
    own = [float(trial["share"]) for trial, _ in records]
    ranks = [
        f"{name} {spearman(own, [record[key] for _, record in records]):.2f}"
        for key, name in NAMES.items()
    ]
    notes = [f"Rank correlation with the share of noise: {', '.join(ranks)}."]
    ends = [
        {trial.seed: record for trial, record in records if trial["share"] == share}
        for share in (min(shares), max(shares))
    ]
    seeds = sorted(set(ends[0]) & set(ends[1]))
    if len(seeds) > 1 and min(shares) < max(shares):
        grown = [
            paired(*([math.log(end[seed][key]) for seed in seeds] for end in ends[::-1]))
            for key in NAMES
        ]
        corrected = holm([one.p_value for one in grown])
        words = [
            f"{name} {math.exp(one.difference):.3g} times (corrected p = {p:.2g})"
            for name, one, p in zip(NAMES.values(), grown, corrected, strict=True)
        ]
        notes.append(
            f"From {min(shares):.0%} to {max(shares):.0%} noise, geometric mean over {len(seeds)} "
            f"seeds: {', '.join(words)}."
        )
    fitted = [record for _, record in records if record["train_error"] == 0]
    if fitted:
        least = min(record["lower"] / record["steepest_pair"] for record in fitted)
        notes.append(
            f"{len(fitted)} of {len(records)} networks have all labels right. Their found slope is at "
            f"least {least:.3g} times that of the steepest pair."
        )
    return tuple(notes)


def _told(values: Sequence[float]) -> str:
    return f"{math.fsum(values) / len(values):.4g} {mean_interval(values)}"


def _drawn(share: float, record: Record) -> Series:
    grid = torch.linspace(-1, 1, POINTS).tolist()
    return Series(name=f"{share:.0%} noise", x=grid, y=record["function"], mode="lines")


def _functions(series: Sequence[Series]) -> Line:
    return Line(
        title="The functions of the first seed", x_label="input", y_label="output", series=series
    )


def _curve(shares: Sequence[float], records: Sequence[tuple[Trial, Record]]) -> Line:
    series = list[Series]()
    for key, name in (
        ("product", "product of layer norms"),
        ("upper", "certified bound"),
        ("lower", "largest slope found"),
    ):
        means = []
        for share in shares:
            own = [record[key] for trial, record in records if trial["share"] == share]
            means.append(math.fsum(own) / len(own) if own else None)
        series.append(Series(name=name, x=list(shares), y=means))
    return Line(
        title="Lipschitz constant over label noise",
        x_label="share of flipped labels",
        y_label="constant",
        y_scale="log",
        series=series,
    )
