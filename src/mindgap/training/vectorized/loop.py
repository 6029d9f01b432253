"""Drive: the loop around an engine, in windows of epochs between checks for divergence.

A check in every step would cost as much as the step of a small network. So a window in which a
member diverged is run a second time, epoch by epoch. That member is frozen at the end of its last
complete epoch, as in the plain loop, and the others continue.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mindgap.core import Inputs, Progress, Split, align, typed
from mindgap.training.vectorized.engine import Engine
from mindgap.training.vectorized.hooks import EpochEnds
from mindgap.training.vectorized.optimizers import Rates, Rule

_AT_ONCE = 2**22  # outputs held at a time


class Curves:
    """Losses and errors of all members in evaluation mode, every so many epochs (0 is never)."""

    def __init__(
        self, engine: Engine, train: Split, test: Split | None, every: int, epochs: int
    ) -> None:
        self.engine, self.every, self.epochs = engine, every, epochs
        self.splits = {"train": train} if test is None else {"train": train, "test": test}
        self.rows: dict[int, dict[str, list[float]]] = {}

    def look(self, epoch: int) -> None:
        """Evaluate after an epoch, if it is due."""
        if self.every and (epoch % self.every == 0 or epoch == self.epochs):
            self.rows[epoch] = {
                key: v
                for name, split in self.splits.items()
                for key, v in self._on(name, split).items()
            }

    def row(self, epoch: int, member: int) -> dict[str, float]:
        """Return one member's numbers."""
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
        return (
            missed.flatten(2).double().mean(2).sum(1) if missed.ndim > 2 else missed.double().sum(1)
        )


_Kept = tuple[Tensor, tuple[int, list[Tensor]], dict[int, dict[str, Tensor]]]
_WINDOW = 64  # steps between two checks for divergence


@dataclasses.dataclass
class End:
    """How far a member came and why it stopped."""

    epochs: int
    stopped: str = ""


