"""Monitor: watch gradients, weights, updates and activations of every layer during training."""

import math
import os
import time
from collections.abc import Sequence
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from mindgap.core import InputError, integer, validated
from mindgap.ops.signal.depth import Profile
from mindgap.ops.signal.watch import TIME, Passed, Watch, clean
from mindgap.training.monitor.log import FORMAT, VERSION, Line, Log

DIGITS = 5  # of the numbers in a log
_Row = list[float] | Tensor  # one norm per weight; a tensor if it is on another device
_HALF = frozenset({torch.float16, torch.bfloat16})
WINDOW = 5  # readings in which a unit must never have fired to count as dead


@validated
class Monitor:
    """Watches a training from within, and changes nothing in it.

    Call ``step`` once per optimizer step, after it and before the gradients are cleared. The norm
    of the gradient and the loss are noted at every step. At the first and at every so many steps
    there is a reading: for every layer the norms of gradient, weights, update and activation, and
    of the gradient by its outputs; for every activation the share of dead and of saturated units,
    also for ``F.relu`` and other functions. The weights are bit-identical with and without it.
    ``mindgap.monitor`` judges what was noted.

    Args:
        model: The network. It may be compiled, and it may hold recurrent layers. None if a loop
            attaches it, as :func:`mindgap.fit` and the callbacks of ``mindgap.integrations`` do.
        log: A file to append a line of JSON to at every reading; ``mindgap monitor`` follows it.
        every: Steps between two readings.

    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with Monitor(model, every=10) as monitor:
    ...     for _ in range(20):
    ...         optimizer.zero_grad()
    ...         loss = model(torch.ones(8, 2)).square().mean()
    ...         loss.backward()
    ...         optimizer.step()
    ...         monitor.step(loss)
    >>> [line["step"] for line in monitor.lines if "layers" in line]
    [1, 10, 20]
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        log: str | os.PathLike[str] | None = None,
        every: int = 100,
    ) -> None:
        self.every = integer("every", every, 1)
        self.path, self.lines = log, list[Line]()
        self.steps = 0
        self._log: Log | None = None
        self._model: nn.Module | None = None
        if model is not None:
            self.attach(model)

    def attach(self, model: nn.Module, step: int = 0) -> Self:
        """Begin to watch a network.

        Args:
            model: The network that is trained.
            step: How many steps were taken before.
        """
        self.close()
        self._model, self.steps = model, integer("step", step, 0)
        named = [(clean(name), p) for name, p in model.named_parameters() if p.requires_grad]
        if not named:
            raise InputError(
                "The model must have weights that are trained, got none with requires_grad. "
                "Attach the monitor to the network that the optimizer trains."
            )
        self._names, self._weights = [name for name, _ in named], [p for _, p in named]
        self._owners = [name.rpartition(".")[0] for name in self._names]
        self._inactive: dict[str, list[Tensor]] = {}
        self._losses, self._norms = list[Any](), list[_Row]()
        self._broken = False
        if self.path is not None:
            self._log = Log(self.path)
        self._write(
            {
                "format": FORMAT,
                "version": VERSION,
                "model": type(getattr(model, "_orig_mod", model)).__name__,
                "weights": sum(p.numel() for p in self._weights),
                "every": self.every,
                "step": self.steps,
                "time": time.time(),
            }
        )
        self._watch: Watch | None = None
        self._arm(first=True)
        return self

    def close(self) -> None:
        """Remove all hooks and write what was noted since the last reading."""
        if self._model is None:
            return
        if self._watch is not None:
            self._watch.stop()
        self._watch, self._model = None, None
        if self._norms:
            self._write(self._course())
        if self._log is not None:
            self._log.close()
        self._log = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def step(self, loss: Tensor | float | None = None) -> None:
        """Note one step of the optimizer.

        Args:
            loss: The loss of the step's batch.
        """
        if self._model is None:
            raise InputError(
                "A monitor must be attached to a model before its first step, got none. Write "
                "Monitor(model), or monitor.attach(model)."
            )
        self.steps += 1
        self._losses.append(_kept(loss) if isinstance(loss, Tensor) else loss)
        self._norms.append(self._gradient_norms())
        if self._watch is not None:
            self._read(self._watch)
        elif not self._broken and self._is_broken():
            self._write({**self._course(), "trouble": self._trouble({})})
        self._arm()

    def _arm(self, first: bool = False) -> None:
        """Watch the passes of the next step if a reading is due then."""
        self._watch = None
        if first or (self.steps + 1) % self.every == 0:
            assert self._model is not None
            self._before = [weight.detach().clone() for weight in self._weights]
            self._watch = Watch(self._model)
            self._watch.start()

    def _gradient_norms(self) -> _Row:
        """Return one norm per weight: on a GPU they stay there, so that nobody waits for them now."""
        found = [weight.grad for weight in self._weights]
        gradients = [_dense(gradient) for gradient in found if gradient is not None]
        if not gradients:
            raise InputError(
                "step must be called while the gradients are there, got none. Call it after "
                "optimizer.step() and before optimizer.zero_grad()."
            )
        norms = _norms(gradients)
        if isinstance(norms, list) and not _are_finite(norms):
            norms = _norms([gradient.double() for gradient in gradients])  # some only overflowed
        if len(gradients) == len(found):
            return norms
        return self._spread(norms, [k for k, each in enumerate(found) if each is not None])

    def _spread(self, norms: _Row, places: list[int]) -> _Row:
        """Put zeros where a weight has no gradient."""
        if isinstance(norms, list):
            found = dict(zip(places, norms, strict=True))
            return [found.get(k, 0.0) for k in range(len(self._weights))]
        whole = norms.new_zeros(len(self._weights))
        whole[places] = norms
        return whole

    def _is_broken(self) -> bool:
        """Tell whether a number of this step is no number, where asking costs nothing."""
        loss, norms = self._losses[-1], self._norms[-1]
        return isinstance(norms, list) and not _are_finite([*norms, float(loss or 0)])

    def _read(self, watch: Watch) -> None:
        watch.stop()
        passed = watch.passed()
        line = {**self._course(), "layers": self._layers(passed), "units": self._units(watch)}
        trouble = None if self._broken else self._trouble(passed)
        self._write({**line, "trouble": trouble} if trouble else line)

    def _course(self) -> dict[str, Any]:
        """What was noted at every step since the last line."""
        self._last = _on_host(self._norms)
        losses = [None if loss is None else float(loss) for loss in self._losses]
        totals = [math.hypot(*norms) for norms in self._last]
        first = self.steps - len(losses) + 1
        self._noted = (first, losses)
        self._losses, self._norms = [], []
        return {
            "step": self.steps,
            "first": first,
            "time": time.time(),
            "losses": [None if loss is None else _short(loss) for loss in losses],
            "gradient": [_short(total) for total in totals],
        }

    def _layers(self, passed: dict[str, Passed]) -> dict[str, dict[str, Any]]:
        """All layers, those that were called in the order of their calls."""
        weights = [weight.detach() for weight in self._weights]
        torch._foreach_sub_(self._before, weights)
        found = [self._last[-1], *_on_host([_norms(weights), _norms(self._before)])]
        self._before.clear()
        rows: dict[str, dict[str, Any]] = {}
        for name in [*passed, *dict.fromkeys(self._owners)]:
            places = [k for k, owner in enumerate(self._owners) if owner == name]
            if name in rows or not places:
                continue
            norms = [math.hypot(*(values[k] for k in places)) for values in found]
            row: dict[str, Any] = dict(zip(("gradient", "weight", "update"), norms, strict=True))
            row["matrix"] = any(self._weights[k].ndim > 1 for k in places)
            rows[name] = {**row, **(_told(passed[name]) if name in passed else {})}
        return {
            name: {
                key: _short(value) if isinstance(value, float) else value
                for key, value in row.items()
            }
            for name, row in rows.items()
        }

    def _units(self, watch: Watch) -> dict[str, dict[str, Any]]:
        """The share of inactive units, of those that were so in all of the last readings."""
        found = {}
        for layer in watch.units():
            known = self._inactive.setdefault(layer.place, [])
            if known and known[0].shape != layer.dead.shape:
                known.clear()
            known.append(layer.dead.cpu())
            del known[:-WINDOW]
            share = float(torch.stack(known).all(0).double().mean())
            kind = "dead" if layer.least == 1 else "saturated"
            row = {"function": layer.kind, "units": len(layer.inactive), kind: _short(share)}
            found[layer.place] = {**row, "readings": len(known)}
        return found

    def _trouble(self, passed: dict[str, Passed]) -> dict[str, Any] | None:
        """Name what was the first to be no number, in the order in which numbers arise."""
        first, losses = self._noted
        outputs = [name for name, row in passed.items() if not math.isfinite(row.activation)]
        for step, (loss, norms) in enumerate(zip(losses, self._last, strict=True), first):
            wrong = outputs if step == self.steps else []
            bad_loss = loss is not None and not math.isfinite(loss)
            if not (wrong or bad_loss) and _are_finite(norms):
                continue
            pairs = zip(self._names, norms, strict=True)
            names = [name for name, norm in pairs if not math.isfinite(norm)]
            self._broken = True
            ordered = self._backward_order(names)
            what = f"the output of layer {wrong[0]!r}" if wrong else "the loss" if bad_loss else ""
            skipped = not bad_loss and not wrong and self._are_weights_finite()
            self._broken = not skipped
            return {
                "step": step,
                "what": what or f"the gradient of {ordered[0]!r}",
                "gradients": ordered[:20],
                "skipped": skipped,
            }
        return None

    def _backward_order(self, names: Sequence[str]) -> list[str]:
        """Put weights in the order in which their gradients arise."""
        return [name for name in reversed(self._names) if name in set(names)]

    def _are_weights_finite(self) -> bool:
        return all(bool(weight.detach().isfinite().all()) for weight in self._weights)

    def _write(self, line: Line) -> None:
        self.lines.append(line)
        if self._log is not None:
            self._log.write(line)


def _dense(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _norms(tensors: list[Tensor]) -> _Row:
    if any(tensor.dtype in _HALF for tensor in tensors):
        tensors = [tensor.float() for tensor in tensors]
    norms = torch._foreach_norm(tensors)
    if norms[0].is_cpu:
        return [norm.item() for norm in norms]  # quicker than a tensor of them
    return torch.stack([norm.to(norms[0]) for norm in norms])


def _kept(loss: Tensor) -> Any:
    """Return a loss as a number, or as a tensor where asking for the number would wait."""
    return loss.item() if loss.is_cpu else loss.detach()


def _on_host(rows: list[_Row]) -> list[list[float]]:
    """Return rows as lists, with a single transfer for all that are elsewhere."""
    if all(isinstance(row, list) for row in rows):
        return cast("list[list[float]]", rows)
    stacked = torch.stack([torch.as_tensor(row) for row in rows])
    found: list[list[float]] = stacked.double().tolist()
    return found


def _are_finite(values: list[float]) -> bool:
    return math.isfinite(sum(values))  # no sum of single-precision numbers overflows


def _told(passed: Passed) -> dict[str, Any]:
    row: dict[str, Any] = {"activation": passed.activation, "backward": passed.backward}
    if len(passed.calls) >= TIME:
        steps = Profile(passed.calls)
        row["time"] = {
            "steps": len(passed.calls),
            "rate": steps.rate,
            "reach": steps.reach[0],
            "growth": steps.growth[0],
        }
    return row


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
