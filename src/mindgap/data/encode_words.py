"""A bag of words: features of texts without any network, by hashing words and pairs of words."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from mindgap.data.vocabulary import words

WIDTH = 256


def bag_of_words(items: Sequence[Sequence[str]], width: int = WIDTH) -> Tensor:
    """Rows of length one: signed counts of words and of neighbouring words, each hashed to one of ``width`` places.

    Nothing is learned from the texts, so a row depends on its own item alone. Several sentences fill one bag.

    >>> rows = bag_of_words([("a cat",), ("A cat",), ("two dogs",)])
    >>> torch.equal(rows[0], rows[1]), torch.equal(rows[0], rows[2])
    (True, False)
    """
    found = [[_hash(term) for sentence in item for term in _terms(sentence)] for item in items]
    hashes = torch.tensor([*itertools.chain.from_iterable(found)], dtype=torch.int64)
    rows = torch.repeat_interleave(torch.arange(len(items)), torch.tensor([len(terms) for terms in found]))
    signs = 1.0 - 2.0 * ((hashes >> 31) & 1)
    table = torch.zeros(len(items), width)
    table.index_put_((rows, (hashes & 0x7FFFFFFF) % width), signs, accumulate=True)
    return torch.nn.functional.normalize(table)


def _terms(sentence: str) -> list[str]:
    single = words(sentence)
    return [*single, *(" ".join(pair) for pair in itertools.pairwise(single))]


def _hash(term: str) -> int:
    return zlib.crc32(term.encode())
