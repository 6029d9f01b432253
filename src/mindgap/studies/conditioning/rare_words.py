"""Rare words in an embedding: one learning rate for all, or one for each."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from mindgap.core import (
    Chart,
    Claim,
    Line,
    Record,
    Series,
    Study,
    Table,
    Trial,
    generator,
    holm,
    mean_interval,
    option,
    paired,
    seeded,
)
from mindgap.studies.conditioning.steps import FACTOR, RULES, Pair

OPTIMIZERS = ("SGD", "momentum", "AdaGrad", "RMSProp", "AdaDelta", "Adam")
GROUPS = {"frequent": (0, 20), "middle": (20, 100), "rare": (100, 500)}  # by rank
WORDS, LENGTH = 500, 6
NOTES = (
    "Published claim (lecture slides): rare words have rare gradients, so the best learning rate is "
    "higher for them, and optimizers that adapt it by coordinate should learn them sooner.",
    "Every optimizer has the same grid of learning rates; the one with the lowest validation loss "
    "on other seeds is taken. Errors are those on fresh sentences made of words of one group only, "
    "after the same number of steps. Differences from SGD are paired by seed; p-values are "
    "corrected by Holm.",
)


class ConditioningRareWords(Study):
    r"""Train an embedding on sentences whose words follow Zipf's law.

    Formula: $P(\text{word of rank } r) \propto 1/r, \quad y = 1\{\sum_{w \in s} z_w > 0\}, \quad z_w
    \sim N(0, 1)$

    Reading: Each word has a hidden score, and a sentence is positive if the sum is. A word's vector
    moves only when the word occurs. SGD leaves rare words near their start; preconditioning
    by coordinate does not.

    Assumes: A mean of word vectors and one linear layer, on new sentences at every step, so that
    nothing is repeated.

    >>> len(ConditioningRareWords().trials())
    6
    """

    method = ("E4",)
    cites = ("duchi2011adaptive",)
    reproduces = ("expressivity: Rare words",)

    seeds: int = option(10, help="fresh seeds per optimizer", low=2)
    search: int = option(3, help="seeds on which the learning rate is chosen", low=1)
    rates: int = option(9, help="learning rates per optimizer, a factor of 3.16 apart", low=1)
    steps: int = option(500, help="steps of every run", low=1)
    batch_size: int = option(32, help="sentences per step", low=1)

    def trials(self) -> Sequence[Trial]:
        """One trial per optimizer."""
        return [Trial(parameters={"optimizer": rule}) for rule in OPTIMIZERS]

    def run(self, trial: Trial) -> Record:
        """Choose the learning rate on validation sentences, then test fresh seeds by group."""
        rule = trial["optimizer"]
        grid = [RULES[rule][0] * FACTOR ** (k - self.rates // 2) for k in range(self.rates)]
        if rule in ("SGD", "momentum"):  # a mean of vectors has small gradients
            grid = [rate * FACTOR**4 for rate in grid]
        losses = [self._validation(rule, rate) for rate in grid]
        best = min(range(self.rates), key=lambda k: losses[k])
        errors = [self._errors(rule, grid[best], seed) for seed in range(self.seeds)]
        return {
            "rate": grid[best],
            "at_end": best in (0, self.rates - 1),
            "errors": {group: [one[group] for one in errors] for group in errors[0]},
        }

    def _validation(self, rule: str, rate: float) -> float:
        total = 0.0
        for seed in range(10_000, 10_000 + self.search):
            model = self._learn(rule, rate, seed)
            inputs, labels = sentences(scores(seed), 1_000, generator(seed + 1))
            loss = nn.functional.cross_entropy(model(inputs), labels)
            total += loss.item() if bool(loss.isfinite()) else 1e9
        return total

    @torch.no_grad()
    def _errors(self, rule: str, rate: float, seed: int) -> dict[str, float]:
        model, source = self._learn(rule, rate, seed), generator(seed + 1)
        groups = {"all": (0, WORDS), **GROUPS}
        found = {}
        for group, ranks in groups.items():
            inputs, labels = sentences(scores(seed), 2_000, source, ranks)
            found[group] = float((model(inputs).argmax(1) != labels).double().mean())
        return found

    def _learn(self, rule: str, rate: float, seed: int) -> nn.Module:
        with seeded(seed):
            model = nn.Sequential(nn.EmbeddingBag(WORDS, 8, mode="mean"), nn.Linear(8, 2))
        optimizer, source, hidden = RULES[rule][1](model, rate, seed), generator(seed), scores(seed)
        with torch.enable_grad():
            for _ in range(self.steps):
                inputs, labels = sentences(hidden, self.batch_size, source)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()
        return model

    def summarize(self, records: Sequence[tuple[Trial, Record]]) -> Table:
        """One row per optimizer, with its error on each group of words."""
        found = {trial["optimizer"]: record for trial, record in records}
        tests = _tests(found)
        rows = tuple(
            (rule, record["rate"], *_cells(record, tests.get(rule, {})))
            for rule, record in found.items()
        )
        ends = [rule for rule, record in found.items() if record["at_end"]]
        return Table(
            title="Test error on sentences of frequent and of rare words, by optimizer",
            columns=(
                "optimizer",
                "learning rate",
                "all",
                *(text for group in GROUPS for text in (group, f"{group}, from SGD")),
            ),
            rows=rows,
            notes=(
                *NOTES,
                *_judged(found, tests),
                f"Learning rates at an end of their grid: {', '.join(ends) or 'none'}.",
            ),
            charts=(_chart(found),),
            claims=(
                Claim.counted(
                    "Adaptive optimizers learn rare words better than SGD.",
                    *map(len, _better(found, tests)),
                ),
            ),
        )

    def tiny(self) -> Self:
        """Use two seeds, one learning rate and few steps."""
        return self.replace(seeds=2, search=1, rates=1, steps=5)


def scores(seed: int) -> Tensor:
    """Draw the hidden score of every word."""
    return torch.randn(WORDS, generator=generator(seed))


def sentences(
    hidden: Tensor, count: int, source: torch.Generator, ranks: tuple[int, int] = (0, WORDS)
) -> Pair:
    """Draw sentences by Zipf's law from the words of some ranks, with their classes.

    Args:
        hidden: The score of every word.
        count: Number of sentences.
        source: Of the randomness.
        ranks: First rank, and the one after the last.

    >>> inputs, labels = sentences(scores(0), 4, generator(0))
    >>> inputs.shape
    torch.Size([4, 6])
    """
    chances = 1 / torch.arange(1 + ranks[0], 1 + ranks[1]).double()
    drawn = torch.multinomial(chances, count * LENGTH, replacement=True, generator=source)
    words = (drawn + ranks[0]).view(count, LENGTH)
    return words, (hidden[words].sum(1) > 0).long()


def _tests(found: Mapping[str, Record]) -> dict[str, dict[str, Any]]:
    keys = [(rule, group) for rule in found if rule != "SGD" for group in GROUPS]
    tests = [
        paired(found[rule]["errors"][group], found["SGD"]["errors"][group]) for rule, group in keys
    ]
    corrected = holm([test.p_value for test in tests])
    out: dict[str, dict[str, Any]] = {}
    for (rule, group), test, p in zip(keys, tests, corrected, strict=True):
        out.setdefault(rule, {})[group] = (test, p)
    return out


def _cells(record: Record, tests: Mapping[str, Any]) -> list[str]:
    cells = [_percent(record["errors"]["all"])]
    for group in GROUPS:
        cells.append(_percent(record["errors"][group]))
        if group not in tests:
            cells.append("—")
            continue
        test, p = tests[group]
        cells.append(f"{100 * test.difference:+.1f} points, p {p:.2g}")
    return cells


def _percent(values: Sequence[float]) -> str:
    return f"{100 * sum(values) / len(values):.1f} %"


def _better(
    found: Mapping[str, Record], tests: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """Return the adaptive optimizers that beat SGD on rare words, and all of them."""
    adaptive = [rule for rule in ("AdaGrad", "RMSProp", "AdaDelta", "Adam") if rule in found]
    better = [
        rule
        for rule in adaptive
        if tests[rule]["rare"][0].difference < 0 and tests[rule]["rare"][1] < 0.05
    ]
    return better, adaptive


def _judged(found: Mapping[str, Record], tests: Mapping[str, Mapping[str, Any]]) -> list[str]:
    better, adaptive = _better(found, tests)
    return [
        f"On rare words, {len(better)} of {len(adaptive)} adaptive optimizers have a significantly "
        f"lower error than SGD: {', '.join(better) or 'none'}."
    ]


def _chart(found: Mapping[str, Record]) -> Chart:
    def series(rule: str, record: Record) -> Series:
        values = [record["errors"][group] for group in GROUPS]
        ends = [mean_interval(one) for one in values]
        return Series(
            name=rule,
            x=tuple(GROUPS),
            y=tuple(sum(one) / len(one) for one in values),
            low=tuple(end.low for end in ends),
            high=tuple(end.high for end in ends),
        )

    return Line(
        title="Error on sentences of one group of words",
        series=tuple(series(rule, record) for rule, record in found.items()),
        y_label="test error",
    )
