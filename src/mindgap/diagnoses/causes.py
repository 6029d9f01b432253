"""Causes of a bad training, as training and validation data alone show them.

Validation samples come from the training data and have the same wrong labels. So a comparison of the
two sides sees none of them. What wrong labels do have is that they contradict a predictor also where
it is confident; hard samples contradict it where it is not.
"""

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mindgap.core import Finding, Subject, Suspects, proportion_interval
from mindgap.diagnoses.diagnose import diagnose
from mindgap.ops.evidence.reference import reference
from mindgap.ops.evidence.rows import rows
from mindgap.training.fit import fit

if TYPE_CHECKING:  # whoever loads all diagnoses need not load the race
    from mindgap.training.race.of_recipe import RecipeTrainer

CONFIDENT = 0.25  # share of the samples, on which a healthy predictor is hardly ever contradicted
RATE = 0.015  # share of their labels that is contradicted; a finding needs surely more than that
LEVEL = 0.5  # of the rate among all samples: hard ones are contradicted far less often there
MOST = 0.4  # share of suspects beyond which the predictor is too weak to accuse anybody


def causes(trainer: "RecipeTrainer", seed: int) -> list[Finding]:
    """Train a recipe once and diagnose it, with validation samples in the place of test data.

    Args:
        trainer: Holds the recipe; its test data are not looked at.
        seed: Of the training.

    Returns:
        The findings without their charts, the most important first. Suspects are named by their
        places in all training data.
    """
    from mindgap.training.race.arm import baseline

    fold = trainer.fold(seed)
    known = trainer.prepared(baseline(), fold).replace(test=trainer.validation[fold])
    subject: Subject = fit(known, seed=seed).subject()
    found = [_placed(row, trainer.rest(fold)) for row in diagnose(subject).findings]
    # That validation samples are few says nothing about the recipe.
    found = [row for row in found if row.symptom != "too few test samples"]
    whole: Subject = Subject(
        subject.model,
        trainer.recipe.loss,
        trainer.train,
        trainer.validation[fold],
        task=trainer.task,
    )
    doubtful = doubts(whole)
    if doubtful is None or any(row.symptom == "wrong labels" for row in found):
        return found
    return [doubtful, *found]


def _placed(row: Finding, places: Tensor) -> Finding:
    suspects = row.suspects
    if suspects is not None and suspects.split == "train":
        index = places[torch.as_tensor(list(suspects.index), dtype=torch.long)].tolist()
        suspects = dataclasses.replace(suspects, index=index)
    return dataclasses.replace(row, charts=(), suspects=suspects)


def doubts(subject: Subject) -> Finding | None:
    """Look for training labels that are confidently contradicted.

    Suspects are found as confident learning does: the predictor prefers another class, and at least
    as clearly as it does on average for samples of that class (Northcutt et al. 2021). The predictor
    is a ridge regression, whose leave-one-out predictions have not seen the label.

    Args:
        subject: A classification; its test data are not looked at.

    >>> x = torch.linspace(-1, 1, 400)[:, None]
    >>> y = (x[:, 0] > 0).long()
    >>> noisy = torch.where(torch.arange(400) % 10 == 0, 1 - y, y)
    >>> found = doubts(Subject(torch.nn.Linear(1, 2), "cross_entropy", (x, noisy), (x, y)))
    >>> set(found.suspects.index) <= set(range(0, 400, 10))
    True
    """
    if subject.task != "classification":
        return None
    predictor, places = reference(subject), rows(subject, "train").places
    scores, labels = predictor.scores("train"), subject.targets("train").cpu()[places]
    said = scores.argmax(1)
    suspects = _suspects(scores, labels)
    share = len(suspects) / max(len(labels), 1)
    count = max(1, int(CONFIDENT * len(labels)))
    sure = predictor.margins("train").argsort(descending=True)[:count]
    wrong = int((said[sure] != labels[sure]).sum())
    if not 0 < share <= MOST or proportion_interval(wrong, count).low <= RATE:
        return None
    if wrong / count < LEVEL * float((said != labels).float().mean()):
        return None
    return Finding(
        name="doubtful-labels",
        sentence=f"A predictor that has not seen them clearly contradicts {len(suspects):,} of "
        f"{len(labels):,} training labels: some may be wrong.",
        severity="suspect",
        symptom="wrong labels",
        suspects=Suspects(
            split="train",
            index=places[suspects].tolist(),
            columns={
                "label": labels[suspects].tolist(),
                "suggested number": said[suspects].tolist(),
            },
        ),
    )


def _suspects(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the places of contradicted labels, the most clearly contradicted first."""
    said, top = scores.argmax(1), scores.max(1).values
    known = torch.isin(torch.arange(scores.shape[1]), labels)
    usual = torch.stack(
        [
            scores[labels == k, k].mean() if known[k] else scores.new_tensor(torch.inf)
            for k in range(scores.shape[1])
        ]
    )
    found = ((said != labels) & (top >= usual[said])).nonzero()[:, 0]
    doubt = top - scores.gather(1, labels[:, None])[:, 0]
    return found[doubt[found].argsort(descending=True)]
