"""Engine: leaves the gradient of every member in one flat tensor; the loop around it is the same for all."""

import abc

import torch
from torch import Tensor, nn

from mindgap.core import Inputs, call, evaluating
from mindgap.training.vectorized.batches import Orders
from mindgap.training.vectorized.parameters import Store, load
from mindgap.training.vectorized.problem import Problem


class Engine(abc.ABC):
    """Members that are trained at once.

    ``views`` maps a parameter's name to its place in the store, of shape (members, …). After
    ``gradient(step)`` the gradient stands in the store and the members' losses in ``losses[step]``.
    """

    store: Store
    views: dict[str, Tensor]

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.orders = Orders(problem.samples, problem.batch_size, problem.seeds)
        self.bounds = self.orders.bounds
        self.losses = torch.zeros(len(self.bounds), problem.members, dtype=problem.like.dtype)
        self._only = self.losses[0]
        sizes = torch.tensor([stop - start for start, stop in self.bounds])
        self._shares = (sizes / problem.samples).to(self.losses)

    def adopt(self, store: Store, views: dict[str, Tensor]) -> None:
        """Take the models' initial weights into the store."""
        self.store, self.views = store, views
        load(views, self.problem.models)

    @abc.abstractmethod
    def begin(self, epoch: int) -> None:
        """Lay the samples of an epoch out."""

    @abc.abstractmethod
    def gradient(self, step: int) -> None:
        """Compute losses and gradients of a batch."""

    def running_losses(self, out: Tensor) -> None:
        """The mean loss of the epoch's samples, as they were seen."""
        if len(self.bounds) == 1:
            out.copy_(self._only)
        else:
            torch.mv(self.losses.t(), self._shares, out=out)

    def outputs(self, inputs: Inputs) -> Tensor:
        """What the models give in evaluation mode, (members, samples, …)."""
        return torch.stack([self._output(member, inputs) for member in range(self.problem.members)])

    def _output(self, member: int, inputs: Inputs) -> Tensor:
        template = self.problem.models[0]
        own = {name: view[member].to(self.problem.like) for name, view in self.views.items()}
        with evaluating(template):
            state = {**untrained(self.problem.models[member]), **own}
            return call(Weighted(template, state), inputs, self.problem.like)


def untrained(model: nn.Module) -> dict[str, Tensor]:
    """Buffers and frozen parameters."""
    frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    return {**dict(model.named_buffers()), **frozen}


class Weighted(nn.Module):
    """A model called with other weights than its own."""

    def __init__(self, model: nn.Module, state: dict[str, Tensor]) -> None:
        super().__init__()
        self.__dict__["parts"] = model, state

    def forward(self, *args: object, **kwargs: object) -> object:
        model, state = self.__dict__["parts"]
        return torch.func.functional_call(model, state, args, kwargs)
