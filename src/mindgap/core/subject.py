"""Subject: a model with its loss and data, whose passes over the data are computed once."""

import contextlib
import numbers
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from mindgap.core.calls import (
    JoinedRows,
    call,
    check_weights,
    checked_call,
    fingerprint,
    instability,
    values,
)
from mindgap.core.checks import integer, validated
from mindgap.core.errors import InputError, NotFiniteError, shown
from mindgap.core.estimator import as_module
from mindgap.core.loss import Loss, Task, align, as_loss
from mindgap.core.purity import evaluating, preserved
from mindgap.core.recipe import Recipe
from mindgap.core.split import Batch, DatasetSplit, Inputs, Split, as_split

Which = Literal["train", "test"]
T = TypeVar("T")
KEPT = 2**24  # numbers of features that are kept from a pass over the data, in case they are wanted
_NAMES: dict[Which, str] = {"train": "training", "test": "test"}


@validated
class Subject:
    """A model with its loss and data: what measures, bounds and diagnoses examine.

    Nothing here changes the model. Passes over the data are cached until a weight or buffer
    changes.

    Args:
        model: The trained model, or a fitted estimator of skorch or scikit-learn, which
            :func:`mindgap.core.estimator.as_module` wraps.
        loss: A name (see :func:`mindgap.core.loss.as_loss` for all), a torch loss, or any callable
            ``(output, target)``.
        train: The training data: a tuple of tensors or arrays, a dict, a Dataset, a DataLoader, or
            a list of samples that are tuples ``(input, target)`` or dicts.
        test: Data that the model has never seen, in any of the same forms.
        initial: The state dict from before training, for measures of the distance travelled.
        task: ``"classification"`` (targets are class numbers, outputs one logit per class),
            ``"multilabel"`` (targets are 0 or 1, outputs one logit per label) or ``"regression"``
            (outputs have the targets' shape). If None, it follows from the loss; for a loss of
            your own, targets that are floats mean a regression.
        target: The key of the targets, where batches are dicts; if None, the first of ``labels``,
            ``label``, ``targets``, ``target`` and ``y`` that is there.
        name: The title of reports; the class of the model if empty.
        classes: The names of the classes, in the order of their numbers.
        history: One dict per epoch, as :func:`mindgap.fit` returns it. A loss may be NaN: that is
            what a run that diverged looks like.
        recipe: How the model was trained, for measures that train it again with other data.
            ``fitted.subject()`` brings it along, unless a remedy was on.
        seed: The seed with which the recipe gives this model.
        judged: How many models were compared on these test data, this one included. The best of
            many owes a part of its lead to chance.
        batch_size: How many samples go through the model at once.
        check_determinism: Refuse a Dataset that reads differently twice.

    >>> model = nn.Linear(2, 2)
    >>> subject = Subject(model, "cross_entropy", (torch.eye(2), torch.tensor([0, 1])))
    >>> with torch.no_grad():
    ...     _ = model.weight.copy_(torch.eye(2)), model.bias.zero_()
    >>> subject.margins("train").tolist(), subject.mean_error("train")
    ([1.0, 1.0], 0.0)
    """

    def __init__(
        self,
        model: Any,
        loss: str | Loss | Callable[..., Tensor],
        train: Any,
        test: Any = None,
        *,
        initial: Mapping[str, Tensor] | None = None,
        task: Task | None = None,
        target: str | None = None,
        name: str = "",
        classes: tuple[str, ...] = (),
        history: Sequence[Mapping[str, Any]] = (),
        recipe: Recipe | None = None,
        seed: int = 0,
        judged: int = 1,
        batch_size: int = 512,
        check_determinism: bool = True,
    ) -> None:
        self.model: nn.Module = as_module(model)
        self.loss = as_loss(loss)
        self.train = as_split(train, target, "training data")
        self.test = None if test is None else as_split(test, target, "test data")
        self.initial = None if initial is None else _checked_initial(self.model, initial)
        self.name, self.classes, self.history = (
            name or type(model).__name__,
            classes,
            _checked_history(history),
        )
        self.batch_size, self.judged = integer("batch_size", batch_size), integer("judged", judged)
        self.recipe, self.seed = recipe, seed
        self._cache: dict[Hashable, tuple[Hashable, Any]] = {}
        self.asked: dict[Hashable, float] = {}  # cached values that were used, and what they cost
        self.task: Task = task or self.loss.task or _task_of(self.train)
        if check_determinism:
            _check_determinism(self.train)
        self._check_targets()
        self._check_classes()

    def split(self, which: Which) -> Split:
        """Return the training or the test data; missing test data raise."""
        found = self.train if which == "train" else self.test
        if found is None:
            raise InputError(
                "This needs test data, got a subject without. Pass test=(inputs, targets) to "
                "Subject."
            )
        return found

    def forward(self, inputs: Inputs) -> Tensor:
        """Return the model's output for some inputs, in the model's precision, on its device."""
        return call(self.model, inputs, self._like())

    def checked_forward(self, inputs: Inputs) -> Tensor:
        """Return the output as ``forward`` does; a failure of the model becomes one sentence."""
        return checked_call(self.model, inputs, self._like())

    def batches(self, which: Which = "train") -> Iterator[Batch]:
        """Read all samples in their fixed order."""
        return self.split(which).batches(self.batch_size)

    def targets(self, which: Which = "train") -> Tensor:
        """Return all targets in order, in the type that the loss takes."""
        return self.cached(("targets", which), lambda: self._typed(self.split(which).targets))

    def outputs(self, which: Which = "train") -> Tensor:
        """Return the model's outputs (logits, predictions) in evaluation mode."""
        return self.cached(("outputs", which), lambda: self._pass(which))

    def losses(self, which: Which = "train") -> Tensor:
        """Return the loss of every sample."""
        return self.cached(
            ("losses", which), lambda: self.loss(self.outputs(which), self.targets(which)).detach()
        )

    def predictions(self, which: Which = "train") -> Tensor:
        """Return class numbers, 0/1 decisions, or the outputs of a regression."""
        outputs = self.outputs(which)
        if self.task == "classification":
            return outputs.argmax(1)
        return (outputs > 0).to(outputs.dtype) if self.task == "multilabel" else outputs

    def errors(self, which: Which = "train") -> Tensor:
        """Return the 0-1 error of every sample; the loss in a regression.

        Of several labels per sample it is the share that is wrong.
        """
        if self.task == "regression":
            return self.losses(which)
        wrong = self.predictions(which) != align(self.outputs(which), self.targets(which))
        rate = wrong.to(self.outputs(which).dtype)
        return rate.flatten(1).mean(1) if rate.ndim > 1 else rate

    def mean_loss(self, which: Which = "train") -> float:
        """Return the mean loss, summed in double precision."""
        return float(self.losses(which).double().mean())

    def mean_error(self, which: Which = "train") -> float:
        """Return the mean error, summed in double precision."""
        return float(self.errors(which).double().mean())

    def margins(self, which: Which = "train") -> Tensor:
        """Return the logit of the true class minus the largest other one."""
        if self.task != "classification":
            raise InputError(
                f"Margins need a classification, got a {self.task}. Choose another measure."
            )
        return self.cached(
            ("margins", which), lambda: _margins(self.outputs(which), self.targets(which))
        )

    def features(self, which: Which = "train") -> Tensor:
        """Return the input of the linear layer that is called last."""
        return self.cached(("features", which), lambda: self._features(which))

    def part(self, index: Tensor, which: Which = "train") -> "Subject":
        """Return the same model with some samples as its training data, and what is known of them.

        Args:
            index: Places of the samples in the split.
            which: The split that they are taken from.

        >>> data = (torch.eye(3), torch.tensor([0, 1, 0]))
        >>> some = Subject(nn.Linear(3, 2), "cross_entropy", data).part(torch.tensor([0, 1]))
        >>> len(some.train)
        2
        """
        part = _Part(
            self.model,
            self.loss,
            self.split(which).subset(index),
            task=self.task,
            name=self.name,
            classes=self.classes,
            batch_size=self.batch_size,
            check_determinism=False,
        )
        part.asked = self.asked
        for what in ("outputs", "features"):
            if (what, which) in self._cache:
                state, (rows, seconds) = self._cache[what, which]
                part._cache[what, "train"] = (state, (rows[index], seconds))
        return part

    def gradient(self, which: Which = "train") -> dict[str, Tensor]:
        """Return the gradient of the mean loss, in evaluation mode, by parameter name."""
        names = [name for name, p in self.model.named_parameters() if p.requires_grad]
        flat = self.cached(("gradient", which), lambda: self._gradient(which))
        parts = flat.split([dict(self.model.named_parameters())[name].numel() for name in names])
        shapes = [dict(self.model.named_parameters())[name].shape for name in names]
        return {
            name: piece.view(shape) for name, piece, shape in zip(names, parts, shapes, strict=True)
        }

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Compute a value once for these weights, for measures of your own.

        Args:
            key: Names the value. Begin it with the name of your measure and add all settings on
                which the value depends.
            make: Computes the value. It is called once, and again after a weight or buffer of the
                model changed.

        >>> subject = Subject(nn.Linear(2, 1), "mse", (torch.eye(2), torch.ones(2, 1)))
        >>> calls = []
        >>> for _ in range(2):
        ...     spread = subject.cached(
        ...         "spread", lambda: calls.append(1) or subject.outputs().std()
        ...     )
        >>> len(calls)
        1
        """
        # Comparing versions alone would miss writes through ``.data``, which leave no trace there.
        state = fingerprint(self.model)
        kept = self._cache.get(key)
        if kept is None or kept[0] != state:
            started = time.process_time()
            kept = (state, (make(), time.process_time() - started))
            self._cache[key] = kept
        found: T
        found, self.asked[key] = kept[1]
        return found

    def knows(self, key: Hashable) -> bool:
        """Tell whether a value is cached for these weights.

        Args:
            key: Names the value, as in :meth:`cached`.
        """
        return key in self._cache and self._cache[key][0] == fingerprint(self.model)

    def instability(self) -> str:
        """Say why the outputs are not a function of the sample alone; empty if they are.

        >>> noisy = Subject(nn.Linear(2, 1), "mse", (torch.eye(2), torch.ones(2, 1)))
        >>> _ = noisy.model.register_forward_hook(lambda _, x, y: y + torch.rand_like(y))
        >>> noisy.instability()
        'the same samples give other outputs when asked again'
        """
        with preserved(self.model, weights=False), evaluating(self.model):
            return instability(self.forward, self.train)

    def _like(self) -> Tensor:
        tensors = (*self.model.parameters(), *self.model.buffers())
        return next((t for t in tensors if t.is_floating_point()), torch.empty(0))

    def _typed(self, target: Tensor) -> Tensor:
        return typed(target, self.task, self._like())

    def _pass(self, which: Which) -> Tensor:
        """Return the outputs, and keep what enters the last linear layer, which costs nothing."""
        check_weights(self.model)
        samples = len(self.split(which))
        outputs, features = JoinedRows(), JoinedRows()
        with evaluating(self.model), _last_entered(self.model) as latest:
            for batch in self.batches(which):
                outputs.add(self.checked_forward(batch.inputs))
                rows = latest.pop("rows", torch.empty(0))
                if rows.ndim == 2 and rows[0].numel() * samples <= KEPT:
                    features.add(rows)
        found = outputs.joined()
        _check_outputs(found, self, which)
        if features.count == samples:
            self.cached(("features", which), features.joined)
        return found

    def _features(self, which: Which) -> Tensor:
        if not any(isinstance(module, nn.Linear) for module in self.model.modules()):
            raise InputError(
                "Features need a model with a linear layer, got none. Name the layer or choose "
                "another."
            )
        kept = JoinedRows()
        with evaluating(self.model), _last_entered(self.model) as latest:
            for batch in self.batches(which):
                self.forward(batch.inputs)
                kept.add(latest["rows"])
        return kept.joined()

    def _gradient(self, which: Which) -> Tensor:
        wanted = [p for p in self.model.parameters() if p.requires_grad]
        total = [torch.zeros_like(p) for p in wanted]
        with evaluating(self.model), torch.enable_grad():
            for batch in self.batches(which):
                loss = self.loss(self.forward(batch.inputs), self._typed(batch.target)).sum()
                for piece, grad in zip(total, torch.autograd.grad(loss, wanted), strict=True):
                    piece += grad
        return torch.cat([piece.flatten() for piece in total]) / len(self.split(which))

    def _check_targets(self) -> None:
        if self.task != "classification":
            return
        both: tuple[Which, ...] = ("train", "test") if self.test is not None else ("train",)
        for which in both:
            labels = self.targets(which)
            if labels.ndim != 1:
                raise InputError(
                    f"The {_NAMES[which]} data of a classification must have one class number "
                    f"per sample, got targets of shape {tuple(labels.shape)}. Pass class numbers, "
                    "or loss='bce' for several labels."
                )
        self._check_several()

    def _check_several(self) -> None:
        if len(self.targets("train").unique()) < 2:
            raise InputError(
                "The training data of a classification must have at least two classes, got one "
                "only. Add samples of another class, or use a regression loss."
            )

    def _check_classes(self) -> None:
        """Refuse names of classes that leave a label without a name, or that nothing needs."""
        if not self.classes:
            return
        if self.task == "regression":
            raise InputError(
                f"classes must be left out in a regression, got {len(self.classes)} names. Leave "
                "them out, or pass another loss."
            )
        if self.task == "classification":
            splits = [split for split in (self.train, self.test) if split is not None]
            needed = max(int(split.targets.max()) for split in splits) + 1
            if len(self.classes) < needed:
                raise InputError(
                    f"classes must name every class from 0 to {needed - 1}, got "
                    f"{len(self.classes)} names. Add the others, in the order of the class numbers."
                )


@contextlib.contextmanager
def _last_entered(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Note as ``rows`` what enters the linear layer that is called last."""
    latest = dict[str, Tensor]()

    def keep(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        # The layer that is called last overwrites what the others left.
        latest.update(rows=inputs[0].detach() if inputs else torch.empty(0))

    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    handles = [layer.register_forward_pre_hook(keep) for layer in layers]
    try:
        yield latest
    finally:
        for handle in handles:
            handle.remove()


class _Part(Subject):
    """Some samples of a subject, which may be of one class."""

    def _check_several(self) -> None:
        pass


def _task_of(train: Split) -> Task:
    target = train.take(torch.arange(1)).target
    return "regression" if target.is_floating_point() else "classification"


def typed(target: Tensor, task: Task, like: Tensor) -> Tensor:
    """Give targets the type that the loss takes: class numbers, or the model's precision.

    >>> typed(torch.tensor([0.0, 1.0]), "classification", torch.zeros(1))
    tensor([0, 1])
    """
    if task != "classification":
        return target.to(like.device, like.dtype)
    if target.is_floating_point() and not torch.equal(target, target.round()):
        raise InputError(
            "The targets of a classification must be class numbers, got fractions. Use a "
            "regression loss ('mse')."
        )
    return target.to(like.device, torch.long)


def _margins(outputs: Tensor, targets: Tensor) -> Tensor:
    true = outputs.gather(1, targets[:, None]).squeeze(1)
    others = outputs.scatter(1, targets[:, None], -torch.inf)
    return true - others.amax(1)


def _check_outputs(outputs: Tensor, subject: Subject, which: Which) -> None:
    targets = subject.targets(which)
    bad = int((~torch.isfinite(outputs)).sum())
    if bad:
        raise NotFiniteError(
            f"The model's outputs on the {_NAMES[which]} data must be finite numbers, got {bad} of "
            f"{outputs.numel()} values that are NaN or infinite. Scale the inputs as in training, "
            "or look for a division by zero in the model."
        )
    if subject.task == "classification":
        check_classes(outputs, targets, which)
    elif align(outputs, targets).shape != outputs.shape:
        raise InputError(
            f"The model's outputs must have the targets' shape {tuple(targets.shape)}, got "
            f"{tuple(outputs.shape)} on the {_NAMES[which]} data. Reshape the targets or change "
            "the last layer."
        )


def check_classes(outputs: Tensor, targets: Tensor, which: Which) -> None:
    """Refuse outputs that are not one column per class, and labels without an output.

    >>> check_classes(torch.zeros(2, 3), torch.tensor([0, 3]), "train")
    Traceback (most recent call last):
    mindgap.core.errors.InputError: The training labels must be from 0 to 2 (the model has 3 outputs), \
got 3. Renumber the labels or widen the last layer.
    """
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        raise InputError(
            "A classifier must give outputs of shape (samples, classes) with at least two "
            f"classes, got {tuple(outputs.shape)}. Change the last layer, or use loss='bce'."
        )
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= outputs.shape[1]:
        raise InputError(
            f"The {_NAMES[which]} labels must be from 0 to {outputs.shape[1] - 1} (the model has "
            f"{outputs.shape[1]} outputs), got {low if low < 0 else high}. Renumber the labels or "
            "widen the last layer."
        )


def _check_determinism(split: Split) -> None:
    if not isinstance(split, DatasetSplit):
        return
    index = torch.arange(min(8, len(split)))
    first, second = split.take(index), split.take(index)
    pairs = [
        (first.target, second.target),
        *zip(values(first.inputs), values(second.inputs), strict=True),
    ]
    if not all(torch.equal(left, right) for left, right in pairs):
        raise InputError(
            "The training data must read the same twice, got two readings that differ (random "
            "augmentation?). Pass the data without augmentation, or check_determinism=False to "
            "accept noise in every number."
        )


def _checked_history(history: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, float], ...]:
    for row in history:
        wrong = [name for name, value in row.items() if not _is_real(value)]
        if wrong:
            raise InputError(
                f"history must hold numbers, got {shown(row[wrong[0]])} as {wrong[0]!r}. Pass one "
                'dict of numbers per epoch, such as {"epoch": 1, "train_loss": 0.7}.'
            )
    return tuple(history)


def _is_real(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _checked_initial(model: nn.Module, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    own = model.state_dict()
    wrong = [
        name
        for name, value in own.items()
        if name not in initial or initial[name].shape != value.shape
    ]
    if wrong:
        raise InputError(
            f"initial must be a state dict of this model, got one in which {wrong[0]!r} is "
            "missing or has another shape. Save model.state_dict() (a copy of it) before training."
        )
    return {name: value.detach().clone() for name, value in initial.items()}
