"""The samples to weigh: read from an .npz file or given as arrays, and shown on a page."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mindgap.core import Heatmap, InputError, as_tensor, expanded
from mindgap.core.chart.numbers import SPACE, number
from mindgap.ops.images import as_images, channels_first
from mindgap.ops.neighbors.source import read
from mindgap.ops.samples import MOST_VALUES, as_shown
from mindgap.ops.variance.estimator import VarianceWeights
from mindgap.ops.variance.heaviest import Cloud, Look, Weighed, all_suspects, look
from mindgap.ops.variance.local import is_classes
from mindgap.ops.variance.plane import plane_of

Array = np.ndarray[Any, np.dtype[Any]]
FEATURES = ("x", "X", "inputs", "data", "features")
LABELS = ("y", "targets", "labels", "target")
TEXTS = ("texts", "text")
LONGEST_TEXT = 400  # characters of a sample's text on a page
SMALLEST_SIDE = 4  # rows and columns that make a table of numbers an image


@dataclasses.dataclass(frozen=True)
class Given:
    """The samples to weigh.

    Args:
        features: One row per sample, in which neighbors are searched.
        labels: One class or value per sample.
        shown: What a page shows of a sample: an image, or numbers.
        source: Name of the array of features.
        texts: One text per sample, shown instead.
        names: Names of the features.
    """

    features: Array
    labels: Array
    shown: Array
    source: str
    texts: Array | None = None
    names: tuple[str, ...] = ()


def as_given(data: Any, labels: Any) -> Given:
    """Take arrays as the samples to weigh.

    Args:
        data: One row per sample.
        labels: One class or value per sample.
    """
    if labels is None:
        raise InputError(
            "labels must come with an array of features, got none. Pass one label per sample, or "
            "the path of an .npz file."
        )
    shown, target = np.asarray(data), np.asarray(labels)
    _check("data", shown, target, "labels")
    return Given(shown.reshape(len(shown), -1), target, shown, "x")


def read_arrays(path: str | os.PathLike[str]) -> Given:
    """Read an .npz file: x, y and, if there are, features, texts and feature_names.

    Args:
        path: The file.
    """
    arrays = _loaded(expanded(path))
    found = [[name for name in wanted if name in arrays] for wanted in (FEATURES, LABELS)]
    if not all(found):
        raise InputError(
            f"{path} must hold features ({', '.join(FEATURES)}) and labels ({', '.join(LABELS)}), "
            f"got {', '.join(arrays) or 'nothing'}. Rename the arrays."
        )
    shown, label = found[0][0], found[1][0]
    searched = "features" if "features" in found[0] else shown
    for name in (shown, searched, label):
        _check(name, arrays[name], arrays[label], label)
    texts = next((arrays[name] for name in TEXTS if name in arrays), None)
    features = arrays[searched].reshape(len(arrays[searched]), -1)
    names = _names(arrays.get("feature_names"), arrays[shown])
    return Given(
        features, arrays[label], arrays[shown], searched, _texts(texts, arrays[shown]), names
    )


def tensors(given: Given) -> tuple[Tensor, Tensor]:
    """Return features and labels as numbers; class names are numbered in alphabetical order."""
    table, target, _ = read(given.features, given.labels)
    assert target is not None
    return table, target


def _word(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _loaded(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except FileNotFoundError as error:
        raise InputError(
            f"The data must be an existing .npz file, got {str(path)!r}. Check the path."
        ) from error
    except Exception as error:
        # Headers of archives and arrays can lie in many ways: sizes that no memory holds, another
        # compression, a password. Each raises its own error, and all mean a file that is no data.
        raise InputError(
            f"The data must be an .npz file of plain arrays, got {str(path)!r} "
            f"({' '.join(str(error).split())[:120]}). Write it with numpy.savez."
        ) from error


def _check(name: str, array: Array, labels: Array, label: str) -> None:
    if array.ndim == 0 or array.size == 0:
        raise InputError(
            f"{name} must hold a row for each sample, got shape {array.shape}. Pass samples."
        )
    if labels.ndim and len(array) != len(labels):
        raise InputError(
            f"{name} and {label} must hold as many samples each, got {len(array)} and "
            f"{len(labels)}. Check that they belong together."
        )


def _texts(texts: Array | None, shown: Array) -> Array | None:
    if texts is None:
        return shown if shown.dtype.kind in "US" and shown.ndim == 1 else None
    if texts.shape != (len(shown),) or texts.dtype.kind not in "US":
        raise InputError(
            f"texts must hold one text for each of the {len(shown)} samples, got {texts.dtype} of "
            f"shape {texts.shape}. Save them as an array of strings."
        )
    return texts


def _names(names: Array | None, shown: Array) -> tuple[str, ...]:
    if names is None:
        return ()
    width = shown[:1].size
    if names.shape != (width,):
        raise InputError(
            f"feature_names must hold one name for each of the {width} features, got shape "
            f"{names.shape}. Drop it or name all."
        )
    return tuple(map(_word, names))


def look_at(given: Given, weigher: VarianceWeights, weighed: Weighed, heaviest: int = 10) -> Look:
    """Collect what a page shows: the weights, and the samples to look at.

    Args:
        given: The samples.
        weigher: How they were weighed.
        weighed: Their weights.
        heaviest: Number of heaviest samples.
    """
    cloud, known = _cloud(given), _known(given, weigher)
    found = look(cloud, known, weighed, heaviest)
    plane = _plane(cloud.features, cloud.labels, known, weighed, given, cloud.say)
    return dataclasses.replace(found, plane=plane)


def suspects_of(given: Given, weigher: VarianceWeights, weighed: Weighed) -> list[dict[str, Any]]:
    """Return one row per suspect, those first whose neighbors agree most."""
    found = all_suspects(_cloud(given), _known(given, weigher), weighed)
    return [
        {
            "index": row.index,
            "label": given.labels[row.index].tolist(),
            "labels around it": row.around.replace(SPACE, " "),
            "agree": row.agreement,
            "weight": row.weight,
        }
        for row in found
    ]


def _cloud(given: Given) -> Cloud:
    said = np.unique(given.labels) if given.labels.dtype.kind in "OUS" else None

    def say(value: Tensor) -> str:
        if said is not None and value.ndim == 0:
            return _word(said[int(value)])
        numbers = [number(item) if isinstance(item, float) else str(item) for item in _flat(value)]
        return ", ".join(numbers[:MOST_VALUES])

    return Cloud(*tensors(given), say, lambda places: _shown(given, places.numpy()))


def _known(given: Given, weigher: VarianceWeights) -> VarianceWeights:
    """Return the settings with the task that follows from the labels."""
    task = "classification" if is_classes(tensors(given)[1], weigher.task) else "regression"
    return VarianceWeights(**{**weigher.get_params(), "task": task})


def searched_in(given: Given) -> str:
    """Say in words which array the neighbors were searched in."""
    whole = given.source == "features" or given.shown.ndim <= 2
    return given.source if whole else f"{given.source}, each sample laid out as one row"


def _flat(value: Tensor) -> list[Any]:
    return list(value.flatten().tolist())


def _shown(given: Given, places: Array) -> list[dict[str, str]]:
    """Return the text, the image or the first numbers of every sample."""
    if given.texts is not None:
        return [{"text": _word(text)[:LONGEST_TEXT]} for text in given.texts[places]]
    values = given.shown[places]
    # Bytes stay bytes: their type says that an image's values go up to 255.
    table = as_tensor(
        values if values.dtype == np.uint8 else np.nan_to_num(values.astype(np.float64))
    )
    images = as_images(channels_first(table)) if _imaged(given.shown) else []
    if images:
        return [{"image": image} for image in images]
    whole = given.shown.dtype.kind in "iub"
    numbers = table.long() if whole else table
    return as_shown(numbers.reshape(len(numbers), -1), given.names)


def _imaged(shown: Array) -> bool:
    return shown.ndim == 4 or (shown.ndim == 3 and min(shown.shape[1:]) >= SMALLEST_SIDE)


def _plane(
    features: Tensor,
    labels: Tensor,
    weigher: VarianceWeights,
    weighed: Weighed,
    given: Given,
    say: Any,
) -> Heatmap | None:
    """Draw the map of two features, in their scaled units if they are scaled."""
    if features.shape[1] != 2 or weigher.metric != "euclidean":
        return None
    own = len(given.names) == 2 and given.source != "features"
    names = given.names if own else ("first feature", "second feature")
    scale = torch.ones(2)
    if weigher.standardize:
        scale = torch.where(features.std(0) > 0, features.std(0), 1.0)
        names = tuple(f"{name} / its deviation" for name in names)
    return plane_of(
        features / scale,
        labels,
        weighed.weights,
        k=weigher.k,
        task=weigher.task,
        say=say,
        names=names,
    )
