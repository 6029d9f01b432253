"""What was asked, what was answered: the state of a sampling session, rebuilt from its events."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mindgap.core import InputError


@dataclasses.dataclass(frozen=True)
class Asked:
    """A point to evaluate: its number, by which its value is told, and why it was chosen."""

    number: int
    point: tuple[float, ...]
    why: str = "start"


class Trail:
    """Points by their number, with their values or the reasons why there are none."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.points: list[Asked] = []
        self.answers: dict[int, list[float]] = {}
        self.failures: dict[int, str] = {}
        self.begun = 0  # points of the start that were asked
        self._known: tuple[Tensor, Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.points)

    @property
    def width(self) -> int | None:
        """How many numbers a value has; None as long as there is none."""
        return len(next(iter(self.answers.values()))) if self.answers else None

    @property
    def pending(self) -> list[Asked]:
        """Points without an answer."""
        return [
            one
            for one in self.points
            if one.number not in self.answers and one.number not in self.failures
        ]

    def asked(self, points: Tensor, why: Sequence[str]) -> list[Asked]:
        """The next numbers for some points."""
        first = len(self.points)
        rows = points.double().tolist()
        return [
            Asked(first + k, tuple(row), word)
            for k, (row, word) in enumerate(zip(rows, why, strict=True))
        ]

    def add(self, asked: Sequence[Asked]) -> None:
        """Take points in."""
        self.points.extend(asked)
        self.begun += sum(one.why == "start" for one in asked)

    def answer(self, number: int, value: list[float]) -> dict[str, Any]:
        """The event of an answer; one that is not finite is a failure."""
        if not value:
            raise InputError(
                f"The value of point {number} must be one number or more, got none. Tell its value."
            )
        if any(math.isnan(part) for part in value):
            return self.failure(number, "the value is not finite")
        return {"told": number, "value": value}

    def failure(self, number: int, reason: str) -> dict[str, Any]:
        """The event of a failure."""
        return {"failed": number, "reason": str(reason)}

    def check(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Refuse answers to what was not asked or has one already, and values of another length."""
        seen: set[int] = set()
        for event in events:
            number = event["told"] if "told" in event else event["failed"]
            if (
                not isinstance(number, int)
                or isinstance(number, bool)
                or not 0 <= number < len(self.points)
            ):
                raise InputError(
                    f"A value must be told for a point that was asked, got number {number!r} of "
                    f"{len(self.points)}. "
                    "Ask first."
                )
            if number in self.answers or number in self.failures or number in seen:
                raise InputError(
                    f"A point must be told once, got point {number} again. Leave the second value "
                    "out."
                )
            seen.add(number)
        self.check_width(events)

    def check_width(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Refuse values of another length than the first."""
        width = self.width
        for event in events:
            if "told" in event:
                width = width or len(event["value"])
                if len(event["value"]) != width:
                    raise InputError(
                        f"Every value must have {width} numbers as the first, got "
                        f"{len(event['value'])} for point "
                        f"{event['told']}. Tell values of one length."
                    )

    def replay(self, event: Mapping[str, Any]) -> None:
        """Let an event happen."""
        if "asked" in event:
            self.add([Asked(event["asked"], tuple(event["x"]), event["why"])])
        elif "told" in event:
            self.answers[event["told"]] = event["value"]
            self._known = None
        elif "failed" in event:
            self.failures[event["failed"]] = event["reason"]

    def known(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points and values that are known, and which of them were chosen by interest."""
        if self._known is None:
            order = sorted(self.answers)
            points = torch.tensor([self.points[k].point for k in order], dtype=torch.float64)
            values = torch.tensor([self.answers[k] for k in order], dtype=torch.float64)
            new = torch.tensor([self.points[k].why == "interest" for k in order], dtype=torch.bool)
            self._known = (
                points.view(len(order), self.dimension),
                values.view(len(order), -1) if order else values,
                new,
            )
        return self._known
