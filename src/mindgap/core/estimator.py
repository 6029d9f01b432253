"""Estimators of skorch and scikit-learn as modules, so that a subject can hold them."""

import copy
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mindgap.core.errors import InputError, MindgapError


def as_module(model: Any) -> nn.Module:
    """Return a module unchanged; wrap a fitted estimator of skorch or scikit-learn as one.

    A net of skorch becomes its module, with the logarithm behind it if the net takes one, as
    ``NeuralNetClassifier`` does. Any other estimator becomes a module without weights. Its outputs
    are the logarithms of ``predict_proba``, the values of ``decision_function``, or what
    ``predict`` returns if it is no classifier.

    Args:
        model: A module, or an estimator that was fitted. The classes of a classifier are 0, 1, ….

    >>> class Constant:
    ...     classes_ = np.array([0, 1])
    ...
    ...     def predict_proba(self, rows):
    ...         return np.full((len(rows), 2), 0.5)
    >>> as_module(Constant())(torch.zeros(1, 3)).exp()
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, type):
        raise InputError(f"model must be a torch.nn.Module, got {model!r}. Pass an instance.")
    if hasattr(model, "get_loss") and hasattr(model, "initialize_module"):
        return _module_of_net(model)
    if any(hasattr(model, name) for name in ("predict", "predict_proba", "decision_function")):
        return EstimatorModule(model)
    raise InputError(
        "model must be a torch.nn.Module or a fitted estimator of skorch or scikit-learn, got "
        f"{type(model).__name__}. Pass an instance."
    )


def kind_of(model: nn.Module) -> str:
    """Return the name of a module's class, or of the estimator's that it wraps.

    >>> kind_of(nn.Linear(1, 1))
    'Linear'
    """
    return type(model.estimator if isinstance(model, EstimatorModule) else model).__name__


def _module_of_net(net: Any) -> nn.Module:
    module = getattr(net, "module_", None)
    if not isinstance(module, nn.Module):
        raise InputError(
            "A net of skorch must be initialized, got one without weights. Call fit(…) or "
            "initialize() first."
        )
    # With this criterion a classifier of skorch takes the logarithm itself, in get_loss.
    probabilities = hasattr(net, "predict_proba") and hasattr(net, "classes_inferred_")
    if probabilities and isinstance(getattr(net, "criterion_", None), nn.NLLLoss):
        return _LogProbabilities(module)
    return module


class _LogProbabilities(nn.Module):
    """The logarithm of a module's probabilities, which serve as its logits."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        found: Tensor = self.module(*inputs, **named)
        return torch.log(found + torch.finfo(found.dtype).eps)


class EstimatorModule(nn.Module):
    """The answers of an estimator that holds no tensors.

    Args:
        estimator: Fitted, with ``predict_proba``, ``decision_function`` or ``predict``.

    >>> class Mean:
    ...     def predict(self, rows):
    ...         return rows.mean(1)
    >>> EstimatorModule(Mean())(torch.ones(2, 3))
    tensor([1., 1.], dtype=torch.float64)
    """

    precision: Tensor

    def __init__(self, estimator: Any) -> None:
        super().__init__()
        self.estimator = estimator
        # It tells a subject the precision of the inputs: estimators compute in double.
        self.register_buffer("precision", torch.empty(0, dtype=torch.float64), persistent=False)
        self.classifies = hasattr(estimator, "classes_")
        # Without probabilities the softmax of its outputs says nothing about confidence.
        self.scores_only = self.classifies and not hasattr(estimator, "predict_proba")
        classes = np.asarray(estimator.classes_) if self.classifies else np.arange(0)
        if not np.array_equal(classes, np.arange(len(classes))):
            raise InputError(
                "The classes of an estimator must be the numbers 0, 1, …, got "
                f"{', '.join(map(str, classes[:5]))}. Fit it on class numbers, as those of "
                "numpy.unique(labels, return_inverse=True)[1]."
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> "EstimatorModule":
        return EstimatorModule(copy.deepcopy(self.estimator, memo))

    def forward(self, rows: Tensor) -> Tensor:
        """Return logits of classes, or predicted numbers."""
        try:
            found = self._asked(self._named(rows.detach().cpu().numpy()))
        except MindgapError:
            raise
        except Exception as error:
            told = " ".join(str(error).split())[:160]
            raise InputError(
                f"The estimator must be fitted and accept the data, got {type(error).__name__}: "
                f"{told} Fit it on inputs of this shape."
            ) from error
        return torch.as_tensor(np.asarray(found), dtype=self.precision.dtype)

    def _named(self, rows: Any) -> Any:
        """Give the columns the names that the estimator was fitted with, or it warns every time."""
        names, pandas = (
            getattr(self.estimator, "feature_names_in_", None),
            sys.modules.get("pandas"),
        )
        if names is None or pandas is None or rows.ndim != 2 or len(names) != rows.shape[1]:
            return rows
        return pandas.DataFrame(rows, columns=names)

    def _asked(self, rows: Any) -> Any:
        if not self.classifies:
            return self.estimator.predict(rows)
        if hasattr(self.estimator, "predict_proba"):
            found = np.asarray(self.estimator.predict_proba(rows), dtype=np.float64)
            return np.log(np.maximum(found, np.finfo(np.float64).tiny))
        scores = np.asarray(self.estimator.decision_function(rows))
        # One column decides between two classes by its sign.
        return np.stack([-scores / 2, scores / 2], 1) if scores.ndim == 1 else scores
