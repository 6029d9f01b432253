"""Lists on the command line: words or numbers with commas between them."""

from __future__ import annotations


def words(text: str | None) -> tuple[str, ...]:
    """Names with commas between them.

    >>> words("heat, cold")
    ('heat', 'cold')
    """
    return tuple(word.strip() for word in text.split(",")) if text else ()


def numbers(name: str, text: str) -> list[float]:
    """Numbers with commas between them.

    >>> numbers("--low", "0,0.5")
    [0.0, 0.5]
    """
    from mindgap.core.errors import InputError

    try:
        return [float(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{name} must be numbers with commas between them, got {text!r}. Write 0,0.5 for two."
        ) from error


def whole_numbers(name: str, text: str) -> list[int]:
    """Whole numbers with commas between them.

    >>> whole_numbers("--ks", "5,10")
    [5, 10]
    """
    from mindgap.core.errors import InputError

    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{name} must be whole numbers with commas between them, got {text!r}. Write 5,10,20."
        ) from error
