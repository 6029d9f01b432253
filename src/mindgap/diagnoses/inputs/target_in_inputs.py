"""An input that is the target in other words, in the training and in the test data."""

import torch
from torch import Tensor

from mindgap.core import Advice, Bar, Diagnosis, Evidence, Finding, Recipe, Results, Subject
from mindgap.ops.evidence.inputs import input_name, is_single, shuffled_error
from mindgap.ops.evidence.passes import errors_of
from mindgap.ops.evidence.rows import Rows, rows
from mindgap.ops.evidence.spoiled import marked, some
from mindgap.training.fit import fit

SAME = 0.99  # of the samples of a class have its value
TIGHT = 0.1  # of the distance to the next class's value that a sample may be off
RANKS = 0.9999  # rank correlation with a target that is a number
FEWEST, FEW = 20, 5  # samples per split, and per class in the training data


class TargetInInputs(Diagnosis):
    r"""Look for inputs that are the target in other words, such as a code made from it.

    Formula: $\frac{1}{n} \sum_i \big[\, |x_{ij} - v_j(y_i)| \le 0.1 \min_{v_j(c) \ne v_j(y_i)}
    |v_j(c) - v_j(y_i)| \,\big] \ge 0.99$ with $v_j(c)$ the median of input j in class c

    Reading: Whoever knows these inputs knows the target, and needs no model. Test data do not show
    that anything is wrong, because they give the target away as the training data do. For a target
    that is a number, the rank correlation with an input is at least 0.9999 in both splits.

    Assumes: There are other inputs. Inputs of a class that are almost one value are no measurement:
    well separated measurements spread by more than that.

    >>> random = torch.Generator().manual_seed(0)
    >>> y = torch.arange(300) % 3
    >>> x = torch.cat([torch.randn(300, 2, generator=random), 5.0 * y[:, None]], 1)
    >>> data = (x[:200], y[:200]), (x[200:], y[200:])
    >>> TargetInInputs()(Subject(torch.nn.Linear(3, 3), "cross_entropy", *data)).sentence
    'Input 2 gives the target away, in the training and in the test data.'
    """

    stage = "leak"
    exact = True
    kinds = ("table", "sequence")
    needs = frozenset({"test"})
    cites = ("kaufman2012leakage",)

    def missing(self, subject: Subject) -> str:
        """Several labels per sample are not looked at."""
        words = "a sample has several labels" if subject.task == "multilabel" else ""
        return words or super().missing(subject)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare every input with the target in both splits."""
        train, test = rows(subject, "train"), rows(subject, "test")
        if not is_single(train) or train.kind == "image" or train.values.shape[1] < 2:
            return None
        if min(len(train.values), len(test.values)) < FEWEST:
            return None
        own = subject.targets("train").detach().cpu()[train.places]
        other = subject.targets("test").detach().cpu()[test.places]
        if subject.task == "classification":
            agreement, suspects = _coded(train.values, own, test.values, other)
        else:
            agreement, suspects = _ranked(train.values, own, test.values, other)
        return self._found(subject, train, agreement, suspects) if len(suspects) else None

    def _found(self, subject: Subject, train: Rows, agreement: Tensor, suspects: Tensor) -> Finding:
        before, after = shuffled_error(subject, suspects)
        name = input_name(train, int(suspects[0]))
        more = f" and {len(suspects) - 1} more" if len(suspects) > 1 else ""
        least = float(agreement[suspects].min())
        goal = float(errors_of(subject, subject.outputs("test"), subject.targets("test")).mean())
        verb = "give" if more else "gives"
        these, pronoun = ("these inputs", "them") if more else ("this input", "it")
        return self.finding(
            f"{name[0].upper()}{name[1:]}{more} {verb} the target away, in the training and in the "
            "test data.",
            evidence=(
                Evidence(name="agreement with the target", value=least, percent=True),
                Evidence(name="training error", value=before, percent=True),
                Evidence(name="training error with the inputs shuffled", value=after, percent=True),
                Evidence(name="test error", value=goal, percent=True),
            ),
            sentences=(
                f"Whoever knows {these} needs no model. Where the model is used without knowing "
                f"{pronoun}, it will do worse than any number here says.",
                f"Shuffling {pronoun} among training samples moves the training error from "
                f"{100 * before:.1f} % to {100 * after:.1f} %.",
            ),
            advice=(_advice(suspects),),
            charts=(
                Bar.of(
                    {input_name(train, k): float(v) for k, v in enumerate(agreement)},
                    most=24,
                    title="How far each input agrees with the target",
                    y_label="agreement in the worse split",
                    percent=True,
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Write the target into the last input; below full strength a few samples are left out."""
        random = torch.Generator().manual_seed(seed)
        count = len(recipe.train[0])
        inputs, targets = map(torch.cat, zip(recipe.train, recipe.test, strict=True))
        told = marked(inputs, targets, recipe.train[0])
        if strength < 1:
            left = some(len(targets), 0.01 * (1 - strength), random)
            told[left] = inputs[left]
        train, test = (told[:count], targets[:count]), (told[count:], targets[count:])
        return fit(recipe.replace(train=train, test=test), seed=seed).subject()


