"""Command: an external program as a function of a point."""

import dataclasses
import json
import re
import shlex
import shutil
from collections.abc import Sequence

from mindgap.core import InputError, unknown_name

_PLACE = re.compile(r"\{(\w+)\}")


@dataclasses.dataclass(frozen=True)
class Command:
    """A program that prints the value of a point on its last line.

    The last line holds one number or several, as a JSON list or separated by commas or spaces.

    Args:
        template: The program and its arguments. ``{0}``, ``{1}`` … become the coordinates, with all
            their digits; ``{x}`` becomes all of them, separated by spaces; ``{file}`` the path of a
            JSON file with the list of them; ``{number}`` the number of the point. Other braces stay
            as they are.
        names: Names of the coordinates, to write ``{temperature}`` in place of ``{0}``.
        shell: Whether to run the command in a shell.

    >>> Command("./sim --x={0} --y {1}").words((0.5, -2.0), 7, "7.json")
    ['./sim', '--x=0.5', '--y', '-2.0']
    >>> Command("./sim {x} --out run{number}").words((0.5, -2.0), 7, "7.json")
    ['./sim', '0.5', '-2.0', '--out', 'run7']
    """

    template: str
    names: tuple[str, ...] = ()
    shell: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        if not self._split():
            raise InputError(
                "The command must be a program with its arguments, got nothing. Write './sim {0} "
                "{1}'."
            )

    def check(self, dimension: int, *, here: bool = True) -> None:
        """Refuse a template that does not fit the dimension, or a program that is missing.

        Args:
            dimension: Number of coordinates of a point.
            here: Whether the program will run on this machine.
        """
        known = self._values((0.0,) * dimension, 0, "")
        found = set(_PLACE.findall(self.template))
        for name in sorted(found):
            if name.isdigit() and name not in known:
                raise InputError(
                    f"The command must name coordinates from 0 to {dimension - 1}, got "
                    f"{{{name}}}. Correct it, or the "
                    "domain."
                )
        if not found & (known.keys() - {"number"}):
            if found:
                raise unknown_name("A placeholder in the command", min(found), known)
            raise InputError(
                f"The command must say where the point goes, got {self.template!r}. Write {{0}} "
                f"{{1}}, {{x}} or "
                "{file} in it."
            )
        if (
            here
            and not self.shell
            and shutil.which(self._split()[0]) is None
            and not _PLACE.search(self._split()[0])
        ):
            raise InputError(
                "The command must begin with a program that can be run, got "
                f"{self._split()[0]!r}. Check the path and "
                "that the file is executable."
            )

    def words(self, point: Sequence[float], number: int, file: str) -> list[str]:
        """Fill in a point: a list of words, or one text for the shell."""
        values = self._values(point, number, shlex.quote(file) if self.shell else file)
        if self.shell:
            return [_filled(self.template, values)]
        parts = (
            [_filled(word, values)] if word != "{x}" else values["x"].split()
            for word in self._split()
        )
        return [word for part in parts for word in part]

    def _values(self, point: Sequence[float], number: int, file: str) -> dict[str, str]:
        texts = [repr(float(value)) for value in point]
        named = dict(zip(self.names, texts, strict=False))
        return {**named, **{str(k): text for k, text in enumerate(texts)}} | {
            "x": " ".join(texts),
            "file": file,
            "number": str(number),
        }

    def _split(self) -> list[str]:
        try:
            return (
                [self.template]
                if self.shell and self.template.strip()
                else shlex.split(self.template)
            )
        except ValueError as error:
            raise InputError(
                f"The command must have its quotes in pairs, got {self.template!r}. Close the "
                "open one."
            ) from error


def numbers(text: str) -> list[float] | None:
    """Read the numbers of the last line that is not empty; None if it holds anything else.

    >>> (
    ...     numbers("step 1\\n0.5, 1e-3\\n\\n"),
    ...     numbers("[1, 2]"),
    ...     numbers("3 4"),
    ...     numbers("done"),
    ...     numbers(""),
    ... )
    ([0.5, 0.001], [1.0, 2.0], [3.0, 4.0], None, None)
    """
    line = last_line(text)
    try:
        found = (
            json.loads(line) if line.startswith("[") else re.split(r"[\s,;]+", line.strip(" ,;"))
        )
        return [_number(part) for part in found] if line else None
    except (ValueError, TypeError):
        return None


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    return text.rstrip().rpartition("\n")[2].strip()


def _number(part: object) -> float:
    if isinstance(part, bool) or not isinstance(part, (str, int, float)):
        raise TypeError
    return float(part)


def _filled(text: str, values: dict[str, str]) -> str:
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)
