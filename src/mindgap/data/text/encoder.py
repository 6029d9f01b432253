"""A Hugging Face encoder: batches of similar length in, one row of features per text out."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mindgap.core import InputError, Progress, require, seeded

Pooling = Literal["mean", "first"]
Item = tuple[str, ...]


class Encoder:
    """The model and the tokenizer of a folder; uses no internet, foreign code or pickle.

    Args:
        folder: A folder that ``save_pretrained`` wrote.
    """

    def __init__(self, folder: Path) -> None:
        transformers = require("transformers", "hf")
        places = {"local_files_only": True, "trust_remote_code": False}
        safe = any(folder.glob("*.safetensors"))
        try:
            # Weights that the file lacks would be drawn from the global generator.
            with seeded(0), _quiet(transformers):
                model, report = transformers.AutoModel.from_pretrained(
                    folder,
                    use_safetensors=safe,
                    weights_only=True,
                    output_loading_info=True,
                    **places,
                )
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **places)
        except Exception as error:  # the readers of a dozen formats have as many errors
            raise InputError(
                f"encoder must be a folder that transformers can read, got {str(folder)!r} "
                f"({_first_line(error)}). Save model and tokenizer there with save_pretrained()."
            ) from error
        _check_complete(folder, report)
        self.model = (
            (model.get_encoder() if model.config.is_encoder_decoder else model)
            .eval()
            .requires_grad_(False)
        )

    def __call__(
        self,
        items: Sequence[Item],
        pooling: Pooling,
        length: int,
        batch_size: int,
        progress: bool = False,
    ) -> Tensor:
        """Encode items of one text, or of two as one sequence, in the order in which they come."""
        tokens = self._tokens(items, length)
        # Batches of similar length waste little padding; the longest first shows a lack of memory.
        order = sorted(range(len(items)), key=lambda place: -len(tokens[place]["input_ids"]))
        parts = []
        with (
            torch.inference_mode(),
            Progress(len(items), title="encode", unit="text", shown=progress) as bar,
        ):
            for start in range(0, len(order), batch_size):
                batch = [tokens[place] for place in order[start : start + batch_size]]
                parts.append(self._features(batch, pooling))
                bar.advance(by=len(batch))
        features = torch.cat(parts).clone()
        return features[torch.tensor(order).argsort()]

    def _tokens(self, items: Sequence[Item], length: int) -> list[dict[str, list[int]]]:
        columns = [list(column) for column in zip(*items, strict=True)]
        positions = getattr(self.model.config, "max_position_embeddings", None) or length
        limit = min(length, positions, self.tokenizer.model_max_length)
        found = self.tokenizer(
            *columns, truncation=True, max_length=limit, return_attention_mask=True
        )
        return [{name: found[name][place] for name in found} for place in range(len(items))]

    def _features(self, batch: list[dict[str, list[int]]], pooling: Pooling) -> Tensor:
        padding = {"input_ids": self.tokenizer.pad_token_id or 0}
        padded = {
            name: pad_sequence(
                [torch.tensor(row[name]) for row in batch], True, padding.get(name, 0)
            )
            for name in batch[0]
        }
        hidden: Tensor = self.model(**padded).last_hidden_state.float()
        if pooling == "first":
            return hidden[:, 0]
        mask = padded["attention_mask"][:, :, None].to(hidden)
        return (hidden * mask).sum(1) / mask.sum(1).clamp_min(1)


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Show no bar and no report while weights are read; what matters in it is checked."""
    logging = transformers.utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _check_complete(folder: Path, report: dict[str, Any]) -> None:
    """Refuse a file that lacks the weights of a layer, unless it is the unused pooler."""
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    if missing:
        raise InputError(
            f"encoder must have weights for every layer, got {str(folder)!r} without {missing[0]!r}"
            f"{f' and {len(missing) - 1} more' if missing[1:] else ''}. Choose an encoder whose "
            "file is whole."
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__).rstrip(".")
