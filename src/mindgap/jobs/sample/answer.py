"""The answer of an evaluation, and how a worker calls the user's function.

This module is light to import, so that workers start quickly.
"""

import dataclasses
import functools
import math
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mindgap.core import InputError
from mindgap.runs.process import TaskTimeoutError, WorkerProcess
from mindgap.runs.work import one_line
from mindgap.runs.worker import Home, ensure_importable

Point = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Answer:
    """The values of a point, or the reason why there are none."""

    values: tuple[float, ...] | None
    reason: str = ""


def judged(values: Sequence[float], width: int | None) -> Answer:
    """Accept values if they are finite and as many as those of the other points.

    >>> judged([1.0, 2.0], None).values, judged([1.0, math.inf], 2).reason, judged([1.0], 2).reason
    ((1.0, 2.0), 'the value is not finite: 1.0, inf', '1 number where the other points have 2')
    """
    if not values:
        return Answer(None, "no number at all")
    if width is not None and len(values) != width:
        word = "number" if len(values) == 1 else "numbers"
        return Answer(None, f"{len(values)} {word} where the other points have {width}")
    if not all(map(math.isfinite, values)):
        return Answer(None, f"the value is not finite: {', '.join(map(str, values[:8]))}")
    return Answer(tuple(values))


class Portable:
    """A user's function that another process can load, also from a script or a file on no path.

    Args:
        function: A function of one point.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __reduce__(self) -> Any:
        try:
            content = pickle.dumps(self.function)
        except Exception as error:
            raise InputError(
                "The function must be picklable to run in another process, got: "
                f"{' '.join(str(error).split())}. "
                "Define it at the top level of a module, or pass executor=SerialExecutor() "
                "without a timeout."
            ) from error
        return _loaded, (_home(self.function), content)


def call(portable: Portable, point: Point, width: int | None) -> Answer:
    """Call the function; whatever it raises becomes the reason of a failure."""
    try:
        value = portable.function(np.array(point))
        value = value.detach().cpu() if hasattr(value, "detach") else value
        found = np.asarray(value, dtype=np.float64).ravel().tolist()
    except (Exception, SystemExit) as error:
        return Answer(None, one_line(error))
    return judged(found, width)


def call_within(seconds: float, portable: Portable, point: Point, width: int | None) -> Answer:
    """Call the function in a process of its own, which is killed if it takes too long."""
    process = WorkerProcess(1)
    try:
        answer: Answer = process.call_within(seconds, call, portable, point, width)
    except TaskTimeoutError as error:
        return Answer(None, str(error))
    finally:
        process.close()
    return answer


def _home(function: Any) -> Home:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__module__", None) or type(function).__module__
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None) if name == "__main__" else None
    return Home(name, getattr(module, "__file__", None), getattr(spec, "name", None))


def _loaded(home: Home, content: bytes) -> Portable:
    ensure_importable(home)
    return Portable(pickle.loads(content))  # noqa: S301  (from the driver that sent the task)
