"""The plain loop against a literal one, exact resume, divergence, weights, interruption."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cases import inputs, labels, recipe
from torch import nn

from mindgap.core.errors import CheckpointError, InputError
from mindgap.core.remedy import Remedy, TrainingState
from mindgap.measures import ParameterNorm
from mindgap.nets import MLP
from mindgap.remedies import Dropout, EarlyStopping, GradientClipping, WeightDecay
from mindgap.training.batches import batches_of
from mindgap.training.fit import fit
from mindgap.training.probe import Probe

ROOT = Path(__file__).parents[2]


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def literal(
    recipe_, seed: int, make_optimizer, sample_weights=None, clip: float = 0.0
) -> nn.Module:
    """The loop a user would write."""
    model = recipe_.build(seed)
    optimizer = make_optimizer(model.parameters())
    x, y = recipe_.train
    for epoch in range(1, recipe_.epochs + 1):
        for index in batches_of(len(y), recipe_.batch_size, seed, epoch):
            optimizer.zero_grad()
            losses = nn.functional.cross_entropy(model(x[index]), y[index], reduction="none")
            loss = (
                losses.mean() if sample_weights is None else (losses * sample_weights[index]).mean()
            )
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return model


@pytest.mark.parametrize(
    ("settings", "make"),
    [
        (
            {"optimizer": "sgd", "momentum": 0.9},
            lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        ),
        ({"optimizer": "adam"}, lambda p: torch.optim.Adam(p, lr=0.05)),
        (
            {"optimizer": "adamw", "weight_decay": 0.1},
            lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
        ),
        (
            {"optimizer": lambda p: torch.optim.Adagrad(p, lr=0.05)},
            lambda p: torch.optim.Adagrad(p, lr=0.05),
        ),
    ],
)
def test_equals_the_literal_loop(settings, make) -> None:
    assert torch.equal(
        weights(fit(recipe(**settings), seed=5).model), weights(literal(recipe(), 5, make))
    )


def test_sample_weights_equal_the_literal_loop() -> None:
    given = torch.linspace(0, 3, 48)
    plain = literal(recipe(), 1, lambda p: torch.optim.Adam(p, lr=0.05), given)
    assert torch.equal(weights(fit(recipe(sample_weights=given), seed=1).model), weights(plain))


def test_weight_decay_is_adamw() -> None:
    treated = fit(recipe(), [WeightDecay(decay=0.3)], seed=2)
    plain = literal(recipe(), 2, lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.3))
    assert torch.allclose(weights(treated.model), weights(plain), rtol=1e-6, atol=1e-7)


def test_coupled_weight_decay_is_adams_own() -> None:
    treated = fit(recipe(), [WeightDecay(decay=0.3, decoupled=False)], seed=2)
    plain = literal(recipe(), 2, lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.3))
    assert torch.allclose(weights(treated.model), weights(plain), rtol=1e-6, atol=1e-7)


def test_gradient_clipping_equals_the_literal_loop() -> None:
    treated = fit(recipe(optimizer="sgd"), [GradientClipping(max_norm=0.1)], seed=2)
    plain = literal(recipe(), 2, lambda p: torch.optim.SGD(p, lr=0.05), clip=0.1)
    assert torch.equal(weights(treated.model), weights(plain))


def test_dropout_equals_a_model_with_dropout() -> None:
    inside = recipe(model=lambda: MLP(widths=(4, 8, 3), activation="relu", dropout=0.4))
    treated = fit(recipe(), [Dropout(rate=0.4)], seed=2)
    assert torch.equal(weights(treated.model), weights(fit(inside, seed=2).model))
    assert not any(module._forward_pre_hooks for module in treated.model.modules())


def test_early_stopping_returns_the_best_epoch_and_never_sees_test_data() -> None:
    noisy = recipe(epochs=60, learning_rate=0.3)
    stopped = fit(noisy, [EarlyStopping(patience=3, share=0.25)], seed=0)
    assert stopped.stopped.startswith("early-stopping after epoch")
    losses = [row["validation_loss"] for row in stopped.history]
    assert stopped.epochs == losses.index(min(losses)) + 1 + 3
    assert len(stopped.recipe.splits()[0]) == 36
    shorter = fit(noisy.replace(epochs=losses.index(min(losses)) + 1, validation=0.25), seed=0)
    assert torch.equal(weights(shorter.model), weights(stopped.model))
    other = fit(noisy.replace(test=None), [EarlyStopping(patience=3, share=0.25)], seed=0)
    assert torch.equal(weights(other.model), weights(stopped.model))


def test_resumes_exactly_with_dropout_momentum_and_a_schedule(tmp_path) -> None:
    settings = {
        "model": lambda: MLP(widths=(4, 8, 3), activation="relu", norm="batch", dropout=0.3),
        "optimizer": "sgd",
        "momentum": 0.9,
        "schedule": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
    }
    whole = fit(recipe(epochs=6, **settings), seed=4)
    path = tmp_path / "run.pt"
    for epochs in (1, 3, 6):
        resumed = fit(recipe(epochs=epochs, **settings), seed=4, checkpoint=path)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])
    assert whole.history == resumed.history
    assert all(torch.equal(whole.initial[name], resumed.initial[name]) for name in whole.initial)


def test_a_checkpoint_of_another_run_is_refused(tmp_path) -> None:
    fit(recipe(epochs=1), seed=0, checkpoint=tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match="another run"):
        fit(recipe(epochs=2), seed=1, checkpoint=tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match="another run"):
        fit(recipe(epochs=2), [WeightDecay()], seed=0, checkpoint=tmp_path / "run.pt")


def test_divergence_stops_and_keeps_finite_weights() -> None:
    lost = fit(
        recipe(
            optimizer="sgd",
            learning_rate=1e30,
            loss="mse",
            train=regression(),
            test=None,
            model=line,
        )
    )
    assert lost.diverged
    assert "the weights are those from the end of epoch 0" in lost.stopped
    assert torch.isfinite(weights(lost.model)).all()
    assert torch.equal(weights(lost.model), weights(line_of_seed(0)))


def test_divergence_in_the_last_step_of_an_epoch_stops_as_well() -> None:
    """The loss of the step is finite; only evaluation meets the weights that it leaves."""
    lost = fit(
        recipe(
            optimizer="sgd",
            learning_rate=1e38,
            batch_size=48,
            loss="mse",
            train=tuple(10 * part for part in regression()),
            test=None,
            model=line,
        )
    )
    assert "weights or outputs became NaN or infinite in epoch 1" in lost.stopped
    assert torch.equal(weights(lost.model), weights(line_of_seed(0)))


def regression() -> tuple[torch.Tensor, torch.Tensor]:
    x = inputs(torch.float32)
    return x, x.sum(1, keepdim=True)


def line() -> nn.Module:
    return nn.Linear(4, 1)


def line_of_seed(seed: int) -> nn.Module:
    return recipe(model=line, loss="mse", train=regression(), test=None).build(seed)


def test_control_c_keeps_the_last_whole_epoch(tmp_path) -> None:
    class Impatient(Remedy):
        """Presses Ctrl-C.

        Formula: $1$
        """

        strength = "when"
        when: int = 8

        def after_step(self, state: TrainingState) -> None:
            if state.step == self.when:
                raise KeyboardInterrupt

    from mindgap.core.spec import REGISTRY

    del REGISTRY["remedy"]["impatient"]
    cut = fit(recipe(), [Impatient()], seed=0, checkpoint=tmp_path / "run.pt")
    assert cut.stopped == "interrupted in epoch 2"
    assert cut.epochs == 1
    assert torch.equal(weights(cut.model), weights(fit(recipe(epochs=1), seed=0).model))


def test_a_probe_changes_nothing_and_reads_on_time() -> None:
    model = lambda: MLP(widths=(4, 8, 3), activation="relu", norm="batch", dropout=0.3)  # noqa: E731
    probe = Probe(measure=ParameterNorm(), every=3)
    plain, probed = (
        fit(recipe(model=model), seed=0),
        fit(recipe(model=model), seed=0, probes=[probe]),
    )
    assert torch.equal(weights(plain.model), weights(probed.model))
    assert [step for step, _ in probe.readings] == list(range(3, 21, 3))
    assert float(probe.readings[-1][1]) > 0


def test_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    fit(recipe(), [Dropout(rate=0.5)], seed=3)
    assert torch.equal(before, torch.get_rng_state())


def test_bad_sample_weights_and_shares_are_told() -> None:
    with pytest.raises(InputError, match="sample_weights must be 48"):
        fit(recipe(sample_weights=torch.ones(3)))
    with pytest.raises(InputError, match="sample_weights must be 48"):
        fit(recipe(sample_weights=-torch.ones(48)))
    with pytest.raises(InputError, match="validation must"):
        fit(recipe(validation=0.001))


def test_a_last_batch_of_one_with_batch_normalization_is_told() -> None:
    x = inputs(torch.float32)[:21]
    model = lambda: MLP(widths=(4, 8, 3), activation="relu", norm="batch")  # noqa: E731
    with pytest.raises(InputError, match="Change the batch size"):
        fit(recipe(model=model, train=(x, labels(x))))


class Chain(nn.Module):
    """A hidden layer whose activation is written in ``forward``, so no module shows it."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.hidden, self.head, self.scale = nn.Linear(4, 8), nn.Linear(8, 3), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.hidden(x)) * self.scale)


