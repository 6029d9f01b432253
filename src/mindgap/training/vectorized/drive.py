"""Drive: the loop around an engine, in windows of epochs, with one look for divergence at the end of each.

A window in which a member left the finite numbers is run again from its start, epoch by epoch: that member is frozen
at the end of its last whole epoch, as the plain loop does, and the others go on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.training.progress import Progress
from mindgap.training.vectorized.curves import Curves
from mindgap.training.vectorized.edits import Edit
from mindgap.training.vectorized.engine import Engine
from mindgap.training.vectorized.rates import Rates
from mindgap.training.vectorized.rules import Rule

_WINDOW = 64  # steps between two looks for divergence


@dataclasses.dataclass
class End:
    """How far a member came and why it stopped."""

    epochs: int
    stopped: str = ""


class Drive:
    """Trains an engine's members for some epochs."""

    def __init__(
        self, engine: Engine, rule: Rule, rates: Rates, edits: Sequence[Edit], curves: Curves, epochs: int, keep: bool
    ) -> None:
        self.engine, self.rule, self.rates, self.edits, self.curves = engine, rule, rates, edits, curves
        self.epochs, self.keep = epochs, keep
        self.window = max(1, _WINDOW // len(engine.bounds))
        rows = epochs if keep else min(self.window, epochs)
        self.running = torch.zeros(rows, engine.problem.members, dtype=engine.losses.dtype)
        self._rows = list(self.running)
        self.ends = [End(epochs) for _ in range(engine.problem.members)]
        self.alive = torch.ones(engine.problem.members, dtype=torch.bool)
        self._frozen = torch.empty_like(engine.store.flat)

    @torch.no_grad()
    def run(self, bar: Progress) -> bool:
        """Train; false if Ctrl-C ended it, at the end of the last whole window."""
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

    def _window(self, span: range, kept: tuple[Tensor, tuple[int, list[Tensor]]]) -> None:
        for epoch in span:
            self._epoch(epoch)
        seen = self.running[self._row(span[0]) : self._row(span[-1]) + 1]
        if not bool(torch.isfinite(seen[:, self.alive]).all()):
            self._restore(kept)
            for epoch in span:
                self._careful(epoch)

    def _row(self, epoch: int) -> int:
        return epoch - 1 if self.keep else (epoch - 1) % self.window

    def _epoch(self, epoch: int) -> None:
        engine, step_rule = self.engine, self.rule.step
        engine.begin(epoch)
        self.rule.rate = self.rates.at(epoch)
        for step, _ in enumerate(engine.bounds):
            engine.gradient(step)
            for edit in self.edits:
                edit.apply(engine.store, self.rule)
            step_rule()
        engine.running_losses(self._rows[self._row(epoch)])
        self.curves.look(epoch)

    def _careful(self, epoch: int) -> None:
        before = self.engine.store.flat.clone()
        self._epoch(epoch)
        lost = ~torch.isfinite(self.engine.losses).all(0) & self.alive
        if bool(lost.any()):
            self._freeze(lost, before, epoch)

    def _freeze(self, lost: Tensor, before: Tensor, epoch: int) -> None:
        store = self.engine.store
        for place, value in zip(store.cut(self._frozen), store.cut(before), strict=True):
            place[lost] = value[lost]
        for member in lost.nonzero().flatten().tolist():
            losses = self.engine.losses[:, member].tolist()
            step = next(k for k, loss in enumerate(losses) if not math.isfinite(loss))
            number = (epoch - 1) * len(losses) + step + 1
            why = f"diverged: the loss became {losses[step]} in epoch {epoch}, step {number}"
            self.ends[member] = End(epoch - 1, f"{why}; the weights are those from the end of epoch {epoch - 1}")
        self.alive &= ~lost

    def skip(self) -> None:
        """Leave all members as they began."""
        self._end(self.alive, 0, "interrupted before the first epoch")

    def _end(self, which: Tensor, epochs: int, why: str) -> None:
        for member in which.nonzero().flatten().tolist():
            self.ends[member] = End(epochs, why)

    def _thaw(self) -> None:
        store, frozen = self.engine.store, ~self.alive
        for place, value in zip(store.segments, store.cut(self._frozen), strict=True):
            place[frozen] = value[frozen]

    def _state(self) -> tuple[Tensor, tuple[int, list[Tensor]]]:
        return self.engine.store.flat.clone(), self.rule.state()

    def _restore(self, kept: tuple[Tensor, tuple[int, list[Tensor]]]) -> None:
        self.engine.store.flat.copy_(kept[0])
        self.rule.restore(kept[1])

    def _report(self, bar: Progress, span: range) -> None:
        mean = float(self._rows[self._row(span[-1])][self.alive].mean()) if bool(self.alive.any()) else math.nan
        for _ in span:
            bar.update({"running_loss": mean})

    def histories(self) -> list[tuple[dict[str, float], ...]]:
        """The curves of every member."""
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
