"""encode: features of sentences and of pairs of them, from a network or a bag of words.

Features of a network are kept on disk, so that a large encoder reads a text once.
"""

import hashlib
import importlib.util
import itertools
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mindgap.core import InputError, choice, integer, require, validated, write_whole
from mindgap.data.damage import reading
from mindgap.data.download import taking_turns, writing
from mindgap.data.store import cache_folder
from mindgap.data.text.encoder import Encoder, Item, Pooling
from mindgap.data.text.folder import encoder_digest, encoder_folder
from mindgap.data.text.vocabulary import words


def _remembered(
    encoder: str,
    settings: Mapping[str, Any],
    items: Sequence[Sequence[str]],
    make: Callable[[], Tensor],
) -> Tensor:
    """Read features from the cache, or compute and keep them.

    Processes that want the same features take turns: one computes them and the others read.

    Args:
        encoder: Hash of the encoder.
        settings: Settings that change the features.
        items: The texts.
        make: Computes the features.
    """
    path = cache_folder() / "features" / f"{_feature_key(encoder, settings, items)}.npy"
    with writing(path), taking_turns(path):
        if not path.exists():
            write_whole(path, lambda file: np.save(file, make().numpy(), allow_pickle=False))
    with reading(path, "a table of features"):
        return torch.from_numpy(np.load(path, allow_pickle=False))


def _feature_key(encoder: str, settings: Mapping[str, Any], items: Sequence[Sequence[str]]) -> str:
    """Compute a hash that depends on the encoder, the settings, the texts and their order.

    >>> _feature_key("e", {}, [("a b",)]) == _feature_key("e", {}, [("a", "b")])
    False
    """
    words = json.dumps([encoder, sorted(settings.items()), [list(item) for item in items]])
    return hashlib.sha256(words.encode()).hexdigest()[:32]


WIDTH = 256


def bag_of_words(items: Sequence[Sequence[str]], width: int = WIDTH) -> Tensor:
    """Hash words and pairs of neighboring words to signed counts, scaled to rows of norm one.

    Nothing is learned from the texts, so a row depends on its own item alone.

    Args:
        items: One or several sentences per item; several share one bag.
        width: Number of features.

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


@validated
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
    r"""Turn sentences, or pairs of sentences, into features; the encoder is not trained.

    Args:
        texts: Sentences, or pairs of them.
        encoder: A folder that ``save_pretrained`` wrote, ``"package:NAME"`` for an installed
            package that carries such a folder, a name on the Hugging Face Hub, or
            ``"bag-of-words"``, which hashes words and needs no package.
        pair: ``"apart"`` encodes the sentences :math:`u` and :math:`v` one by one and gives
            :math:`(u, v, |u - v|, u v)`, which suits encoders of single sentences; ``"together"``
            encodes both as one sequence with a separator, as BERT was trained to read pairs.
        pooling: ``"mean"`` over the tokens, or the ``"first"`` token, BERT's [CLS].
        length: Most tokens of a sequence, never more than the encoder takes; the rest is cut.
        batch_size: Number of sequences encoded at once.
        cache: Whether to keep the features in mindgap's cache folder, under a hash of weights,
            settings and texts.
        progress: Whether to show a progress bar.

    Returns:
        Features, one row per text.

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
    return _pair_features(*features.chunk(2)) if pairs and apart else features


def check_encoder(encoder: str | os.PathLike[str]) -> None:
    """Raise one sentence if an encoder, or the extra that reads it, is missing.

    Args:
        encoder: What :func:`encode` would be given.

    >>> check_encoder("bag-of-words")
    """
    if encoder == BAG:
        return
    if importlib.util.find_spec("transformers") is None:  # slow to import, so only looked for
        require("transformers", "hf")
    encoder_folder(encoder)


def _pair_features(first: Tensor, second: Tensor) -> Tensor:
    """Join two rows, their distance and their product, entry by entry.

    >>> _pair_features(torch.tensor([[1.0]]), torch.tensor([[3.0]])).tolist()
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
    """Encode every distinct item once, then return a row for each item."""
    folder = encoder_folder(encoder)
    numbers = {item: number for number, item in enumerate(dict.fromkeys(items))}

    def make() -> Tensor:
        return Encoder(folder)(list(numbers), pooling, length, batch_size, progress)

    settings = {"pooling": pooling, "length": length}
    features = (
        _remembered(encoder_digest(folder), settings, list(numbers), make) if cache else make()
    )
    return features[torch.tensor([numbers[item] for item in items])]


def _items(texts: Sequence[str] | Sequence[Sequence[str]]) -> list[Item]:
    """Return tuples of one or of two sentences, all of the same kind."""
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
            "texts must all be sentences or all be pairs of sentences, got a mixture. Split them."
        )
    return items
