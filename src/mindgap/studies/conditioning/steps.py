"""How many steps a network takes to a training loss, with the learning rate tuned for each arm."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import generator, holm, mean_interval, paired, seeded
from mindgap.training.preconditioned import KFAC, Shampoo

Pair = tuple[Tensor, Tensor]
# The middle of the grid of learning rates of every optimizer, and how it is made.
RULES: Mapping[str, tuple[float, Callable[[nn.Module, float, int], torch.optim.Optimizer]]] = {
    "SGD": (0.3, lambda model, lr, _: torch.optim.SGD(model.parameters(), lr)),
    "momentum": (0.1, lambda model, lr, _: torch.optim.SGD(model.parameters(), lr, momentum=0.9)),
    "AdaGrad": (0.03, lambda model, lr, _: torch.optim.Adagrad(model.parameters(), lr)),
    "RMSProp": (0.003, lambda model, lr, _: torch.optim.RMSprop(model.parameters(), lr)),
    "AdaDelta": (3.0, lambda model, lr, _: torch.optim.Adadelta(model.parameters(), lr)),
    "Adam": (0.003, lambda model, lr, _: torch.optim.Adam(model.parameters(), lr)),
    "K-FAC": (0.01, lambda model, lr, seed: KFAC(model, lr, seed=seed)),
    "Shampoo": (0.01, lambda model, lr, _: Shampoo(model.parameters(), lr)),
}
MEMORY = 10  # batches whose mean loss is compared with the target
DIVERGED = 1e3  # a cross entropy from which nothing comes back
FACTOR = math.sqrt(10)  # between neighbors of the grid of learning rates


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """A network to train, and until when.

    Args:
        model: Makes the network, under a seeded generator.
        train: Inputs and labels.
        batch_size: Samples per step.
        target: The training loss that is to be reached.
        limit: The most steps.
    """

    model: Callable[[], nn.Module]
    train: Pair
    batch_size: int
    target: float
    limit: int

    def learn(self, rule: str, rate: float, seed: int, *, whole: bool = False) -> "Run":
        """Train until the mean loss of the last batches is at the target.

        Args:
            rule: A key of ``RULES``.
            rate: The learning rate.
            seed: Seed of initial weights and batches.
            whole: Take all steps, also after the target.
        """
        with seeded(seed):
            model = self.model()
        optimizer = RULES[rule][1](model, rate, seed)
        losses, reached = list[float](), self.limit
        for step, (inputs, labels) in enumerate(self._batches(seed), 1):
            logits = model(inputs)
            loss = nn.functional.cross_entropy(logits, labels)
            if not loss.item() < DIVERGED:
                break
            if isinstance(optimizer, KFAC):
                optimizer.observe(logits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step >= MEMORY and sum(losses[-MEMORY:]) <= MEMORY * self.target:
                reached = min(reached, step)
                if not whole:
                    break
        return Run(model=model, steps=reached, losses=losses)

    def _batches(self, seed: int) -> Iterator[Pair]:
        inputs, labels = self.train
        source, index = generator(seed), list[Tensor]()
        size = min(self.batch_size, len(labels))
        while len(index) < self.limit:
            order = torch.randperm(len(labels), generator=source)
            index += [part for part in order.split(size) if len(part) == size]
        # One after the other: all at once would hold the data once per step where a batch is all.
        return ((inputs[part], labels[part]) for part in index[: self.limit])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A training: its model, its losses, and the step that reached the target, else the limit."""

    model: nn.Module
    steps: int
    losses: list[float]


def tuned(problem: Problem, rule: str, *, rates: int, search: int) -> tuple[float, bool]:
    """Choose the learning rate with the fewest steps, on seeds that nothing else uses.

    Args:
        problem: What is trained.
        rule: A key of ``RULES``.
        rates: Size of the grid around the usual rate.
        search: Number of seeds.

    Returns:
        The rate, and whether it is at an end of its grid.
    """
    middle = RULES[rule][0]
    grid = [middle * FACTOR ** (k - rates // 2) for k in range(rates)]
    costs = [_cost(problem, rule, rate, search) for rate in grid]
    best = min(range(rates), key=lambda k: costs[k])
    return grid[best], best in (0, rates - 1)


def _cost(problem: Problem, rule: str, rate: float, search: int) -> tuple[float, float]:
    """Return mean steps and, where no run reaches the target, the last loss."""
    runs = [problem.learn(rule, rate, 10_000 + seed) for seed in range(search)]
    last = [
        sum(run.losses[-MEMORY:]) / MEMORY if len(run.losses) >= run.steps else math.inf
        for run in runs
    ]
    return sum(run.steps for run in runs) / search, sum(last) / search


def compared(steps: Mapping[Any, Sequence[int]], control: Any) -> dict[Any, tuple[str, float]]:
    """Compare arms with a control by the ratio of their steps, seed by seed.

    Args:
        steps: Steps of every arm, one number per seed.
        control: The key of the control.

    Returns:
        For every other arm, its ratio with an interval in words, and Holm's p-value.
    """
    logs = {arm: [math.log(value) for value in values] for arm, values in steps.items()}
    others = [arm for arm in steps if arm != control]
    tests = [paired(logs[arm], logs[control]) for arm in others]
    p_values = holm([test.p_value for test in tests])
    return {arm: (_ratio(test), p) for arm, test, p in zip(others, tests, p_values, strict=True)}


def _ratio(test: Any) -> str:
    low, high = (math.exp(value) for value in (test.interval.low, test.interval.high))
    return f"{math.exp(test.difference):.2f} ({low:.2f}–{high:.2f})"


def spoken(steps: Sequence[int], limit: int) -> str:
    """Say the mean number of steps with its interval, and how many runs stopped at the limit."""
    late = sum(value >= limit for value in steps)
    if late == len(steps):
        return f"over {limit}"
    found, mean = mean_interval(steps), sum(steps) / len(steps)
    some = f", {late} over {limit}" if late else ""
    return f"{mean:.0f} ({max(found.low, 0):.0f}–{found.high:.0f}{some})"
