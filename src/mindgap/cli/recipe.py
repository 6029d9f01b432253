"""The recipe of a named data set and a named network, which must fit each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from mindgap import nets
from mindgap.core import InputError, Recipe, integer
from mindgap.data import DataSet, load, with_label_noise

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["vectors", "images", "tokens"]


def default_recipe(
    name: str,
    net: str | None = None,
    width: int | None = None,
    *,
    label_noise: float = 0.0,
    seed: int = 0,
) -> Recipe:
    """Make the recipe of a named data set and network.

    Args:
        name: Name of the data set.
        net: Name of the network; None chooses one that fits the data.
        width: Width of the network; its default if None.
        label_noise: Share of the training labels to replace by wrong ones.
        seed: Seed of the label noise.

    >>> default_recipe("modular").name
    'transformer on modular'
    >>> default_recipe("two-moons", "lenet5")
    Traceback (most recent call last):
    mindgap.core.errors.InputError: lenet5 must get images, got the vectors of 'two-moons'. Choose \
another network, such as mlp.
    """
    found = load(name)
    if found.texts is not None:
        raise InputError(
            f"The data set must hold vectors, images or tokens, got the texts of {name!r}. Encode "
            "them and pass a recipe of your own."
        )
    if label_noise:
        found, _ = with_label_noise(found, label_noise, seed=seed)
    net = net or _usual_net(found)
    options = _options(net, found, width)
    nets.build(net, **options)  # a wrong name or size is reported before training
    return Recipe(
        model=lambda: nets.build(net, **options),
        train=found.train,
        test=found.test,
        loss="mse" if found.task == "regression" else "cross_entropy",
        classes=found.classes or (),
        name=f"{net} on {name}",
        epochs=100,
    )


def _kind(found: DataSet) -> Kind:
    if found.inputs.ndim == 4:
        return "images"
    return "vectors" if found.inputs.is_floating_point() else "tokens"


def _usual_net(found: DataSet) -> str:
    if tuple(found.inputs.shape[1:]) == (1, 28, 28):
        return "lenet5"
    return "transformer" if _kind(found) == "tokens" else "mlp"


def _options(net: str, found: DataSet, width: int | None) -> dict[str, Any]:
    """Derive the arguments of a network from the data; refuse data that it cannot take."""
    fitting = _FITTING.get(net, {})
    if net in nets.available() and _kind(found) not in fitting:
        raise InputError(
            f"{net} must get {' or '.join(fitting)}, got the {_kind(found)} of {found.name!r}. "
            f"Choose another network, such as {_usual_net(found)}."
        )
    wide = {} if width is None else {"width": integer("width", width)}
    if wide and net in _FIXED:
        raise InputError(f"{net} has a fixed width, got {width}. Leave the width out.")
    make = fitting.get(_kind(found))
    return {} if make is None else make(found, **wide)


def _outputs(found: DataSet) -> int:
    if found.classes:
        return len(found.classes)
    if found.task == "classification":
        return int(found.targets.max()) + 1
    return int(found.targets.shape[-1])


def _mlp(found: DataSet, width: int = 64) -> dict[str, Any]:
    return {"widths": (found.inputs[0].numel(), width, _outputs(found))}


def _lenet(found: DataSet) -> dict[str, Any]:
    channels, height, width = found.inputs.shape[1:]
    if height != width:
        raise InputError(
            f"lenet5 must get square images, got {height}×{width} of {found.name!r}. Choose "
            "another network, such as mlp."
        )
    return {"channels": channels, "image_size": height, "classes": _outputs(found)}


def _residual(found: DataSet, **width: int) -> dict[str, Any]:
    return {"channels": found.inputs.shape[1], "classes": _outputs(found), **width}


def _rows(found: DataSet, width: int = 64) -> dict[str, Any]:
    channels, _, features = found.inputs.shape[1:]
    if channels != 1:
        raise InputError(
            f"A recurrent network must get images of one channel, got {channels} of {found.name!r}. Choose "
            "another network, such as mlp."
        )
    return {"features": features, "hidden": width, "outputs": _outputs(found)}


def _elman_tokens(found: DataSet, width: int = 64) -> dict[str, Any]:
    sizes = {"features": width, "hidden": width, "outputs": _outputs(found)}
    return {**sizes, "vocabulary": int(found.facts["vocabulary"])}


def _transformer(found: DataSet, **width: int) -> dict[str, Any]:
    sizes = {"vocabulary": int(found.facts["vocabulary"]), "length": found.inputs.shape[1]}
    return {**sizes, "outputs": _outputs(found), **width}


_FIXED = ("lenet5", "wide-resnet")
_FITTING: dict[str, dict[Kind, Callable[..., dict[str, Any]]]] = {
    "mlp": {"vectors": _mlp, "images": _mlp},
    "lenet5": {"images": _lenet},
    "resnet": {"images": _residual},
    "resnet20": {"images": _residual},
    "wide-resnet": {"images": _residual},
    "elman": {"images": _rows, "tokens": _elman_tokens},
    "gated": {"images": _rows},
    "transformer": {"tokens": _transformer},
}
