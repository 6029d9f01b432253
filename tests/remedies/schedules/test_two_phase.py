"""Two-phase training: phase 1 is plain training, and in phase 2 the gates stay while weights move."""

from __future__ import annotations

import copy
import itertools
import pickle
import types

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mindgap.core.errors import InputError
from mindgap.core.recipe import Recipe
from mindgap.core.remedy import TrainingState
from mindgap.core.subject import Subject
from mindgap.measures import ParameterNorm
from mindgap.nets import MLP, ResNet20
from mindgap.ops.models.gates import recorded
from mindgap.ops.models.phases import gates_of
from mindgap.remedies import TwoPhase, WeightDecay
from mindgap.training.batches import chosen_order
from mindgap.training.ensemble import SequentialNotice, ensemble
from mindgap.training.fit import fit
from mindgap.training.probe import Probe

N, EPOCHS, SIZE = 40, 4, 8


def perceptron() -> nn.Module:
    return MLP((16, 12, 10, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


def plan(model=perceptron, **changes) -> Recipe:
    random = torch.Generator().manual_seed(5)
    data = torch.randn(N, 16, generator=random), torch.randint(0, 3, (N,), generator=random)
    settings = {"epochs": EPOCHS, "batch_size": SIZE, "learning_rate": 0.02, **changes}
    return Recipe(model=model, train=data, **settings)


def written_out(model: nn.Module, first: dict[str, Tensor], x: Tensor) -> Tensor:
    """Both networks layer by layer: gates from the frozen one, numbers from the live one."""
    layers = [layer for layer in model if not isinstance(layer, nn.Sequential)]
    live = frozen = x
    for number, layer in enumerate(layers):
        own = {k.split(".")[1]: v for k, v in first.items() if k.split(".")[0] == str(number)}
        if isinstance(layer, nn.ReLU | nn.LeakyReLU):
            slope = getattr(layer, "negative_slope", 0.0)
            gate = torch.where(frozen > 0, 1.0, slope)
            live, frozen = live * gate, frozen * gate
        elif isinstance(layer, nn.MaxPool2d):
            frozen, places = F.max_pool2d(frozen, layer.kernel_size, return_indices=True)
            live = live.flatten(2).gather(2, places.flatten(2)).view_as(frozen)
        else:
            live, frozen = layer(live), torch.func.functional_call(layer, own, frozen)
    return live


class Watch(Probe):
    """Keeps gates, weights and both forms of the output after every step."""

    def look(self, subject: Subject, step: int) -> None:
        model, x = subject.model, subject.train.take(torch.arange(N)).inputs[0]
        gated = gates_of(model)
        with torch.no_grad():
            self.readings.append(
                (
                    step,
                    gated.frozen,
                    gated.gates(x),
                    nn.utils.parameters_to_vector(model.parameters()).clone(),
                    (model(x), written_out(model, gated.first(), x)),
                )
            )


@pytest.mark.parametrize("model", [perceptron, convolutional])
def test_gates_stay_in_every_step_of_phase_2_while_the_weights_move(model) -> None:
    watch = Watch(measure=ParameterNorm())
    fitted = fit(plan(model), [TwoPhase()], probes=[watch], seed=2)
    late = [row for row in watch.readings if row[1]]
    assert len(late) == len(watch.readings) // 2 == EPOCHS // 2 * N // SIZE
    for (_, _, gates, weights, outputs), (_, _, more, moved, _) in itertools.pairwise(late):
        assert all(map(torch.equal, gates, more))
        assert not torch.equal(weights, moved)
        assert torch.allclose(*outputs, rtol=1e-5, atol=1e-6)
    # The weights' own gates do change, or the test would say nothing.
    x = fitted.recipe.train[0]
    with gates_of(fitted.model).released():
        _, own = recorded(lambda: fitted.model(x))
    assert any(not torch.equal(a, b) for a, b in zip(own, late[0][2], strict=True))


def test_phase_1_is_plain_training_on_its_samples_bit_by_bit() -> None:
    remedy, recipe = TwoPhase(share=0.6), plan(epochs=5)
    fitted = fit(recipe, [remedy], seed=3)
    model, (x, y) = recipe.build(3), recipe.train
    optimizer = recipe.optimize(list(model.parameters()))
    for epoch in (1, 2):
        state = TrainingState(model=model, optimizer=optimizer, epoch=epoch, epochs=5, seed=3)
        for index in remedy.order(state, N).split(SIZE):
            optimizer.zero_grad()
            F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
    kept = gates_of(fitted.model).first()
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())


def test_a_prepared_model_without_phases_is_plain_training_bit_by_bit() -> None:
    """All data in phase 1: neither the buffers nor the new forward pass leave a trace."""
    plain = fit(plan())
    prepared = fit(plan(lambda: TwoPhase().attach(perceptron())))
    zero = fit(plan(), [TwoPhase(share=0.0)])
    for other in (prepared, zero):
        pairs = zip(plain.model.parameters(), other.model.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        assert plain.history == other.history


def test_the_phases_share_no_sample_and_all_are_seen_alike() -> None:
    remedy, seen = TwoPhase(share=0.75), []
    for epoch in range(1, 9):
        state = TrainingState(
            model=nn.Identity(), optimizer=None, epoch=epoch, epochs=8, seed=1, step=7 * epoch
        )
        seen.append(remedy.order(state, N))
    first, second = remedy.places(N, 1)
    assert {len(order) for order in seen} == {N}
    assert set(torch.cat(seen[:2]).tolist()) == set(first.tolist())
    assert set(torch.cat(seen[2:]).tolist()) == set(second.tolist())
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(N))
    counts = torch.cat(seen).bincount()
    assert counts[first].tolist() == [8] * 10
    assert counts[second].float().mean() == 8
    assert not torch.equal(seen[2], seen[3])


def normalized() -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 3)
    )