class Drive:
    """Trains an engine's members for some epochs."""

    def __init__(
        self,
        engine: Engine,
        rule: Rule,
        rates: Rates,
        edits: Sequence[Callable[[], None]],
        closings: EpochEnds,
        curves: Curves,
        epochs: int,
        keep: bool,
    ) -> None:
        self.engine, self.rule, self.rates, self.edits, self.curves = (
            engine,
            rule,
            rates,
            edits,
            curves,
        )
        self.closings, self.epochs, self.keep = closings, epochs, keep
        self.window = max(1, _WINDOW // len(engine.bounds))
        rows = epochs if keep else min(self.window, epochs)
        self.running = torch.zeros(rows, engine.problem.members, dtype=engine.losses.dtype)
        self._rows = list(self.running)
        self.ends = [End(epochs) for _ in range(engine.problem.members)]
        self.alive = torch.ones(engine.problem.members, dtype=torch.bool)
        self._frozen = torch.empty_like(engine.store.weights)

    @torch.no_grad()
    def run(self, bar: Progress) -> bool:
        """Train; return false if Ctrl-C ended training.

        Ctrl-C may arrive in the middle of a step, when some members have moved and others have not.
        So all weights go back to the end of the last complete window.
        """
        done, kept = 0, self._state()
        try:
            while done < self.epochs and bool(self.alive.any()):
                kept = self._state()
                span = range(done + 1, min(done + self.window, self.epochs) + 1)
                self._window(span, kept)
                done = span[-1]
                self._report(bar, span)
        except KeyboardInterrupt:
            self._restore(kept)
            self._end(self.alive, done, f"interrupted in epoch {done + 1}")
        self._thaw()
        return done >= self.epochs or not bool(self.alive.any())

    def _window(self, span: range, kept: _Kept) -> None:
        for epoch in span:
            self._epoch(epoch)
            self.closings.look(epoch, self.alive)
        seen = self.running[self._row(span[0]) : self._row(span[-1]) + 1]
        if not bool(torch.isfinite(seen[:, self.alive]).all()):
            self._restore(kept)
            for epoch in span:
                self._careful(epoch)

    def _row(self, epoch: int) -> int:
        return epoch - 1 if self.keep else (epoch - 1) % self.window

    def _epoch(self, epoch: int) -> None:
        engine, step_rule = self.engine, self.rule.step
        engine.store.rate = self.rates.at(epoch)
        engine.begin(epoch)
        hooks, before = engine.problem.hooks, (epoch - 1) * len(engine.bounds)
        for step, _ in enumerate(engine.bounds):
            if hooks.written:
                hooks.at(epoch, before + step + 1)
            engine.gradient(step)
            for edit in self.edits:
                edit()
            step_rule()
        engine.running_losses(self._rows[self._row(epoch)])
        self.curves.look(epoch)

    def _careful(self, epoch: int) -> None:
        """Run one epoch and freeze the members that diverged in it.

        A frozen member still takes part, with meaningless numbers, because all members share each
        product. Its last good weights are kept apart until the end.
        """
        before = self.engine.store.weights.clone()
        self._epoch(epoch)
        lost = ~torch.isfinite(self.engine.losses).all(0) & self.alive
        if bool(lost.any()):
            self._freeze(lost, before, epoch)
        self.closings.look(epoch, self.alive)

    def _freeze(self, lost: Tensor, before: Tensor, epoch: int) -> None:
        store = self.engine.store
        for place, value in zip(store.cut(self._frozen), store.cut(before), strict=True):
            place[lost] = value[lost]
        for member in lost.nonzero().flatten().tolist():
            losses = self.engine.losses[:, member].tolist()
            step = next(k for k, loss in enumerate(losses) if not math.isfinite(loss))
            number = (epoch - 1) * len(losses) + step + 1
            why = f"diverged: the loss became {losses[step]} in epoch {epoch}, step {number}"
            self.ends[member] = End(
                epoch - 1, f"{why}; the weights are those from the end of epoch {epoch - 1}"
            )
        self.alive &= ~lost

    def skip(self) -> None:
        """Leave all members with their initial weights."""
        self._end(self.alive, 0, "interrupted before the first epoch")

    def _end(self, which: Tensor, epochs: int, why: str) -> None:
        for member in which.nonzero().flatten().tolist():
            self.ends[member] = End(epochs, why)

    def _thaw(self) -> None:
        """Give frozen members the weights that were kept for them."""
        store, frozen = self.engine.store, ~self.alive
        for place, value in zip(store.segments, store.cut(self._frozen), strict=True):
            place[frozen] = value[frozen]

    def _state(self) -> _Kept:
        return self.engine.store.weights.clone(), self.rule.state(), self.closings.state()

    def _restore(self, kept: _Kept) -> None:
        self.engine.store.weights.copy_(kept[0])
        self.rule.restore(kept[1])
        self.closings.restore(kept[2])

    def _report(self, bar: Progress, span: range) -> None:
        mean = (
            float(self._rows[self._row(span[-1])][self.alive].mean())
            if bool(self.alive.any())
            else math.nan
        )
        for _ in span:
            bar.advance({"running_loss": mean})

    def histories(self) -> list[tuple[dict[str, float], ...]]:
        """Return the curves of every member."""
        if not self.keep:
            return [() for _ in self.ends]
        columns = self.running.t().tolist()
        return [
            self._history(m, column[: end.epochs])
            for m, (column, end) in enumerate(zip(columns, self.ends, strict=True))
        ]

    def _history(self, member: int, losses: list[float]) -> tuple[dict[str, float], ...]:
        rows = tuple({"epoch": float(k), "running_loss": loss} for k, loss in enumerate(losses, 1))
        for epoch in self.curves.rows:
            if epoch <= len(rows):
                rows[epoch - 1].update(self.curves.row(epoch, member))
        return rows
