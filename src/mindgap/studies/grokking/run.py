"""One long full-batch training on a table of arithmetic, recorded, and resumed after a kill."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mindgap.core import Subject, seeded
from mindgap.data.dataset import DataSet
from mindgap.ops.curvature.flat_loss import FlatLoss
from mindgap.ops.curvature.products import hessian_products
from mindgap.ops.curvature.spectrum import top_eigenpairs
from mindgap.training import checkpoint

GROWTH = 1.05  # readings are this factor apart, so that times are known to 5 %
SHARPNESS = 5  # every so many readings the largest eigenvalue is computed too
SAVED = 500  # steps between two checkpoints


class Pairs(nn.Module):
    """A perceptron with one hidden layer that sees both numbers of an equation one-hot.

    Args:
        modulus: How many numbers there are.
        width: Hidden units.

    >>> Pairs(5, 8)(torch.tensor([[1, 5, 4, 6]])).shape
    torch.Size([1, 5])
    """

    def __init__(self, modulus: int, width: int) -> None:
        super().__init__()
        self.modulus = modulus
        self.hidden = nn.Linear(2 * modulus, width)
        self.head = nn.Linear(width, modulus)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute one logit per possible answer."""
        both = nn.functional.one_hot(tokens[:, [0, 2]], self.modulus).flatten(1)
        answer: Tensor = self.head(torch.relu(self.hidden(both.to(self.head.weight.dtype))))
        return answer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Full-batch AdamW on one table.

    Args:
        model: Makes the network.
        data: The table: equations to train on, and held-out ones.
        steps: Steps to take.
        learning_rate: Learning rate.
        weight_decay: Decoupled weight decay.
        seed: Seed of the initial weights.
        file: Where the run is saved while it lasts; it resumes from there. None saves nothing.
    """

    model: Callable[[], nn.Module]
    data: DataSet
    steps: int
    learning_rate: float
    weight_decay: float
    seed: int = 0
    file: Path | None = None

    def curves(self) -> dict[str, list[float]]:
        """Train, and return accuracies, losses, norm and largest eigenvalue over steps."""
        with seeded(self.seed):
            model = self.model()
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
        )
        done, curves = self._resumed(model, optimizer)
        inputs, targets = self.data.train
        due = {step: place for place, step in enumerate(readings(self.steps))}
        for step in range(done + 1, self.steps + 1):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            if step in due:
                self._read(model, step, curves, sharp=due[step] % SHARPNESS == 0)
            if self.file is not None and step % SAVED == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                self.file.parent.mkdir(parents=True, exist_ok=True)
                checkpoint.save(self.file, {"step": step, "curves": curves, **state})
        if self.file is not None:
            self.file.unlink(missing_ok=True)
        return curves

    def _resumed(
        self, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[int, dict[str, list[float]]]:
        names = ("step", "train", "test", "train_loss", "test_loss", "norm", "sharp_step", "sharp")
        if self.file is None or not self.file.exists():
            return 0, {name: [] for name in names}
        content: dict[str, Any] = checkpoint.load(self.file)
        model.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
        return int(content["step"]), content["curves"]

    def _read(
        self, model: nn.Module, step: int, curves: dict[str, list[float]], *, sharp: bool
    ) -> None:
        curves["step"].append(step)
        for name, pair in (("train", self.data.train), ("test", self.data.test)):
            assert pair is not None
            with torch.no_grad():
                outputs = model(pair[0])
                curves[f"{name}_loss"].append(float(nn.functional.cross_entropy(outputs, pair[1])))
                curves[name].append(float((outputs.argmax(1) == pair[1]).double().mean()))
        square = sum(float(p.detach().double().square().sum()) for p in model.parameters())
        curves["norm"].append(square**0.5)
        if sharp:
            curves["sharp_step"].append(step)
            curves["sharp"].append(_largest_eigenvalue(model, self.data))


def _largest_eigenvalue(model: nn.Module, data: DataSet) -> float:
    flat = FlatLoss(Subject(model, "cross_entropy", data.train))
    found = top_eigenpairs(hessian_products(flat), 1, tolerance=1e-2, most=60)
    return float(found.values[0])


def readings(steps: int) -> Iterator[int]:
    """Yield the steps at which a run is read: all at first, then geometrically spaced, and the last.

    Args:
        steps: Length of the run.

    >>> list(readings(25))[-4:]
    [22, 23, 24, 25]
    """
    step = 1
    while step < steps:
        yield step
        step = max(step + 1, round(step * GROWTH))
    yield steps


def passed(curves: dict[str, list[float]], which: str, level: float) -> float | None:
    """Return the first step at which an accuracy is above a level, or None.

    Args:
        curves: What a run recorded.
        which: ``"train"`` or ``"test"``.
        level: The accuracy.

    >>> passed({"step": [1, 2, 3], "test": [0.1, 0.96, 0.9]}, "test", 0.95)
    2
    """
    pairs = zip(curves["step"], curves[which], strict=True)
    with contextlib.suppress(StopIteration):
        return next(step for step, value in pairs if value > level)
    return None
