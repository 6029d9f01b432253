"""Training targets that have nothing to do with the training inputs."""

import math

import torch

from mindgap.core import Advice, Bar, Diagnosis, Evidence, Finding, Recipe, Results, Series, Subject
from mindgap.diagnoses.labels.shuffled_test_labels import (
    LEARNED,
    LEFT,
    LEVEL,
    agreement,
    chance,
    reference_agreement,
    refuse_several_labels,
    same_scores,
)
from mindgap.ops.evidence.reference import reference
from mindgap.ops.evidence.spoiled import some
from mindgap.training.fit import fit

SURE = 2.6  # standard errors: one-sided 99.5 %


class ShuffledLabels(Diagnosis):
    r"""Look for training targets that have nothing to do with the training inputs.

    Formula: $A_{\text{train}} - C \le 0.15\,(A_{\text{test}} - C)$, where A is the agreement of a
    predictor that learned from the test data and of the targets, and C what chance gives

    Reading: A predictor that needs no training, and sees no target that it predicts, knows the test
    targets from the test inputs, but no training target from the training inputs. The inputs look
    alike. So the training targets belong to other samples, and the model learned them by heart. If
    no target of either split can be told from its inputs, by the model or the predictor, that is
    said instead; it is sure only if the model knows its training data.

    Assumes: Chance agreement is that of the given shares of classes; in a regression A is the rank
    correlation and C is zero.

    >>> random = torch.Generator().manual_seed(0)
    >>> y = torch.randint(0, 2, (400,), generator=random)
    >>> x = torch.randn(400, 2, generator=random) + 4 * y[:, None]
    >>> wrong = y[torch.randperm(400, generator=random)]
    >>> data = (x[:200], wrong[:200]), (x[200:], y[200:])
    >>> model = torch.nn.Linear(2, 2)
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> ShuffledLabels()(Subject(model, "cross_entropy", *data)).sentence
    'The training targets have nothing to do with the training inputs.'
    """

    cites = ("zhang2017understanding", "kaufman2012leakage")
    stage = "noisy labels"
    symptom = "wrong labels"
    needs = frozenset({"test"})
    explains = frozenset(
        {
            "dead-units",
            "ignored-class",
            "late-over-fitting",
            "learning-rate-too-high",
            "learning-rate-too-low",
            "noise-sensitivity",
            "not-robust",
            "over-confidence",
            "over-fitting",
            "permuted-test-classes",
            "rare-class",
            "too-small",
            "under-confidence",
            "under-trained",
            "wrong-labels",
            "wrong-test-labels",
        }
    )

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Compare how well the targets of both splits can be told from their inputs."""
        refuse_several_labels(subject)
        own, other = reference(subject, "train"), reference(subject, "test")
        left, known = reference_agreement(own, "train"), reference_agreement(other, "test")
        across = reference_agreement(other, "train")
        learned = agreement(subject, "test")
        errors = [SURE / math.sqrt(len(side)) for side in (own.train, other.test)]
        limit = LEFT * max(known, 0.0)
        if left > limit + errors[0] or across > limit + errors[0]:
            return None
        p_value = chance(other, "test", "train")
        if known > LEARNED and p_value < LEVEL and same_scores(other):
            return self._shuffled(left, known, learned, p_value)
        fitted = agreement(subject, "train")
        nothing = known < errors[1] and learned + errors[1] < LEFT
        return self._nothing(left, known, learned, fitted) if nothing else None

    def _shuffled(self, left: float, known: float, learned: float, p_value: float) -> Finding:
        return self.finding(
            "The training targets have nothing to do with the training inputs.",
            p_value=p_value,
            evidence=_evidence(left, known, learned),
            sentences=(
                "A simple predictor tells test targets from test inputs, but no training target from "
                "its inputs, although the inputs look alike.",
            ),
            advice=(_together("train"),),
            charts=(_chart(left, known, learned),),
        )

    def _nothing(self, left: float, known: float, learned: float, fitted: float) -> Finding:
        return self.finding(
            "Neither the model nor a simple predictor does better than chance on unseen samples.",
            "wrong" if fitted > LEARNED else "suspect",
            evidence=(
                *_evidence(left, known, learned),
                Evidence(name="the model on training data, above chance", value=fitted),
            ),
            sentences=(
                "Either the targets belong to other samples, or the inputs do not tell them."
                + (" The model learned its training targets by heart." if fitted > LEARNED else ""),
            ),
            advice=(
                _together("train"),
                Advice(
                    text="If they belong together, the inputs lack what decides the target: measure "
                    "that, or predict something else."
                ),
            ),
            charts=(_chart(left, known, learned),),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:
        """Shuffle the training targets; at half the strength a tenth of them stays."""
        random = torch.Generator().manual_seed(seed)
        inputs, targets = recipe.train
        places = some(len(targets), 0.8 + 0.2 * strength, random)
        mixed = targets.clone()
        mixed[places] = targets[places[torch.randperm(len(places), generator=random)]]
        return fit(recipe.replace(train=(inputs, mixed)), seed=seed).subject()


def _evidence(left: float, known: float, learned: float) -> tuple[Evidence, ...]:
    return (
        Evidence(name="a predictor on unseen training samples, above chance", value=left),
        Evidence(name="a predictor on unseen test samples, above chance", value=known),
        Evidence(name="the model on test data, above chance", value=learned),
    )


def _together(name: str) -> Advice:
    return Advice(
        text="Read inputs and targets together, in the same order, and shuffle them together.",
        code=(
            f"order = torch.randperm(len({name}_inputs))\n"
            f"{name}_inputs, {name}_targets = {name}_inputs[order], {name}_targets[order]"
            "  # one order for both"
        ),
    )


def _chart(left: float, known: float, learned: float) -> Bar:
    names = ["predictor, training data", "predictor, test data", "model, test data"]
    return Bar(
        title="What can be told from inputs of unseen samples",
        y_label="agreement above chance",
        series=(Series(x=names, y=[left, known, learned]),),
    )
