"""Training samples that occur several times."""

import torch

from mindgap.core import Advice, Diagnosis, Evidence, Finding, Recipe, Results, Subject, Suspects
from mindgap.ops.evidence.spoiled import some
from mindgap.ops.overlap import copied
from mindgap.ops.samples import sample_hashes
from mindgap.training.fit import fit

MANY = 0.02  # share of the training samples that adds nothing; less changes no sample size
USUAL = 0.3  # share of samples that a plant repeats


class RepeatedSamples(Diagnosis):
    r"""Look for training samples that are copies of others, target included.

    Formula: $1 - \frac{1}{n} \left| \{(x_1, y_1), \dots, (x_n, y_n)\} \right|$

    Reading: Copies add no information: there are fewer training samples than it seems, and the
    repeated ones weigh more. A random split after copying leaks.

    Assumes: Equal means equal in every number. Discrete data repeat by chance; these are told apart
    by how many samples occur once, twice and three times.

    >>> x = torch.arange(100.0)[:, None].repeat(2, 1)
    >>> subject = Subject(torch.nn.Linear(1, 1), "mse", (x, x))
    >>> RepeatedSamples()(subject).sentence
    '50 % of the training samples are copies of others.'
    """

    cites = ("barz2020cifar",)
    stage = "leak"
    exact = True

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Count the different training samples."""
        hashes = sample_hashes(subject.train)
        _, groups, counts = hashes.unique(return_inverse=True, return_counts=True)
        share = 1 - len(counts) / len(hashes)
        if share < MANY or not copied(hashes):
            return None
        firsts = torch.full((len(counts),), len(hashes)).scatter_reduce(
            0, groups, torch.arange(len(hashes)), "amin"
        )
        later = (firsts[groups] < torch.arange(len(hashes))).nonzero().flatten()
        return self.finding(
            f"{100 * share:.0f} % of the training samples are copies of others.",
            severity="note",
            evidence=(
                Evidence(name="copies among the training samples", value=share, percent=True),
                Evidence(name="different training samples", value=len(counts)),
            ),
            sentences=(f"There are {len(counts):,} different training samples.",),
            advice=(
                Advice(
                    text="Keep one of each, unless the copies are weights on purpose.",
                    code=(
                        self.listing("copies") + "\n"
                        "keep = torch.ones(len(train_targets), dtype=torch.bool)\n"
                        "keep[list(copies)] = False\n"
                        "train_inputs, train_targets = train_inputs[keep], train_targets[keep]"
                    ),
                ),
            ),
            suspects=Suspects(
                split="train",
                index=later.tolist(),
                columns={"copy of": firsts[groups[later]].tolist()},
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Repeat a share of the training samples."""
        inputs, targets = recipe.train
        random = torch.Generator().manual_seed(seed)
        places = some(len(targets), USUAL * strength, random)
        train = torch.cat([inputs, inputs[places]]), torch.cat([targets, targets[places]])
        return fit(recipe.replace(train=train), seed=seed).subject()
