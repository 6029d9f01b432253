"""The linear class on the last features, for bounds of linear models."""

import abc

import torch
from torch import Tensor

from mindgap.bounds.margin_bound import MarginBound
from mindgap.core import InputError, Subject, Undefined
from mindgap.ops.models.head import find_head, head_features, layer_of
from mindgap.ops.pac_bayes.hessian import linear_layer
from mindgap.ops.rademacher import sum_of_squares


class LinearClassBound(MarginBound, abc.ABC, abstract=True):
    """A margin bound for linear functions of features that were fixed before the data were seen.

    For a network the features are those in front of its last layer. They were learned from the same
    data, so that the bound is flagged as not valid; it is the bound of the last layer alone.
    """

    def parts(self, subject: Subject) -> tuple[Tensor, float]:
        """Return the weights of the last layer and the mean squared norm of its inputs.

        A bias is a weight of an input that is always one.
        """
        try:
            layer = layer_of(subject.model, find_head(subject))
            features = head_features(subject)
        except InputError as error:
            raise Undefined(str(error)) from error
        weight, square = layer.weight.detach().double(), sum_of_squares(features) / len(features)
        bias: Tensor | None = layer.bias
        if bias is None:
            return weight, square
        return torch.cat([weight, bias.detach().double()[:, None]], 1), square + 1

    def broken(self, subject: Subject) -> str:
        """Say so if the features were learned."""
        if linear_layer(subject) is None:
            return "the features of the last layer were learned from the same data"
        return ""
