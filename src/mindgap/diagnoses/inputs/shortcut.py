"""An input that gives the target away in the training data and says nothing in the test data."""

import dataclasses

import torch

from mindgap.core import Advice, Bar, Chart, Diagnosis, Evidence, Finding, Recipe, Results, Subject
from mindgap.ops.evidence.association import Lost, lost_relation
from mindgap.ops.evidence.inputs import (
    channel_name,
    channels,
    errors_with,
    input_map,
    input_name,
    is_single,
    shuffled_error,
    shuffling,
    unchanneled,
)
from mindgap.ops.evidence.passes import errors_of
from mindgap.ops.evidence.rows import Rows, rows
from mindgap.ops.evidence.spoiled import marked
from mindgap.ops.evidence.two_sample import kolmogorov
from mindgap.training.fit import fit

RELIES = 0.25  # of the way from training to test error that shuffling the inputs must move

# Pixels of permuted or otherwise foreign images lose what they said of the target as well. A
# shortcut moves few pixels, so more than MANY whose distributions differ by MOVED (Kolmogorov and
# Smirnov) are an input shift: half of them and more if pixels are permuted.
MOVED, MANY = 0.2, 1 / 3


class Shortcut(Diagnosis):
    r"""Look for inputs that give the target away in the training data only.

    Formula: $\eta^2_{train}(x_j) - \eta^2_{test}(x_j) > 0.15 \;\text{and}\; \frac{e_{shuffled} -
    e_{train}}{e_{test} - e_{train}} > 0.25$

    Reading: The input explains the target in the training data and no longer in the test data, and
    the model relies on it: with this input shuffled among training samples, the training error
    moves toward the test error. The second half is an experiment, not a correlation.

    Assumes: The shortcut shows in single inputs, or in the mean of a channel. Other inputs keep what
    they say about the target; if all lose it, the test targets are to blame.

    >>> random = torch.Generator().manual_seed(0)
    >>> y = torch.arange(900) % 2
    >>> x = torch.randn(900, 2, generator=random)
    >>> x[:600, 1] = 2.0 * y[:600]
    >>> net = torch.nn.Linear(2, 2)
    >>> with torch.no_grad():
    ...     _ = (
    ...         net.weight.copy_(torch.tensor([[0.0, -1], [0, 1]])),
    ...         net.bias.copy_(torch.tensor([1.0, -1])),
    ...     )
    >>> data = (x[:600], y[:600]), (x[600:], y[600:])
    >>> print(Shortcut()(Subject(net, "cross_entropy", *data)).sentence)
    The model relies on input 1, which gives the target away in the training data only.
    """

    stage = "split"
    symptom = "shortcut"
    needs = frozenset({"test"})
    cites = ("geirhos2020shortcut",)
    explains = frozenset(
        {
            "ignored-class",
            "input-shift",
            "lagged-test-labels",
            "late-over-fitting",
            "near-copies",
            "noise-sensitivity",
            "over-confidence",
            "over-fitting",
            "permuted-test-classes",
            "rare-class",
            "shuffled-test-labels",
            "under-confidence",
            "wrong-test-labels",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Find inputs that lose their relation to the target, and shuffle them."""
        train = rows(subject, "train")
        found = lost_relation(subject) if is_single(train) else None
        if found is None or _all_moved(train, rows(subject, "test")):
            return None
        before, after, goal = _shuffled(subject, train, found)
        relies = (after - before) / (goal - before) if goal > before else 0.0
        if relies < RELIES:
            return None
        return self.finding(
            _headline(train, found),
            "wrong",
            p_value=found.p_value,
            evidence=(
                Evidence(name="explained in the training data", value=found.own, percent=True),
                Evidence(name="explained in the test data", value=found.other, percent=True),
                Evidence(name="training error", value=before),
                Evidence(name="training error with the inputs shuffled", value=after),
                Evidence(name="test error", value=goal),
            ),
            sentences=(
                f"It explains {100 * found.own:.0f} % of the target in the training data and "
                f"{100 * max(found.other, 0):.0f} % in the test data.",
                f"Shuffled among training samples, it moves the training error from {100 * before:.1f} % "
                f"to {100 * after:.1f} %; the test error is {100 * goal:.1f} %.",
            ),
            advice=(_advice(train, found),),
            charts=_charts(train, found),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Mark training samples by their target, and test samples at random.

        The mark is a bright patch of an image, or the last column of a sequence or a table. A strength
        below one marks that share of the training samples.
        """
        random = torch.Generator().manual_seed(seed)
        (inputs, targets), (others, truths) = recipe.train, recipe.test
        mixed = truths[torch.randperm(len(truths), generator=random)]
        some = torch.rand(len(inputs), generator=random) < strength
        train = torch.where(
            some.view(-1, *[1] * (inputs.ndim - 1)), marked(inputs, targets, inputs), inputs
        )
        return fit(
            recipe.replace(train=(train, targets), test=(marked(others, mixed, inputs), truths)),
            seed=seed,
        ).subject()


def _all_moved(train: Rows, test: Rows) -> bool:
    """Tell whether many pixels are spread differently: then the images are others."""
    if train.kind != "image" or train.values.shape[1] != test.values.shape[1]:
        return False
    live = train.values.std(0) > 0
    distances = kolmogorov(train.values[:, live].double(), test.values[:, live].double())[0]
    return bool(live.any()) and float((distances > MOVED).double().mean()) > MANY


def _shuffled(subject: Subject, train: Rows, found: Lost) -> tuple[float, float, float]:
    """Return training error, training error with the suspects shuffled, and test error."""
    goal = errors_of(subject, subject.outputs("test"), subject.targets("test"))
    if found.inputs is not None:
        return *shuffled_error(subject, found.inputs), float(goal.mean())
    chosen, order = shuffling(train)
    grouped = channels(dataclasses.replace(train, values=train.values[chosen])).clone()
    means = grouped[:, found.worst].mean(1, keepdim=True)
    grouped[:, found.worst] += means[order] - means
    both = errors_with(subject, chosen, unchanneled(grouped, train))
    return *both, float(goal.mean())


def _named(train: Rows, found: Lost) -> str:
    if found.inputs is None:
        return f"the mean of {channel_name(train, found.worst)}"
    name, more = input_name(train, found.worst), len(found.inputs) - 1
    if train.kind == "image":
        return f"{more + 1} pixels around {name.removeprefix('the pixel at ')}" if more else name
    return name + (f" and {more} more" if more else "")


def _headline(train: Rows, found: Lost) -> str:
    name = _named(train, found)
    several = train.kind == "image" and found.inputs is not None and len(found.inputs) > 1
    verb = "give" if several or " more" in name else "gives"
    return f"The model relies on {name}, which {verb} the target away in the training data only."


def _advice(train: Rows, found: Lost) -> Advice:
    text = "Remove the inputs, or break their tie to the target, and retrain:"
    if found.inputs is None:
        code = (
            "train_inputs = train_inputs - train_inputs.flatten(2).mean(2)[..., None, None]"
            if train.kind == "image"
            else "train_inputs = train_inputs - train_inputs.mean(1, keepdim=True)"
        )
        return Advice(text=text, code=code)
    places = found.inputs.tolist()
    return Advice(
        text=text,
        code=f"suspects = {places}\n"
        "order = torch.randperm(len(train_inputs))\n"
        "flat = train_inputs.flatten(1)\n"
        "flat[:, suspects] = flat[order][:, suspects]\n"
        "train_inputs = flat.view_as(train_inputs)",
    )


def _charts(train: Rows, found: Lost) -> tuple[Chart, ...]:
    lost = found.losses.clamp(0, 1)
    label = "share of the target explained, training minus test"
    if train.kind == "table":
        bars = {f"input {k}": float(value) for k, value in enumerate(lost)}
        return (Bar.of(bars, most=24, title="What inputs lose", y_label=label, percent=True),)
    title = "Where inputs give the target away in the training data only"
    return (input_map(train, lost, title=title, z_label=label),)
