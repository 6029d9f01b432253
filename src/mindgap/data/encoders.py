"""Features of sentences and of pairs of sentences, from any encoder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from mindgap.core.arguments import choice, integer
from mindgap.core.errors import InputError
from mindgap.data.encode_cache import remembered
from mindgap.data.encode_folder import encoder_digest, encoder_folder
from mindgap.data.encode_model import Encoder, Item, Pooling
from mindgap.data.encode_words import bag_of_words

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
    wanted = [item[place : place + 1] for place in (0, 1) for item in items] if pairs and apart else items
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
    features = remembered(encoder_digest(folder), settings, list(numbers), make) if cache else make()
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
        raise InputError("texts must all be sentences or all be pairs of sentences, got a mixture. Part them.")
    return items
