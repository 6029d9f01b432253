"""Arithmetic modulo p, the data of the grokking papers."""

import torch
from torch import Tensor

from mindgap.core import InputError, choice, generator, integer, number, validated
from mindgap.data.dataset import DataSet, dataset

OPERATIONS = ("+", "-", "*", "/")
SOURCE = "After Power, Burda, Edwards, Babuschkin and Misra (2022), Grokking, arXiv:2201.02177."


@dataset("modular")
@validated
def modular_arithmetic(
    modulus: int = 97, operation: str = "+", train_fraction: float = 0.5, seed: int = 0
) -> DataSet:
    """All equations a ∘ b = c modulo p: the input is the tokens (a, ∘, b, =), the class is c.

    Numbers are the tokens 0 … p - 1, the operation is p and the equals sign p + 1;
    ``facts["vocabulary"]`` is p + 2.

    Args:
        modulus: The modulus p.
        operation: ``"+"``, ``"-"``, ``"*"`` or ``"/"``. Division a / b is the c with c · b = a, for
            b ≠ 0, and needs a prime modulus.
        train_fraction: Share of the equations for training; the others are for testing.
        seed: Seed of the random split.

    >>> modular_arithmetic(5, "/")
    DataSet('modular': classification, 10 train, 10 test, inputs (4,) int64, 5 classes)
    """
    _check(modulus, operation, train_fraction)
    first, second, answer = _equations(modulus, operation)
    sign, equals = torch.full_like(first, modulus), torch.full_like(first, modulus + 1)
    order = torch.randperm(len(first), generator=generator(seed))
    tokens, answers = torch.stack([first, sign, second, equals], dim=1)[order], answer[order]
    size = round(train_fraction * len(order))
    return DataSet(
        "modular",
        *(tokens[:size], answers[:size], tokens[size:], answers[size:]),
        classes=tuple(str(number) for number in range(modulus)),
        feature_names=("a", operation, "b", "="),
        source=SOURCE,
        facts={"vocabulary": modulus + 2, "modulus": modulus},
    )


def _equations(modulus: int, operation: str) -> tuple[Tensor, Tensor, Tensor]:
    numbers = torch.arange(modulus)
    first, second = torch.cartesian_prod(
        numbers, numbers[1:] if operation == "/" else numbers
    ).unbind(dim=1)
    if operation == "/":
        return first * second % modulus, second, first
    results = {"+": first + second, "-": first - second, "*": first * second}
    return first, second, results[operation] % modulus


def _check(modulus: int, operation: str, train_fraction: float) -> None:
    integer("modulus", modulus, 2, 10_000)
    choice("operation", operation, OPERATIONS)
    if operation == "/" and any(
        modulus % divisor == 0 for divisor in range(2, int(modulus**0.5) + 1)
    ):
        raise InputError(f"modulus must be prime for division, got {modulus}. Pass for example 97.")
    number("train_fraction", train_fraction, 0, 1)
    count = modulus * (modulus - 1 if operation == "/" else modulus)
    if not 0 < round(train_fraction * count) < count:
        raise InputError(
            f"train_fraction must leave at least one equation on each side, got {train_fraction}. "
            "Pass 0.5."
        )
