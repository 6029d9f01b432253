"""Test targets that are wrong."""

import torch

from mindgap.core import Diagnosis, Finding, Recipe, Results, Subject
from mindgap.ops.evidence.spoiled import misassigned
from mindgap.ops.evidence.wrong_targets import wrong_targets
from mindgap.training.fit import fit

USUAL = 0.15  # share of targets that a plant makes wrong


class WrongTestLabels(Diagnosis):
    r"""Look for wrong test labels, and list the samples to check.

    Formula: $T = \sum_{i \in \text{test}} \left( \frac{p_{\text{wrong}}(r_i)}{p(r_i)} - 1 \right)$

    Here $r_i$ is how strongly a predictor, fitted without this target, contradicts sample i.

    Reading: The measured test error is too high by about the share of wrong labels. Among the
    listed samples the stated share is expected to be truly wrong.

    Assumes: The training labels are right, and the test inputs come from where the training inputs
    come from. Wrong labels that both splits share equally are not seen.

    >>> x = torch.linspace(-1, 1, 800)[:, None]
    >>> y = (x[:, 0] > 0).long()
    >>> noisy = torch.where(torch.arange(400) % 10 == 0, 1 - y[1::2], y[1::2])
    >>> model = torch.nn.Linear(1, 2)
    >>> subject = Subject(model, "cross_entropy", (x[::2], y[::2]), (x[1::2], noisy))
    >>> found = WrongTestLabels()(subject).suspects
    >>> all(place % 10 == 0 for place in found.index[:30])
    True
    """

    method = ("V10",)
    cites = ("northcutt2021confident", "tarone1990modified")
    stage = "noisy labels"
    symptom = "wrong test labels"
    needs = frozenset({"test"})
    explains = frozenset(
        {
            "wrong-labels",
            "over-fitting",
            "late-over-fitting",
            "over-confidence",
            "ignored-class",
            "rare-class",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare how often targets are contradicted in the test and in the training data."""
        return wrong_targets(self, subject, "test")

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Give a share of the test samples the target of another class or sample."""
        random = torch.Generator().manual_seed(seed)
        inputs, targets = recipe.test
        wrong = misassigned(targets, USUAL * strength, random)
        return fit(recipe.replace(test=(inputs, wrong)), seed=seed).subject()