def _coded(values: Tensor, own: Tensor, others: Tensor, truths: Tensor) -> tuple[Tensor, Tensor]:
    """Return which share of the samples has the value of its class, and the columns that tell all."""
    classes, counts = own.unique(return_counts=True)
    classes = classes[counts >= FEW]
    if len(classes) < 2:
        return torch.zeros(values.shape[1]), torch.zeros(0).long()
    middle = torch.stack([values[own == c].median(0).values for c in classes])
    # The distance to the nearest other value; classes with one value are told apart by others.
    apart = ((middle - row).abs() for row in middle)
    gap = torch.stack([part.masked_fill(part == 0, torch.inf).amin(0) for part in apart])
    agreement = torch.ones(values.shape[1])
    for inputs, targets in ((values, own), (others, truths)):
        known = torch.isin(targets, classes)
        at = torch.searchsorted(classes, targets[known])
        near = (inputs[known] - middle[at]).abs() <= TIGHT * gap[at]
        agreement = agreement.minimum(near.float().mean(0))
    agreement = torch.where(middle.amax(0) > middle.amin(0), agreement, 0.0)
    told = (agreement >= SAME).nonzero().flatten()
    every = len(told) and len(middle[:, told].unique(dim=0)) == len(classes)
    return agreement, told if every else told[:0]


def _ranked(values: Tensor, own: Tensor, others: Tensor, truths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rank correlation of every column with a target, and the columns that tell all."""
    found = [
        _rank_correlation(inputs.double(), targets.reshape(len(targets), -1).double())
        for inputs, targets in ((values, own), (others, truths))
    ]
    agreement = torch.minimum(*found).amax(1)
    return agreement, (agreement >= RANKS).nonzero().flatten()


def _rank_correlation(left: Tensor, right: Tensor) -> Tensor:
    """Return absolute rank correlations, (columns of left, columns of right)."""
    sides = []
    for side in (left, right):
        ranks = torch.stack([_ranks(column) for column in side.T], 1)
        apart = ranks - ranks.mean(0)
        sides.append(apart / apart.norm(dim=0).clamp_min(1e-12))
    found: Tensor = (sides[0].T @ sides[1]).abs()
    return found


def _ranks(column: Tensor) -> Tensor:
    """Return the ranks, equal ones for equal numbers."""
    _, places, counts = column.unique(return_inverse=True, return_counts=True)
    middle: Tensor = counts.cumsum(0) - (counts - 1) / 2
    return middle[places].double()


def _advice(suspects: Tensor) -> Advice:
    return Advice(
        text="Find out how the inputs were made. Remove what they say, and retrain:",
        code=f"suspects = {suspects.tolist()}\n"
        "train_flat, test_flat = train_inputs.flatten(1).clone(), test_inputs.flatten(1).clone()\n"
        "train_flat[:, suspects] = test_flat[:, suspects] = 0\n"
        "train_inputs = train_flat.view_as(train_inputs)\n"
        "test_inputs = test_flat.view_as(test_inputs)",
    )