def test_gates_come_from_evaluation_mode_and_statistics_stay_in_phase_2() -> None:
    fitted = fit(plan(normalized), [TwoPhase()])
    model, x = fitted.model, fitted.recipe.train[0]
    kept, now = gates_of(model).first(), model.state_dict()
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(kept[name], now[name])
    assert not torch.equal(kept["1.weight"], now["1.weight"])
    model.train()
    gates = gates_of(model).gates(x)
    normal = F.batch_norm(
        F.linear(x, kept["0.weight"], kept["0.bias"]),
        kept["1.running_mean"],
        kept["1.running_var"],
        kept["1.weight"],
        kept["1.bias"],
    )
    assert torch.equal(gates[0], normal > 0)
    model(x)
    assert torch.equal(model.state_dict()["1.running_mean"], now["1.running_mean"])
    assert model[3].training  # dropout still acts


def test_a_residual_network_is_gated_through_its_function_calls() -> None:
    torch.manual_seed(0)
    net, x = TwoPhase().attach(ResNet20(width=4)), torch.randn(2, 3, 16, 16)
    net.eval()
    plain = net(x)
    with torch.no_grad():
        gates_of(net).freeze()
        assert torch.equal(net(x), plain)
        before = gates_of(net).gates(x)
        for weight in net.parameters():
            weight.mul_(1.5)
        assert all(map(torch.equal, gates_of(net).gates(x), before))
    assert len(before) == 19
    assert not torch.equal(net(x), plain)


def test_resumes_in_the_middle_of_phase_2(tmp_path) -> None:
    path, remedies = tmp_path / "run.pt", [TwoPhase()]

    class Killed(Probe):
        def look(self, subject: Subject, step: int) -> None:
            if step == self.every:
                raise KeyboardInterrupt

    cut = fit(
        plan(convolutional),
        remedies,
        checkpoint=path,
        probes=[Killed(measure=ParameterNorm(), every=17)],
    )
    assert cut.epochs == 3
    whole = fit(plan(convolutional), remedies)
    resumed = fit(plan(convolutional), remedies, checkpoint=path)
    states = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_both_networks_are_saved_copied_and_loaded() -> None:
    fitted = fit(plan(), [TwoPhase()])
    x = fitted.recipe.train[0]
    loaded = TwoPhase().attach(perceptron())
    loaded.load_state_dict(fitted.model.state_dict())
    for other in (loaded, copy.deepcopy(fitted.model), pickle.loads(pickle.dumps(fitted.model))):
        assert torch.equal(other(x), fitted.model(x))
        with torch.no_grad():
            other[1].weight.zero_()
        assert not torch.equal(other(x), fitted.model(x))  # its own weights, not the first model's
    assert len(list(fitted.model.parameters())) == len(list(perceptron().parameters()))


def test_derivatives_per_sample_pass_through_frozen_gates() -> None:
    model = fit(plan(), [TwoPhase()]).model
    x, weights = plan().train[0][:5], dict(model.named_parameters())

    def output(own: dict[str, Tensor], row: Tensor) -> Tensor:
        return torch.func.functional_call(model, own, (row[None],))[0, 0]

    found = torch.func.vmap(torch.func.grad(output), in_dims=(None, 0))(weights, x)
    for k in range(5):
        plain = torch.autograd.grad(model(x[k : k + 1])[0, 0], list(weights.values()))
        assert all(torch.allclose(a[k], b) for a, b in zip(found.values(), plain, strict=True))


def test_an_ensemble_trains_members_one_by_one_and_other_remedies_join_in() -> None:
    remedies = [TwoPhase(), WeightDecay(decay=0.1)]
    with pytest.warns(SequentialNotice, match="two-phase acts during training"):
        (member,) = ensemble(plan(), [4], remedies=remedies)
    alone = fit(plan(), remedies, seed=4).model
    assert torch.equal(member.model(plan().train[0]), alone(plan().train[0]))


def test_an_engine_that_takes_models_apart_refuses_a_prepared_model() -> None:
    prepared = plan(lambda: TwoPhase().attach(perceptron()))
    with pytest.warns(SequentialNotice):
        members = ensemble(prepared, [0, 1])
    for seed, member in enumerate(members):
        alone = fit(prepared, seed=seed).model
        assert torch.equal(member.model(prepared.train[0]), alone(prepared.train[0]))


@pytest.mark.parametrize(
    ("changes", "remedy", "text"),
    [
        ({"epochs": 1}, TwoPhase(), "an epoch for each phase"),
        ({}, TwoPhase(share=0.001), "a sample at least"),
        ({}, TwoPhase(share=0.999), "a sample at least"),
        ({"model": lambda: nn.Linear(16, 3)}, TwoPhase(), "got none in Linear"),
        ({"model": lambda: MLP((16, 4, 3), activation="tanh")}, TwoPhase(), "got tanh"),
        ({"model": lambda: TwoPhase().attach(perceptron())}, TwoPhase(), "Build a new one"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes, remedy: TwoPhase, text: str) -> None:
    with pytest.raises(InputError, match=text):
        fit(plan(**changes), [remedy])


def test_a_plain_model_has_no_phases() -> None:
    with pytest.raises(InputError, match="got a plain one"):
        gates_of(perceptron())


def test_one_remedy_alone_chooses_the_samples() -> None:
    state = TrainingState(model=nn.Identity(), optimizer=None, epoch=1, epochs=2)
    other = types.SimpleNamespace(name="other", order=lambda _, samples: torch.arange(samples))
    assert torch.equal(chosen_order([other], [state], 3), torch.arange(3))
    with pytest.raises(InputError, match="got two-phase, other"):
        chosen_order([TwoPhase(), other], [state, state], N)
