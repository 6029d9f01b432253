"""A penalty or noise so strong that the model cannot learn its training data."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from mindgap.core import (
    Advice,
    Bar,
    Diagnosis,
    Evidence,
    Finding,
    InputError,
    Recipe,
    Results,
    Series,
    Subject,
    call,
    copied,
    same_environment,
    seeded,
)
from mindgap.diagnoses.training.under_trained import (
    FEWEST,
    LONGER,
    closed,
    fit_evidence,
    fit_sentences,
    smaller_fall,
    still_learning,
)
from mindgap.ops.evidence.fit import Fit
from mindgap.ops.evidence.permutation import sign_flip_tail
from mindgap.training.fit import fit
from mindgap.training.rival import attainable
from mindgap.training.short_run import FREE, Brake, ShortRun, Start, short_run

# Without what held them back, 200 or 1,000 steps closed 83 to 196 % of the difference to what is
# attainable. Nets of two hidden units close half of it, if dropout took one of the two.
CLOSED = 0.7
HELD = 1 / 3  # of the free run's fall: what is held back falls by less
# Weights of 110 healthy nets grew, of 60 that were stopped early, small, or trained at a wrong rate
# kept 86 % of their initial norm and more.
SHRUNK = 0.5
LIGHT = 0.2  # a usual rate of dropout
SAME = 1e-4  # share of the outputs by which passes without noise differ at most
BATCH = 64  # samples of a pass that looks for noise
DROPOUT = nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d | nn.AlphaDropout

Held = tuple[Brake, ShortRun]


class OverRegularized(Diagnosis):
    r"""Look for dropout, noise or weight decay so strong that the model cannot learn.

    Two copies are trained for 200 steps: one without noise and decay, one with those of the recipe.

    Formula: $1 - \frac{L_\text{held}}{L} < \frac{1}{3} \left(1 - \frac{L_\text{free}}{L}\right)$
    with the losses $L$ now, $L_\text{held}$ after steps with noise and decay, $L_\text{free}$ without

    Reading: The model fits its training data worse than a simple predictor does on unseen samples.
    It can do better as it is, but not under what is meant to prevent over-fitting. Weaken that first.

    Assumes: The model can be trained by gradients. Noise is what makes two passes in training mode
    differ. Weight decay is known from the recipe; without one, weights that shrank tell of it.

    >>> from mindgap.studies.diagnoses.healthy import healthy_recipe
    >>> finding = OverRegularized()(OverRegularized.plant(healthy_recipe("table")))
    >>> finding.severity, finding.sentence.split(":")[0]
    ('wrong', 'Weight decay of 0.3 holds the model back')
    """

    stage = "fit"
    explains = frozenset(
        {
            "constant-predictor",
            "dead-units",
            "gradient-masking",
            "idle-layer",
            "ignored-class",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "oscillating-loss",
            "over-confidence",
            "over-fitting",
            "rank-collapse",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
            "vanishing-gradients",
        }
    )
    needs = frozenset({"test"})
    cites = ("srivastava2014dropout", "krogh1991simple")

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare short runs with and without what may hold the model back."""
        found = attainable(subject)
        if not found.under:
            return None
        noise, decay = _noise(subject), _decay(subject)
        kept = 1.0 if decay.decay else _kept_norm(subject)
        if not (noise or decay.decay or kept < SHRUNK):
            return None
        free = _free_run(subject, found)
        if free is None:
            return None
        brakes = [Brake(noise=True)] * bool(noise) + [decay] * bool(decay.decay)
        held = _held_runs(subject, free, brakes)
        if not held and len(brakes) == 2:  # neither does alone
            held = _held_runs(subject, free, [dataclasses.replace(decay, noise=True)])
        if held:
            return self._held(subject, found, free, held, noise)
        return self._shrunk(subject, found, free, kept) if kept < SHRUNK else None

    def _held(
        self, subject: Subject, found: Fit, free: "_Free", held: list[Held], noise: str
    ) -> Finding:
        names = " and ".join(_named(brake, noise) for brake, _ in held)
        plural = " and " in names
        slowest = min((run for _, run in held), key=_larger_fall)
        return self.finding(
            f"{names[0].upper()}{names[1:]} {'hold' if plural else 'holds'} the model back: "
            f"{_compared(free, slowest, 'them' if plural else 'it')}.",
            p_value=max(
                found.p_value,
                free.run.p_value,
                *(sign_flip_tail(run.after - free.run.after) for _, run in held),
            ),
            evidence=(
                *fit_evidence(found, free.run),
                *(
                    Evidence(
                        name=f"fall of the training loss with {_named(brake, noise)}",
                        value=run.fall,
                        percent=True,
                    )
                    for brake, run in held
                ),
            ),
            sentences=fit_sentences(found, subject),
            advice=tuple(advice for brake, _ in held for advice in _advice(subject, brake)),
            charts=(_bars(free, {_named(brake, noise): run for brake, run in held}),),
        )

    def _shrunk(self, subject: Subject, found: Fit, free: "_Free", kept: float) -> Finding:
        return self.finding(
            f"Weights shrank to {100 * kept:.2g} % of their initial size: a penalty on the weights "
            "holds the model back.",
            p_value=max(found.p_value, free.run.p_value),
            evidence=(
                *fit_evidence(found, free.run),
                Evidence(
                    name="norm of the weights, as a share of the initial one",
                    value=kept,
                    percent=True,
                ),
            ),
            sentences=(
                f"{free.run.steps} steps {free.words}without a penalty lower the training loss by "
                f"{100 * free.run.fall:.0f} %.",
                *fit_sentences(found, subject),
            ),
            advice=(
                Advice(
                    text="Retrain from new weights with a hundredth of the weight decay or penalty.",
                    code='optimizer.param_groups[0]["weight_decay"] /= 100',
                ),
            ),
            charts=(_bars(free, {}),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Train with Adam's weight decay of 0.3, which is far too much, or of half of it."""
        much = recipe.replace(optimizer="adam", weight_decay=0.3 * strength)
        return fit(much, seed=seed).subject()


@dataclasses.dataclass(frozen=True)
class _Free:
    """A run without noise and decay that does well, and how it was started."""

    run: ShortRun
    start: Start
    times: int

    @property
    def words(self) -> str:
        """Where it started, with a space behind, if that is worth a word."""
        return "from the initial weights " if self.start == "initial" else ""


def _free_run(subject: Subject, found: Fit) -> _Free | None:
    """Return the first run that closes the difference; where all weights are zero, none can."""
    starts: tuple[Start, ...] = ("present", "initial") if subject.initial else ("present",)
    for start in starts:
        for times in (1, LONGER):
            try:
                run = short_run(subject, start, times)
            except InputError:  # without gradients, or too large
                return None
            if len(run.places) < FEWEST:
                return None
            short = run.epochs < 1  # as expensive models get it
            if still_learning(found, run) if short else closed(found, run) > CLOSED:
                return _Free(run, start, times)
            if short:
                break
    return None


def _held_runs(subject: Subject, free: _Free, brakes: Sequence[Brake]) -> list[Held]:
    """Return the runs under brakes that fall by far less than the free one."""
    runs = [(brake, short_run(subject, free.start, free.times, brake)) for brake in brakes]
    most = HELD * smaller_fall(free.run)
    return [(brake, run) for brake, run in runs if _larger_fall(run) < most]


def _larger_fall(run: ShortRun) -> float:
    return max(run.fall, run.test_fall)


def _noise(subject: Subject) -> str:
    """Name what makes two passes in training mode differ; empty if they do not."""
    model = copied(subject.model).train()
    if not _differs(model, subject):
        return ""
    for module in model.modules():
        if isinstance(module, DROPOUT):
            module.p = 0.0
        elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0
    return "the noise of training mode" if _differs(model, subject) else "dropout"


@torch.no_grad()
def _differs(model: nn.Module, subject: Subject) -> bool:
    inputs = subject.train.take(torch.arange(min(BATCH, len(subject.train)))).inputs
    like = next(model.parameters(), torch.empty(0))
    with seeded(0):
        one, other = (call(model, inputs, like) for _ in range(2))
    return float((one - other).abs().max()) > SAME * float(one.abs().max())


@same_environment()
def _decay(subject: Subject) -> Brake:
    """Return the weight decay that the recipe's optimizer has, if there are both."""
    weights = [w for w in copied(subject.model).parameters() if w.requires_grad]
    if subject.recipe is None or not weights:
        return FREE
    groups = subject.recipe.optimize(weights).param_groups
    group = max(groups, key=lambda group: float(group.get("weight_decay", 0.0)))
    return Brake(
        decay=float(group.get("weight_decay", 0.0)),
        decoupled=bool(group.get("decoupled_weight_decay", False)),
    )


def _kept_norm(subject: Subject) -> float:
    """Return the norm of all weight matrices, as a share of their norm before training."""
    initial = subject.initial
    if initial is None:
        return 1.0
    found = {name: w.detach() for name, w in subject.model.named_parameters() if w.ndim > 1}
    now, then = (
        sum(float(part[name].double().square().sum()) for name in found)
        for part in (found, initial)
    )
    return math.sqrt(now / then) if then > 0 else 1.0


def _named(brake: Brake, noise: str) -> str:
    decay = f"weight decay of {brake.decay:g}"
    if not brake.noise:
        return decay
    return f"{noise} and {decay}" if brake.decay else noise


def _compared(free: _Free, held: ShortRun, it: str) -> str:
    if free.start == "initial":
        return (
            f"{free.run.steps} steps from the initial weights reach a loss of "
            f"{float(free.run.after.mean()):.2g} without {it}, of {float(held.after.mean()):.2g} "
            f"with {it}"
        )
    return (
        f"{free.run.steps} steps without {it} lower the training loss by "
        f"{100 * free.run.fall:.0f} %, steps with {it} by {100 * max(held.fall, 0.0):.0f} %"
    )


def _advice(subject: Subject, brake: Brake) -> tuple[Advice, ...]:
    weaker = f"{brake.decay / 100:.1g}"
    decay = Advice(
        text=f"Retrain from new weights with a weight decay of {weaker} instead of {brake.decay:g}.",
        code=f"recipe = recipe.replace(weight_decay={weaker})",
    )
    return (*((_weaker_noise(subject),) if brake.noise else ()), *((decay,) if brake.decay else ()))


def _weaker_noise(subject: Subject) -> Advice:
    rates = {
        name: module.p
        for name, module in subject.model.named_modules()
        if isinstance(module, DROPOUT) and module.p > LIGHT
    }
    if not rates:
        return Advice(text="Weaken the noise that the model adds in training mode, and retrain.")
    named = " and ".join(f"{rate:g} in '{name}'" for name, rate in rates.items())
    return Advice(
        text=f"Retrain with dropout of {LIGHT} instead of {named}.",
        code="\n".join(f'model.get_submodule("{name}").p = {LIGHT}' for name in rates),
    )


def _bars(free: _Free, held: Mapping[str, ShortRun]) -> Bar:
    """Draw the losses now and after each run."""
    names = (
        ["training samples", "test samples"] if len(free.run.test_after) else ["training samples"]
    )
    sides = {
        "now": (free.run.before, free.run.test_before),
        f"after {free.run.steps} steps without": (free.run.after, free.run.test_after),
        **{f"with {name}": (run.after, run.test_after) for name, run in held.items()},
    }
    return Bar(
        title="Loss before and after a little more training",
        y_label="loss",
        series=[
            Series(name=name, x=names, y=[float(part.mean()) for part in parts[: len(names)]])
            for name, parts in sides.items()
        ],
    )
