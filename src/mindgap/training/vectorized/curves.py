"""Curves: losses and errors of all members in evaluation mode, every so many epochs."""

from __future__ import annotations

import torch
from torch import Tensor

from mindgap.core.loss import align
from mindgap.core.split import Inputs, Split
from mindgap.core.subject import typed
from mindgap.training.vectorized.engine import Engine

_AT_ONCE = 2**22  # outputs held at a time


class Curves:
    """Rows as the plain loop writes them; ``every`` is in epochs, 0 means never."""

    def __init__(self, engine: Engine, train: Split, test: Split | None, every: int, epochs: int) -> None:
        self.engine, self.every, self.epochs = engine, every, epochs
        self.splits = {"train": train} if test is None else {"train": train, "test": test}
        self.rows: dict[int, dict[str, list[float]]] = {}

    def look(self, epoch: int) -> None:
        """Evaluate after an epoch, if it is time."""
        if self.every and (epoch % self.every == 0 or epoch == self.epochs):
            self.rows[epoch] = {
                key: v for name, split in self.splits.items() for key, v in self._on(name, split).items()
            }

    def row(self, epoch: int, member: int) -> dict[str, float]:
        """One member's numbers."""
        return {name: values[member] for name, values in self.rows.get(epoch, {}).items()}

    def _on(self, name: str, split: Split) -> dict[str, list[float]]:
        totals = torch.zeros(2, self.engine.problem.members, dtype=torch.float64)
        for batch in split.batches(max(1, _AT_ONCE // (16 * self.engine.problem.members))):
            totals += self._sums(batch.inputs, batch.target)
        loss, error = (totals / len(split)).tolist()
        return {f"{name}_loss": loss} | ({} if self._regression else {f"{name}_error": error})

    @property
    def _regression(self) -> bool:
        return self.engine.problem.task == "regression"

    def _sums(self, inputs: Inputs, target: Tensor) -> Tensor:
        problem = self.engine.problem
        outputs, target = self.engine.outputs(inputs), typed(target, problem.task, problem.like)
        losses = [problem.loss(output, target).sum(dtype=torch.float64) for output in outputs]
        wrong = torch.zeros(len(outputs)) if self._regression else self._wrong(outputs, target)
        return torch.stack([torch.stack(losses), wrong.double()])

    def _wrong(self, outputs: Tensor, target: Tensor) -> Tensor:
        if self.engine.problem.task == "classification":
            return (outputs.argmax(2) != target).sum(1)
        missed = (outputs > 0).to(outputs.dtype) != align(outputs[0], target)
        return missed.flatten(2).double().mean(2).sum(1) if missed.ndim > 2 else missed.double().sum(1)
