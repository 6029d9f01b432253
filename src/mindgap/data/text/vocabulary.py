"""Vocabulary: numbers for words, for small networks over text."""

import collections
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mindgap.core import InputError, integer, validated

PADDING, UNKNOWN, SEPARATOR = 0, 1, 2
SPECIAL = ("<padding>", "<unknown>", "<separator>")
WORD = re.compile(r"\w+|[^\w\s]")


def words(sentence: str) -> list[str]:
    """Split a sentence into lower-case words and single punctuation marks.

    >>> words("It's Iraq, yet.")
    ['it', "'", 's', 'iraq', ',', 'yet', '.']
    """
    return WORD.findall(sentence.lower())


@validated
@dataclass(frozen=True)
class Vocabulary:
    """Numbered words; 0 is padding, 1 an unknown word, 2 separates the sentences of a sample.

    Args:
        words: All words in the order of their numbers, the special ones first.

    >>> vocabulary = Vocabulary.of([("a cat", "a dog")], size=5)
    >>> vocabulary.words
    ('<padding>', '<unknown>', '<separator>', 'a', 'cat')
    >>> vocabulary.encode([("a cat", "a dog")], length=8).tolist()
    [[3, 4, 2, 3, 1, 0, 0, 0]]
    """

    words: tuple[str, ...]
    numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "numbers", {word: number for number, word in enumerate(self.words)}
        )

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def of(cls, texts: Iterable[Sequence[str]], size: int = 5000) -> "Vocabulary":
        """Number the most frequent words of texts, ties in the order of first appearance.

        Args:
            texts: The sentences of each sample.
            size: Number of entries, the special ones included.
        """
        integer("size", size, len(SPECIAL) + 1)
        counts = collections.Counter(
            word for text in texts for sentence in text for word in words(sentence)
        )
        return cls((*SPECIAL, *(word for word, _ in counts.most_common(size - len(SPECIAL)))))

    def encode(self, texts: Sequence[Sequence[str]], length: int = 128) -> Tensor:
        """Turn texts into token numbers of shape (n, length).

        Args:
            texts: The sentences of each sample.
            length: Tokens per sample; longer samples lose the ends of their longest sentences.
        """
        integer("length", length, 1)
        return torch.tensor([self._row(text, length) for text in texts], dtype=torch.int64).reshape(
            -1, length
        )

    def _row(self, text: Sequence[str], length: int) -> list[int]:
        sentences = [
            [self.numbers.get(word, UNKNOWN) for word in words(sentence)] for sentence in text
        ]
        if length < 2 * len(sentences) - 1:
            raise InputError(
                f"length must be at least {2 * len(sentences) - 1}, got {length}. Raise length."
            )
        _shorten(sentences, length - (len(sentences) - 1))
        row = sentences[0]
        for sentence in sentences[1:]:
            row = [*row, SEPARATOR, *sentence]
        return row + [PADDING] * (length - len(row))


def _shorten(sentences: list[list[int]], length: int) -> None:
    while sum(map(len, sentences)) > length:
        max(sentences, key=len).pop()
