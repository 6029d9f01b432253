"""Training samples with equal inputs and different targets."""

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    InputError,
    Recipe,
    Results,
    Subject,
    Suspects,
)
from mindgap.ops.evidence.shown import gallery
from mindgap.ops.evidence.spoiled import some
from mindgap.ops.samples import in_words, input_hashes
from mindgap.training.fit import fit

MANY = 0.01  # share of the training samples; the error on these cannot be avoided
# Of the share among training copies: if test samples contradict their training copies as often, the
# inputs do not determine the target, and no file is wrong.
NATURAL = 0.5
FAR = (
    1.0  # standard deviations by which targets of a regression contradict; repeats do differ a bit
)
USUAL = 0.1  # share of samples that a plant repeats


class ContradictorySamples(Diagnosis):
    r"""Look for training samples with equal inputs but different targets.

    Formula: $\frac{1}{n} \sum_g \left( n_g - \max_c n_{g,c} \right)$ over groups g of equal inputs,
    with $n_{g,c}$ samples of class c

    Reading: No model can fit more than one target of equal inputs: the share is an error that
    remains. If test samples contradict equal training samples alike, the inputs are not enough to
    know the target, and this is a note.

    Assumes: Equal means equal in every number. Targets of a regression contradict each other if
    they are more than a standard deviation from the median of their group.

    >>> x = torch.arange(60.0)[:, None].repeat(2, 1)
    >>> y = torch.arange(60) % 3
    >>> train = x, torch.cat([y, (y + 1) % 3])
    >>> subject = Subject(torch.nn.Linear(1, 3), "cross_entropy", train)
    >>> ContradictorySamples()(subject).sentence
    '50 % of the training samples contradict another one with the same inputs.'
    """

    cites = ("northcutt2021confident",)
    stage = "split"
    symptom = "wrong labels"
    exact = True
    explains = frozenset(
        {
            "wrong-labels",
            "wrong-test-labels",
            "repeated-samples",
            "under-trained",
            "too-small",
            "over-fitting",
            "late-over-fitting",
            "over-confidence",
            "under-confidence",
            "noise-sensitivity",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Group equal inputs and count the targets that are not the most frequent one."""
        if subject.task == "multilabel":
            raise InputError(
                "Contradictions are looked for in a classification or regression, got several "
                "labels per sample. Test one label at a time."
            )
        _, groups = input_hashes(subject, "train").unique(return_inverse=True)
        targets = subject.targets("train").cpu()
        usual = _usual(subject, groups, targets)
        contradicting = _apart(subject, targets, usual[groups])
        share = float(contradicting.double().mean())
        if share < MANY:
            return None
        places = torch.isin(groups, groups[contradicting]).nonzero().flatten()
        places = places[groups[places].argsort(stable=True)]
        natural = _among_test(subject, usual) > NATURAL * _among_train(groups, contradicting)
        return self._found(subject, share, places, groups, natural)

    def _found(
        self, subject: Subject, share: float, places: Tensor, groups: Tensor, natural: bool
    ) -> Finding:
        firsts = torch.full((int(groups.max()) + 1,), len(groups)).scatter_reduce(
            0, groups, torch.arange(len(groups)), "amin"
        )
        targets = [in_words(subject, y) for y in subject.targets("train")[places]]
        same = firsts[groups[places]].tolist()
        return self.finding(
            f"{100 * share:.0f} % of the training samples contradict another one with the same inputs.",
            severity="note" if natural else "wrong",
            evidence=(Evidence(name="contradicting samples", value=share, percent=True),),
            sentences=(
                "Test samples contradict equal training samples as often: the inputs do not "
                "determine the target."
                if natural
                else f"An error of {100 * share:.1f} % on the training data cannot be avoided.",
            ),
            advice=(
                Advice(
                    text="Add inputs that tell these samples apart."
                    if natural
                    else f"Decide which target is right for the {len(places):,} listed samples, or "
                    "leave them out.",
                    code=""
                    if natural
                    else self.listing("listed") + "\n"
                    "keep = torch.ones(len(train_targets), dtype=torch.bool)\n"
                    "keep[list(listed)] = False\n"
                    "train_inputs, train_targets = train_inputs[keep], train_targets[keep]",
                ),
            ),
            charts=(
                gallery(
                    subject,
                    "train",
                    places,
                    {"same as no.": list(map(str, same)), "target": targets},
                    title="Equal inputs with different targets",
                ),
            ),
            suspects=Suspects(
                split="train",
                index=places.tolist(),
                columns={"same inputs as": same, "target": targets},
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Repeat a share of the training samples with another target."""
        random = torch.Generator().manual_seed(seed)
        inputs, targets = recipe.train
        places = some(len(targets), USUAL * strength, random)
        other = targets[places]
        if targets.is_floating_point():
            # Half of all samples further on in the order of the targets is far away.
            order = targets.reshape(len(targets), -1)[:, 0].argsort()
            rank = order.argsort()[places]
            other = targets[order[(rank + len(targets) // 2) % len(targets)]]
        else:
            classes = int(targets.max()) + 1
            steps = torch.randint(1, classes, (len(places),), generator=random)
            other = (other + steps) % classes
        train = torch.cat([inputs, inputs[places]]), torch.cat([targets, other])
        return fit(recipe.replace(train=train), seed=seed).subject()


def _usual(subject: Subject, groups: Tensor, targets: Tensor) -> Tensor:
    """Return the most frequent class of every group, or the median of its targets."""
    count = int(groups.max()) + 1
    if subject.task == "classification":
        classes = int(targets.max()) + 1
        cells, counts = (groups * classes + targets).unique(return_counts=True)
        order = counts.argsort(stable=True)  # the most frequent is written last
        usual = torch.empty(count, dtype=torch.long)
        usual[cells[order] // classes] = cells[order] % classes
        return usual
    flat = targets.reshape(len(targets), -1).double()
    sizes = groups.bincount(minlength=count)
    middle = sizes.cumsum(0) - sizes + (sizes - 1) // 2
    columns = []
    for column in flat.T:  # few outputs: sorted by target, then stably by group
        order = column.argsort()
        order = order[groups[order].argsort(stable=True)]
        columns.append(column[order[middle]])
    return torch.stack(columns, 1)


def _apart(subject: Subject, targets: Tensor, usual: Tensor) -> Tensor:
    if subject.task == "classification":
        return targets != usual
    flat = targets.reshape(len(targets), -1).double()
    known = subject.targets("train").cpu().reshape(len(subject.train), -1).double()
    return ((flat - usual).abs() > FAR * known.std(0).clamp_min(1e-12)).any(1)


def _among_train(groups: Tensor, contradicting: Tensor) -> float:
    """The share of contradicting samples among those with an equal one."""
    copied = groups.bincount()[groups] > 1
    return float(contradicting[copied].double().mean())


def _among_test(subject: Subject, usual: Tensor) -> float:
    """The share of test samples that contradict training samples with equal inputs."""
    if subject.test is None:
        return 0.0
    known = input_hashes(subject, "train").unique()
    asked = input_hashes(subject, "test")
    equal = torch.isin(asked, known)
    if int(equal.sum()) < 10:
        return 0.0
    at = torch.searchsorted(known, asked[equal])
    return float(_apart(subject, subject.targets("test").cpu()[equal], usual[at]).double().mean())
