"""Features of sentences and of pairs of sentences, from any encoder.

Features on disk, so that a big encoder reads a text once.

A bag of words: features of texts without any network, by hashing words and pairs of words.
"""

import hashlib
import itertools
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mindgap.core import InputError, choice, integer, write_whole
from mindgap.data.damage import reading
from mindgap.data.download import taking_turns, writing
from mindgap.data.store import cache_folder
from mindgap.data.text.encoder import Encoder, Item, Pooling
from mindgap.data.text.folder import encoder_digest, encoder_folder
from mindgap.data.text.vocabulary import words


def remembered(
    encoder: str,
    settings: Mapping[str, Any],
    items: Sequence[Sequence[str]],
    make: Callable[[], Tensor],
) -> Tensor:
    """What ``make`` gives, kept under a key of the encoder's hash, the settings and the texts.

    Processes that want the same features take turns, so that one of them makes and the others read.
    """
    path = cache_folder() / "features" / f"{feature_key(encoder, settings, items)}.npy"
    with writing(path), taking_turns(path):
        if not path.exists():
            write_whole(path, lambda file: np.save(file, make().numpy(), allow_pickle=False))
    with reading(path, "a table of features"):
        return torch.from_numpy(np.load(path, allow_pickle=False))


def feature_key(encoder: str, settings: Mapping[str, Any], items: Sequence[Sequence[str]]) -> str:
    """A hash that differs if the encoder, a setting, a text or the order of the texts does.

    >>> feature_key("e", {}, [("a b",)]) == feature_key("e", {}, [("a", "b")])
    False
    """
    words = json.dumps([encoder, sorted(settings.items()), [list(item) for item in items]])
    return hashlib.sha256(words.encode()).hexdigest()[:32]


WIDTH = 256


def bag_of_words(items: Sequence[Sequence[str]], width: int = WIDTH) -> Tensor:
    """Rows of length one: signed counts of words and of neighboring words, each hashed to one of ``width`` places.

    Nothing is learned from the texts, so a row depends on its own item alone. Several sentences
    fill one bag.

    >>> rows = bag_of_words([("a cat",), ("A cat",), ("two dogs",)])
    >>> torch.equal(rows[0], rows[1]), torch.equal(rows[0], rows[2])
    (True, False)
    """
    found = [[_hash(term) for sentence in item for term in _terms(sentence)] for item in items]
    hashes = torch.tensor([*itertools.chain.from_iterable(found)], dtype=torch.int64)
    rows = torch.repeat_interleave(
        torch.arange(len(items)), torch.tensor([len(terms) for terms in found])
    )
    signs = 1.0 - 2.0 * ((hashes >> 31) & 1)
    table = torch.zeros(len(items), width)
    table.index_put_((rows, (hashes & 0x7FFFFFFF) % width), signs, accumulate=True)
    return torch.nn.functional.normalize(table)


def _terms(sentence: str) -> list[str]:
    single = words(sentence)
    return [*single, *(" ".join(pair) for pair in itertools.pairwise(single))]


def _hash(term: str) -> int:
    return zlib.crc32(term.encode())


Pair = Literal["apart", "together"]
BAG = "bag-of-words"


def encode(
    texts: Sequence[str] | Sequence[Sequence[str]],
    encoder: str | os.PathLike[str],
    *,
    pair: Pair = "apart",
    pooling: Pooling = "mean",
    length: int = 128,
    batch_size: int = 32,
    cache: bool = True,
    progress: bool = False,
) -> Tensor:
    r"""Features (texts, width) of sentences or of pairs of sentences; the encoder is not trained.

    Args:
        texts: sentences, or pairs of them.
        encoder: a folder that ``save_pretrained`` wrote, ``"package:NAME"`` for an installed package that carries such
            a folder, a name on the Hugging Face Hub, or ``"bag-of-words"``, which hashes words and needs no package.
        pair: ``"apart"`` encodes the sentences :math:`u` and :math:`v` one by one and gives
            :math:`(u, v, |u - v|, u v)`, as encoders of single sentences want it; ``"together"`` encodes both as one
            sequence with a separator, as BERT was trained to read pairs.
        pooling: ``"mean"`` over the tokens, or the ``"first"`` token, BERT's [CLS].
        length: tokens of a sequence at most, never more than the encoder takes; what is beyond is cut.
        batch_size: sequences at once, of like length.
        cache: keep the features in mindgap's cache folder, under a hash of weights, settings and texts.
        progress: show a progress bar.

    >>> encode(["a cat", "a dog"], "bag-of-words").shape
    torch.Size([2, 256])
    >>> encode([("a cat", "a dog")], "bag-of-words").shape
    torch.Size([1, 1024])
    """
    choice("pair", pair, ("apart", "together"))
    choice("pooling", pooling, ("mean", "first"))
    integer("length", length, 3)
    integer("batch_size", batch_size)
    items = _items(texts)
    pairs, apart = len(items[0]) == 2, pair == "apart"
    wanted = (
        [item[place : place + 1] for place in (0, 1) for item in items]
        if pairs and apart
        else items
    )
    if encoder == BAG:
        features = bag_of_words(wanted)
    else:
        features = _encoded(encoder, wanted, pooling, length, batch_size, cache, progress)
    return pair_features(*features.chunk(2)) if pairs and apart else features


def pair_features(first: Tensor, second: Tensor) -> Tensor:
    """Both rows, their distance and their product, entry by entry.

    >>> pair_features(torch.tensor([[1.0]]), torch.tensor([[3.0]])).tolist()
    [[1.0, 3.0, 2.0, 3.0]]
    """
    return torch.cat([first, second, (first - second).abs(), first * second], dim=1)


def _encoded(
    encoder: str | os.PathLike[str],
    items: Sequence[Item],
    pooling: Pooling,
    length: int,
    batch_size: int,
    cache: bool,
    progress: bool,
) -> Tensor:
    """Every different item once, then a row for each."""
    folder = encoder_folder(encoder)
    numbers = {item: number for number, item in enumerate(dict.fromkeys(items))}

    def make() -> Tensor:
        return Encoder(folder)(list(numbers), pooling, length, batch_size, progress)

    settings = {"pooling": pooling, "length": length}
    features = (
        remembered(encoder_digest(folder), settings, list(numbers), make) if cache else make()
    )
    return features[torch.tensor([numbers[item] for item in items])]


def _items(texts: Sequence[str] | Sequence[Sequence[str]]) -> list[Item]:
    """Tuples of one or of two sentences, all alike."""
    if isinstance(texts, str) or not len(texts):
        raise InputError(
            "texts must be a list of sentences or of pairs of them, got "
            f"{'one string' if texts else 'none'}. Write [sentence] for a single one."
        )
    items = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
    if any(len(item) != len(items[0]) or not 1 <= len(item) <= 2 for item in items) or not all(
        isinstance(sentence, str) for item in items for sentence in item
    ):
        raise InputError(
            "texts must all be sentences or all be pairs of sentences, got a mixture. Part them."
        )
    return items
