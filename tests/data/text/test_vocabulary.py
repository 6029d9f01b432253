"""Vocabulary: words to numbers, and samples that are too long."""

from mindgap.data import Vocabulary
from mindgap.data.text.vocabulary import PADDING, SEPARATOR, UNKNOWN


def test_vocabulary():
    vocabulary = Vocabulary.of([("the cat", "the dog the")], size=100)
    assert vocabulary.words[3] == "the"
    assert len(vocabulary) == 6
    row = vocabulary.encode([("The bird", "dog")], length=6)[0].tolist()
    assert row == [3, UNKNOWN, SEPARATOR, vocabulary.numbers["dog"], PADDING, PADDING]


def test_long_samples_lose_the_ends_of_their_longest_sentence():
    vocabulary = Vocabulary.of([("a b c d e f", "g")], size=100)
    tokens = vocabulary.encode([("a b c d e f", "g")], length=5)[0].tolist()
    assert [vocabulary.words[token] for token in tokens] == ["a", "b", "c", "<separator>", "g"]
