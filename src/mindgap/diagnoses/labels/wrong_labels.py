"""Training targets that are wrong."""

import torch

from mindgap.core import Diagnosis, Finding, Recipe, Results, Subject
from mindgap.ops.evidence.shares import shares
from mindgap.ops.evidence.spoiled import misassigned
from mindgap.ops.evidence.wrong_targets import wrong_targets
from mindgap.training.fit import fit

USUAL = 0.1  # share of targets that a plant makes wrong


class WrongLabels(Diagnosis):
    r"""Look for wrong training labels, and list the samples to check.

    Formula: $T = \sum_{i \in \text{train}} \left( \frac{p_{\text{wrong}}(r_i)}{p(r_i)} - 1 \right)$

    Here $r_i$ is how strongly a predictor contradicts the target of sample i. It is fitted without
    this target: by leave-one-out for training samples.

    Reading: The share of wrong labels comes with an interval of 95 %. Among the listed samples the
    stated share is expected to be truly wrong. The p-value is that of exchanging training and test
    samples with the same target. A predictor that learned from the training data cannot know a
    class whose labels are nearly all wrong. So if a class is far rarer than in the test data, one
    that learned from these looks for its samples.

    Assumes: The test labels are right. Wrong labels that both splits share equally are not seen.
    The predictor must do better than chance: on hard data only many wrong labels are found.

    >>> x = torch.linspace(-1, 1, 800)[:, None]
    >>> y = (x[:, 0] > 0).long()
    >>> noisy = torch.where(torch.arange(400) % 10 == 0, 1 - y[::2], y[::2])
    >>> model = torch.nn.Linear(1, 2)
    >>> subject = Subject(model, "cross_entropy", (x[::2], noisy), (x[1::2], y[1::2]))
    >>> WrongLabels()(subject).sentence
    'About 10 % of the training labels are wrong (7 % to 13 %).'
    """

    method = ("V10",)
    cites = ("northcutt2021confident", "rahimi2007random", "tarone1990modified")
    stage = "noisy labels"
    symptom = "wrong labels"
    needs = frozenset({"test"})
    explains = frozenset(
        {
            "wrong-test-labels",
            "under-trained",
            "too-small",
            "over-fitting",
            "late-over-fitting",
            "over-confidence",
            "under-confidence",
            "ignored-class",
            "noise-sensitivity",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare how often targets are contradicted in the training and in the test data."""
        found = wrong_targets(self, subject, "train")
        if found is None and subject.task == "classification" and shares(subject).losers():
            return wrong_targets(self, subject, "train", learned="test")
        return found

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Give a share of the training samples the target of another class or sample."""
        random = torch.Generator().manual_seed(seed)
        inputs, targets = recipe.train
        wrong = misassigned(targets, USUAL * strength, random)
        return fit(recipe.replace(train=(inputs, wrong)), seed=seed).subject()
