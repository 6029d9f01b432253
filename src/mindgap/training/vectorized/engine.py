"""Engine: computes the gradients of all members; one loop serves all engines."""

import abc

import torch
from torch import Tensor, nn

from mindgap.core import Inputs, call, evaluating, with_weights
from mindgap.training.vectorized.batches import Orders
from mindgap.training.vectorized.parameters import Store, load
from mindgap.training.vectorized.problem import Problem


class Engine(abc.ABC):
    """Members that are trained at once.

    After ``gradient(step)`` the store holds the gradient and ``losses[step]`` the members' losses.
    """

    store: Store

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.orders = Orders(problem.samples, problem.batch_size, problem.seeds)
        self.bounds = self.orders.bounds
        self.losses = torch.zeros(len(self.bounds), problem.members, dtype=problem.like.dtype)
        self._only = self.losses[0]
        sizes = torch.tensor([stop - start for start, stop in self.bounds])
        self._shares = (sizes / problem.samples).to(self.losses)

    def adopt(self, store: Store, views: dict[str, Tensor]) -> None:
        """Take the models' initial weights into the store.

        Args:
            store: An empty store.
            views: Where each trained parameter lies in it, of shape (members, …).
        """
        self.store, store.views = store, views
        load(views, self.problem.models)

    @abc.abstractmethod
    def begin(self, epoch: int) -> None:
        """Lay out the samples of an epoch."""

    @abc.abstractmethod
    def gradient(self, step: int) -> None:
        """Compute losses and gradients of a batch."""

    def running_losses(self, out: Tensor) -> None:
        """Write the mean loss of the epoch's samples, as they were seen, to ``out``."""
        if len(self.bounds) == 1:
            out.copy_(self._only)
        else:
            torch.mv(self.losses.t(), self._shares, out=out)

    def outputs(self, inputs: Inputs) -> Tensor:
        """Compute the outputs of all models in evaluation mode, (members, samples, …)."""
        return torch.stack([self._output(member, inputs) for member in range(self.problem.members)])

    def _output(self, member: int, inputs: Inputs) -> Tensor:
        template = self.problem.models[0]
        own = {name: view[member].to(self.problem.like) for name, view in self.store.views.items()}
        with evaluating(template):
            state = {**untrained(self.problem.models[member]), **own}
            return call(Weighted(template, state), inputs, self.problem.like)


def untrained(model: nn.Module) -> dict[str, Tensor]:
    """List buffers and frozen parameters."""
    frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    return {**dict(model.named_buffers()), **frozen}


class Weighted(nn.Module):
    """A model called with other weights than its own."""

    def __init__(self, model: nn.Module, state: dict[str, Tensor]) -> None:
        super().__init__()
        self.__dict__["parts"] = (
            model,
            state,
        )  # past ``__setattr__``, which would register the model

    def forward(self, *args: object, **kwargs: object) -> object:
        model, state = self.__dict__["parts"]
        return with_weights(model, state, args, kwargs)
