"""Two-phase training: gates from a network of phase 1, weights from phase 2."""

import hashlib

import torch
from torch import Tensor, nn

from mindgap.core import InputError, Inputs, Recipe, Remedy, Split, TrainingState, call, option
from mindgap.core.purity import evaluating
from mindgap.ops.models.gates import recorded
from mindgap.ops.models.phases import gates_of, two_phased


class TwoPhase(Remedy):
    r"""Trains on a part of the data, freezes the gates, and trains the weights on the rest.

    Formula: $h_k(x) = \langle z_\sigma(x), w_k \rangle, \qquad \sigma = \sigma(x, w_1)
    \;\text{from}\; \alpha n \;\text{samples}, \qquad w_2 \;\text{from the other}\; (1 - \alpha) n$

    Reading: The share is 1 − α: how much of the data phase 2 has to itself. There the network of
    phase 1 decides which units are open and which entry a max-pool takes. The output is then linear
    in every path's weight, and independent of phase 2's samples but for these weights. This is what
    a bound needs; it mostly costs accuracy. Both phases take as many steps in all as plain
    training, and visit every sample as often. The model that is handed over holds both networks and
    needs both for every answer. A share of zero turns it off.

    Assumes: ReLU, leaky ReLU and max-pool are the only gates; others are refused. In phase 2, batch
    normalization uses the statistics of phase 1. Both phases have one epoch at least.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> remedy = TwoPhase(share=0.75)
    >>> [len(places) for places in remedy.places(samples=8, seed=0)]
    [2, 6]
    >>> sorted(remedy.attach(net).state_dict())[3:5]
    ['2.weight', 'phase']
    """

    method = ("K5",)
    cites = ("kawaguchi2017generalization",)
    strength = "share"
    treats = frozenset({"over-fitting"})
    cost = 1.5
    horizon = True

    share: float = option(
        0.5,
        help="share 1 − α of the samples that phase 2 keeps for itself; 0 is off",
        low=0,
        below=1,
    )

    def places(self, samples: int, seed: int) -> tuple[Tensor, Tensor]:
        """Draw which samples belong to phase 1 and which to phase 2.

        Args:
            samples: How many training samples there are.
            seed: The seed of the training run.
        """
        order = torch.randperm(samples, generator=self._random(seed, 0))
        first = samples - round(self.share * samples)
        if not 0 < first < samples:
            raise InputError(
                f"Both phases must have a sample at least, got a share of {self.share} of "
                f"{samples} for phase 2. Choose another share; zero is plain training."
            )
        return order[:first], order[first:]

    def _random(self, seed: int, epoch: int) -> torch.Generator:
        text = f"{self.name} {seed} {epoch}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
        return torch.Generator().manual_seed(number)

    def _first_epochs(self, epochs: int) -> int:
        """How many epochs phase 1 takes: its share of the samples, so that all are seen alike."""
        if epochs < 2:
            raise InputError(
                f"Two-phase training must have an epoch for each phase, got {epochs} planned. Plan "
                "two at least, and pass epochs= to RemedyOptimizer."
            )
        return min(max(1, round((1 - self.share) * epochs)), epochs - 1)

    def prepare(self, recipe: Recipe, data: Split) -> Recipe:
        """Make the model factory attach what phase 2 needs."""
        factory, some = recipe.model, data.take(torch.arange(min(2, len(data)))).inputs
        return recipe.replace(model=lambda: self.attach(factory(), some))

    def attach(self, model: nn.Module, inputs: Inputs | None = None) -> nn.Module:
        """Give a model the place for the weights of phase 1, in buffers of its own.

        A saved two-phase network is loaded into a model that was prepared like this.

        Args:
            model: The model, which is changed in place.
            inputs: Some samples, to see that all its gates are known.
        """
        if inputs is not None:
            _check_gates(model, inputs)
        return two_phased(model)

    def order(self, state: TrainingState, samples: int) -> Tensor:
        """Go through the phase's own samples until as many are seen as there are in all."""
        first, second = self.places(samples, state.seed)
        own = first if state.epoch <= self._first_epochs(state.epochs) else second
        random = self._random(state.seed, state.epoch)
        passes = [
            torch.randperm(len(own), generator=random) for _ in range(-(-samples // len(own)))
        ]
        return own[torch.cat(passes)[:samples]]

    @torch.no_grad()
    def after_epoch(self, state: TrainingState) -> bool:
        """Keep the weights of phase 1 when it ends."""
        if state.epoch == self._first_epochs(state.epochs):
            gates_of(state.model).freeze()
        return False


def _check_gates(model: nn.Module, inputs: Inputs) -> None:
    like = next(model.parameters())
    with evaluating(model):
        _, gates = recorded(lambda: call(model, inputs, like))
    if not gates:
        raise InputError(
            "Two-phase training must find a ReLU, a leaky ReLU or a max-pool in the model, got "
            f"none in {type(model).__name__}. Leave the remedy out."
        )