def tanh_chain() -> nn.Module:
    model = Chain()
    model.forward = lambda x: model.head(torch.tanh(model.hidden(x)))
    return model


def smooth(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output, target, label_smoothing=0.1)


def layers(activation: nn.Module, rate: float = 0.1, inner: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(4, inner), activation, nn.Dropout(rate), nn.Linear(inner, 3))


def other_rows(which: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = inputs(torch.float32)
    y = labels(x)
    if which == "values":
        x = x.clone()
        x[-1, -1] += 1e-3
    if which == "labels":
        y = y.roll(1)
    order = torch.arange(len(x)).flip(0) if which == "order" else torch.arange(len(x))
    return x[order], y[order]


def steps(gamma: float):
    return lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma)


def decay(factor: float):
    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: factor**e)


TOLD = {
    "data values": ({}, {"train": other_rows("values")}, "training data"),
    "labels": ({}, {"train": other_rows("labels")}, "training data"),
    "order of the data": ({}, {"train": other_rows("order")}, "training data"),
    "test data": ({}, {"test": other_rows("labels")}, "test data"),
    "activation": (
        {"model": lambda: layers(nn.ReLU())},
        {"model": lambda: layers(nn.Tanh())},
        "model structure",
    ),
    "slope": (
        {"model": lambda: layers(nn.LeakyReLU(0.1))},
        {"model": lambda: layers(nn.LeakyReLU(0.2))},
        "model structure",
    ),
    "dropout rate": (
        {"model": lambda: layers(nn.ReLU())},
        {"model": lambda: layers(nn.ReLU(), 0.2)},
        "model structure",
    ),
    "width": (
        {"model": lambda: layers(nn.ReLU())},
        {"model": lambda: layers(nn.ReLU(), inner=9)},
        "initial weights",
    ),
    "frozen layer": (
        {"model": Chain},
        {"model": lambda: Chain().apply(freeze)},
        "model structure",
    ),
    "attribute": ({"model": Chain}, {"model": lambda: Chain(2.0)}, "model structure"),
    "forward method": ({"model": Chain}, {"model": tanh_chain}, "model's answers before training"),
    "initial weights": (
        {"model": Chain},
        {"model": lambda: Chain().apply(larger)},
        "initial weights",
    ),
    "sample weights": (
        {"sample_weights": torch.ones(48)},
        {"sample_weights": torch.linspace(0, 2, 48)},
        "sample weights",
    ),
    "no sample weights": ({"sample_weights": torch.ones(48)}, {}, "sample weights"),
    "loss of a name": ({"loss": nn.functional.cross_entropy}, {"loss": smooth}, "loss"),
    "setting of a loss": (
        {"loss": nn.CrossEntropyLoss()},
        {"loss": nn.CrossEntropyLoss(label_smoothing=0.2)},
        "loss",
    ),
    "optimizer": ({"optimizer": "sgd"}, {"optimizer": "adam"}, "optimizer"),
    "setting of an optimizer": (
        {"optimizer": lambda p: torch.optim.Adam(p, betas=(0.9, 0.99))},
        {"optimizer": lambda p: torch.optim.Adam(p, betas=(0.8, 0.99))},
        "optimizer",
    ),
    "schedule": ({"schedule": steps(0.5)}, {"schedule": steps(0.1)}, "schedule"),
    "function of the schedule": ({"schedule": decay(0.9)}, {"schedule": decay(0.5)}, "schedule"),
    "batch size": ({}, {"batch_size": 7}, r"batch_size \(10 there, 7 here\)"),
    "step size": ({}, {"learning_rate": 0.5}, r"learning_rate \(0.05 there, 0.5 here\)"),
}


