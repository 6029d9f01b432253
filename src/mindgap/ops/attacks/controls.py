"""Attacks that see no gradient of the model: random noise, and transfer from a surrogate."""

import torch
from torch import Tensor, nn

from mindgap.core import as_loss, generator, implements, integer, seeded
from mindgap.ops.attacks.descent import BATCH, Attacked, pgd
from mindgap.ops.attacks.threat import Threat
from mindgap.ops.attacks.victim import Victim

WIDTH, PASSES, RATE = 128, 30, 3e-3  # of the surrogate: hidden units, epochs, learning rate
LEARNED = 2000  # inputs that it learns from, at most


@implements("S4", cites=("goodfellow2015explaining",))
def random_noise(
    victim: Victim,
    inputs: Tensor,
    targets: Tensor,
    threat: Threat,
    *,
    draws: int = 10,
    seed: int = 0,
    batch_size: int = BATCH,
) -> Attacked:
    r"""Attack with random points of the ball: the control that every other attack must beat.

    Formula: $x' = \arg\max_{k \le K} \ell(f(x + \delta_k), y), \qquad \delta_k \sim U(B_p(\epsilon))$

    Reading: If noise breaks as many predictions as the gradient does, the gradient shows nothing.

    Assumes: Inputs that are real numbers.

    Args:
        victim: The model under attack.
        inputs: One sample per row.
        targets: The true targets.
        threat: What the attacker may do.
        draws: Number of points per sample.
        seed: Seed of the points.
        batch_size: Samples that are attacked at once.

    >>> x, y = torch.tensor([[0.1, 0.0]]), torch.tensor([0])
    >>> bool(random_noise(Victim.of(nn.Identity()), x, y, Threat(epsilon=1.0)).broken)
    True
    """
    integer("draws", draws)
    random, inputs = generator(seed), inputs.detach().to(victim.like)
    targets, ball = targets.to(inputs.device), threat.around(inputs)
    best = judged(victim, inputs, targets, batch_size)
    for _ in range(draws):
        best = better(best, judged(victim, ball.random(random), targets, batch_size))
    return best


@implements("S4", cites=("papernot2017practical",))
def transfer(
    victim: Victim,
    surrogate: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    threat: Threat,
    *,
    steps: int = 20,
    seed: int = 0,
    batch_size: int = BATCH,
) -> Attacked:
    r"""Attack a surrogate by its gradient, and show what breaks it to the model.

    Formula: $x' = \arg\max_{x + \delta \in B_p(\epsilon)} \ell(g(x + \delta), y), \quad \text{judged
    by } f(x')$

    Reading: It needs no gradient of the model, so it must break fewer predictions than an attack
    that has it. If it breaks more, the model hides its gradient.

    Assumes: A surrogate that resembles the model.

    Args:
        victim: The model under attack.
        surrogate: Another model of the same inputs and outputs, such as ``train_surrogate`` gives.
        inputs: One sample per row.
        targets: The true targets.
        threat: What the attacker may do.
        steps: Steps of PGD on the surrogate, which are all made.
        seed: Seed of its starts.
        batch_size: Samples that are attacked at once.

    >>> x, y = torch.tensor([[0.1, 0.0]]), torch.tensor([0])
    >>> bool(transfer(Victim.of(nn.Identity()), nn.Identity(), x, y, Threat(epsilon=1.0)).broken)
    True
    """
    stand_in = Victim.of(surrogate, victim.loss, victim.task, tolerance=victim.tolerance)
    # The last point lies deep inside the wrong class, so that it more likely does so for others.
    moved = pgd(
        stand_in, inputs, targets, threat, steps=steps, keep="last", seed=seed,
        batch_size=batch_size,
    ).points  # fmt: skip
    targets = targets.to(victim.like.device)
    return better(
        judged(victim, inputs, targets, batch_size), judged(victim, moved, targets, batch_size)
    )


def train_surrogate(victim: Victim, inputs: Tensor, *, seed: int = 0) -> nn.Module:
    """Train a perceptron to answer as the model does, from its answers alone.

    Args:
        victim: The model to imitate.
        inputs: Inputs like those that it was trained on, without targets.
        seed: Seed of the weights and the batches.

    >>> model = nn.Linear(3, 2)
    >>> x = torch.randn(200, 3, generator=generator(0))
    >>> imitation = train_surrogate(Victim.of(model), x)
    >>> float((imitation(x).argmax(1) == model(x).argmax(1)).float().mean()) > 0.9
    True
    """
    with seeded(seed):
        inputs = inputs[torch.randperm(len(inputs))[:LEARNED]].detach().to(victim.like)
        answers = victim.answers(inputs, BATCH)
        outputs = answers[0].numel()
        spread = inputs.std(0, keepdim=True) + 0.1 * inputs.std() + 1e-6
        net = nn.Sequential(
            _Scaled(inputs.mean(0, keepdim=True), spread),
            nn.Linear(inputs[0].numel(), WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, outputs),
            nn.Unflatten(1, answers.shape[1:]) if answers.ndim > 1 else nn.Flatten(0),
        ).to(victim.like)
        _imitate(net, victim, inputs, answers)
    return net.eval()


class _Scaled(nn.Module):
    """Flat inputs of mean zero and similar size, whatever the data's units are."""

    mean: Tensor
    spread: Tensor

    def __init__(self, mean: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)

    def forward(self, inputs: Tensor) -> Tensor:
        return ((inputs - self.mean) / self.spread).flatten(1)


def _imitate(net: nn.Module, victim: Victim, inputs: Tensor, answers: Tensor) -> None:
    loss = {"classification": as_loss("cross_entropy"), "multilabel": as_loss("bce")}.get(
        victim.task, as_loss("mse")
    )
    wanted = answers.argmax(1) if victim.task == "classification" else answers
    wanted = (answers > 0).to(answers) if victim.task == "multilabel" else wanted
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    with torch.enable_grad():
        for _ in range(PASSES):
            for rows in torch.randperm(len(inputs)).split(64):
                optimizer.zero_grad()
                loss(net(inputs[rows]), wanted[rows]).mean().backward()
                optimizer.step()


def judged(victim: Victim, points: Tensor, targets: Tensor, batch_size: int = BATCH) -> Attacked:
    """Show points to the model, and tell which predictions are wrong there."""
    outputs = victim.answers(points, batch_size)
    scores = victim.loss(outputs, targets)
    silent = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    return Attacked(points, outputs, scores, victim.broken(outputs, targets), silent)


def better(one: Attacked, other: Attacked) -> Attacked:
    """Choose, sample by sample, what breaks the prediction, or else has the higher score."""
    higher = (one.broken == other.broken) & (other.scores > one.scores)
    takes = (other.broken & ~one.broken) | higher

    def chosen(name: str) -> Tensor:
        left, right = getattr(one, name), getattr(other, name)
        return torch.where(takes.view(-1, *[1] * (left.ndim - 1)), right, left)

    fields = {name: chosen(name) for name in ("points", "outputs", "scores", "broken")}
    return Attacked(**fields, silent=one.silent | other.silent)
