"""Matrices of curvature written out, for comparison."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from mindgap.core.subject import Subject
from mindgap.ops.curvature.products import Operator


def _function(
    subject: Subject,
) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor, torch.Tensor]:
    """The outputs of all samples as a function of the weights, the weights, and the targets."""
    model = copy.deepcopy(subject.model).eval()
    names = [name for name, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    batch = subject.train.take(torch.arange(len(subject.train)))

    def outputs(flat: torch.Tensor) -> torch.Tensor:
        pieces = flat.split([shape.numel() for shape in shapes])
        weights = {
            name: piece.view(shape)
            for name, piece, shape in zip(names, pieces, shapes, strict=True)
        }
        given = batch.inputs
        inputs, named = ((), given) if isinstance(given, dict) else (given, {})
        return torch.func.functional_call(model, weights, inputs, named)

    return outputs, nn.utils.parameters_to_vector(model.parameters()).detach(), batch.target


def brute_hessian(subject: Subject) -> torch.Tensor:
    """The whole Hessian of the mean loss, by nested differentiation in torch."""
    outputs, point, target = _function(subject)
    return torch.autograd.functional.hessian(
        lambda at: subject.loss(outputs(at), target).mean(), point
    )


def brute_gauss_newton(subject: Subject) -> torch.Tensor:
    """The mean of JᵀSJ, one sample after the other."""
    outputs, point, target = _function(subject)
    jacobian = torch.autograd.functional.jacobian(outputs, point)
    found, total = outputs(point), torch.zeros(len(point), len(point)).double()
    for place in range(len(target)):
        truth = target[place : place + 1]
        inner = torch.autograd.functional.hessian(
            lambda output, truth=truth: subject.loss(output[None], truth).sum(), found[place]
        ).reshape(found[place].numel(), -1)
        own = jacobian[place].reshape(len(inner), -1)
        total += own.T @ inner @ own
    return total / len(target)


def symmetric(size: int, seed: int) -> torch.Tensor:
    matrix = torch.randn(
        size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return (matrix + matrix.T) / 2


def operator_of(matrix: torch.Tensor) -> Operator:
    return Operator(size=len(matrix), multiply=lambda rows: rows @ matrix)