def freeze(module: nn.Module) -> None:
    if isinstance(module, nn.Linear) and module.out_features == 8:
        module.requires_grad_(False)


def larger(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        with torch.no_grad():
            module.weight.mul_(2)


@pytest.mark.parametrize("change", TOLD)
def test_a_checkpoint_of_another_run_is_refused_with_what_differs(change: str, tmp_path) -> None:
    first, second, told = TOLD[change]
    path = tmp_path / "run.pt"
    fit(recipe(epochs=1, **first), checkpoint=path)
    again = fit(recipe(epochs=2, **first), checkpoint=path)  # the same run is accepted
    assert torch.equal(weights(again.model), weights(fit(recipe(epochs=2, **first)).model))
    with pytest.raises(CheckpointError, match=f"another run, which differs in: .*{told}"):
        fit(recipe(epochs=3, **{**first, **second} if second else {}), checkpoint=path)


def test_a_checkpoint_does_not_depend_on_the_process(tmp_path) -> None:
    """No address in memory and no order of a set is part of the identity."""
    script = (
        "import sys, torch; sys.path[:0] = ['tests', 'tests/training']\n"
        "from cases import recipe; from mindgap import fit; from torch import nn\n"
        "from mindgap.remedies import Dropout\n"
        "from test_fit import layers, decay\n"
        "made = recipe(epochs=int(sys.argv[2]), model=lambda: layers(nn.ReLU()),\n"
        "    schedule=decay(0.9), optimizer=lambda p: torch.optim.SGD(p, lr=0.1))\n"
        "print(fit(made, [Dropout(rate=0.2)], checkpoint=sys.argv[1]).epochs)\n"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "run.pt"), epochs],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": epochs},
        ).stdout.strip()
        for epochs in ("1", "2")
    ]
    assert found == ["1", "2"]
