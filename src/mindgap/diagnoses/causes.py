"""Causes of a bad training, as training and validation data alone show them."""

import dataclasses

import torch

from mindgap.core import Finding, Subject
from mindgap.diagnoses.diagnose import diagnose
from mindgap.training.fit import fit
from mindgap.training.race.arm import baseline
from mindgap.training.race.doubts import doubts
from mindgap.training.race.of_recipe import RecipeTrainer


def causes(trainer: RecipeTrainer, seed: int) -> list[Finding]:
    """Train a recipe once and diagnose it, with validation samples in the place of test data.

    Args:
        trainer: Holds the recipe; its test data are not looked at.
        seed: Of the training.

    Returns:
        The findings without their charts, the most important first. Suspects are named by their
        places in all training data.
    """
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


def _placed(row: Finding, places: torch.Tensor) -> Finding:
    suspects = row.suspects
    if suspects is not None and suspects.split == "train":
        index = places[torch.as_tensor(list(suspects.index), dtype=torch.long)].tolist()
        suspects = dataclasses.replace(suspects, index=index)
    return dataclasses.replace(row, charts=(), suspects=suspects)
