"""PerturbedOptimizer in loops of callbacks: begun and ended by calls, also inside a closure."""

from __future__ import annotations

import pytest
import torch
from raw_loop import batches, by_perturbation, network, perturbed, same
from torch import nn

from mindgap.core.errors import InputError
from mindgap.training.perturbed_optimizer import PerturbedOptimizer


def one_epoch(how: str) -> tuple[nn.Module, PerturbedOptimizer]:
    model = network()
    optimizer = perturbed(model.parameters())
    for inputs, targets in batches():

        def closure(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            if how == "ended by the closure":
                optimizer.restore()
            return loss

        if how == "calls":
            optimizer.perturb()
            closure()
            optimizer.restore()
            optimizer.step()
        elif how == "closure inside the context":
            with optimizer.perturbed():
                optimizer.step(closure)
        else:
            optimizer.perturb()
            optimizer.step(closure)
    return model, optimizer


@pytest.mark.parametrize(
    "how", ["calls", "begun by a call", "ended by the closure", "closure inside the context"]
)
def test_every_way_takes_the_same_steps(how: str) -> None:
    model, optimizer = one_epoch(how)
    assert same(model, by_perturbation(epochs=1))
    assert not optimizer.core.moved
    with pytest.raises(InputError, match="step must follow"):
        optimizer.step()


def test_a_bare_step_at_moved_weights_is_refused_and_nothing_is_lost() -> None:
    model, optimizer = one_epoch("calls")
    kept = [weight.detach().clone() for weight in model.parameters()]
    with optimizer.perturbed():
        model(batches()[0][0]).sum().backward()
    optimizer.perturb()
    with pytest.raises(InputError, match="step must follow"):
        optimizer.step()
    with pytest.raises(InputError, match="Do not nest"):
        optimizer.perturb()
    optimizer.restore()
    optimizer.restore()
    assert all(map(torch.equal, kept, model.parameters()))


def test_a_compiled_model_sees_the_perturbed_weights() -> None:
    """The weights point elsewhere during the context; a compiled graph takes them as arguments and must notice."""
    left, right = network(), network()
    seen = []
    for model, forward in ((left, left), (right, torch.compile(right, backend="aot_eager"))):
        optimizer = perturbed(model.parameters())
        for inputs, targets in batches():
            optimizer.zero_grad()
            with optimizer.perturbed():
                nn.functional.cross_entropy(forward(inputs), targets).backward()
            optimizer.step()
        seen.append(nn.utils.parameters_to_vector(model.parameters()))
    assert torch.allclose(*seen, atol=1e-6)
    assert not torch.allclose(
        seen[0], nn.utils.parameters_to_vector(network().parameters()), atol=1e-6
    )
