"""FunctionTrainer: trains by a function of the user's own."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from mindgap.core import Subject, Task, as_split
from mindgap.training.race.arm import Arm
from mindgap.training.race.digests import digest_of
from mindgap.training.race.trainer import Trainer


class FunctionTrainer(Trainer):
    """Trains by a function of the user's own.

    Args:
        train: Takes a seed and a list of remedies, and returns a trained model. Settings of the
            retuned baseline come as further keywords.
        validation: Samples that it does not train on, to rank arms on.
        test: Test samples.
        loss: The loss.
        task: The task; follows from the loss and the targets if None.
        name: Tells this function and its data from others in a store.
    """

    def __init__(
        self,
        train: Callable[..., Any],
        validation: Any,
        test: Any,
        loss: Any,
        task: Task | None = None,
        name: str = "",
    ) -> None:
        held = as_split(validation, None, "validation data")
        found = task or Subject(nn.Identity(), loss, held).task
        super().__init__([held], as_split(test, None, "test data"), loss, found)
        self.train, self.name = train, name

    def models(self, arm: Arm, seeds: Sequence[int], *, all_data: bool) -> list[nn.Module]:  # noqa: ARG002
        """Call the function once per seed; it decides on which data it trains."""
        return [self._model(arm, seed) for seed in seeds]

    def _model(self, arm: Arm, seed: int) -> nn.Module:
        from mindgap.core.estimator import as_module

        return as_module(self.train(seed, list(arm.remedies), **arm.settings)).eval()

    def together(self, arm: Arm) -> bool:  # noqa: ARG002
        """One training is one call."""
        return False

    def identity(self) -> str:
        """Hash the name, the function's code and the validation data."""
        function: Any = self.train
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(function, "__code__", None)
        parts = [
            self.name,
            getattr(function, "__qualname__", type(function).__name__),
            "" if code is None else code.co_code.hex() + repr(_constants(code.co_consts)),
            *map(digest_of, self.validation),
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _constants(values: tuple[Any, ...]) -> list[Any]:
    return [value for value in values if isinstance(value, int | float | str | bool | None)]
