"""Weights, outputs or losses that are NaN, infinite or exploding."""

import torch

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    NotFiniteError,
    Recipe,
    Results,
    Subject,
)
from mindgap.training.fit import fit


class NotFinite(Diagnosis):
    r"""Look for weights and outputs that are NaN or infinite, and name the layer.

    Formula: $\exists\, l, i : w_{l,i} \notin \mathbb{R} \;\text{or}\; f(x_i) \notin \mathbb{R}$

    Reading: No number of the model can be trusted. Training diverged, or the checkpoint is damaged.

    Assumes: Nothing.

    >>> recipe = Recipe(
    ...     model=lambda: torch.nn.Linear(1, 1), train=(torch.ones(4, 1), torch.ones(4, 1))
    ... )
    >>> finding = NotFinite()(NotFinite.plant(recipe.replace(loss="mse", epochs=1)), {})
    >>> finding.severity
    'wrong'
    """

    stage = "values"
    symptom = "divergence"
    exact = True
    cites = ("goodfellow2016deep",)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Name the first tensor that holds a value that is no number."""
        for name, tensor in subject.model.state_dict().items():
            bad = int((~torch.isfinite(tensor)).sum()) if tensor.is_floating_point() else 0
            if bad:
                return self._found(f"The weights of {name!r} are not finite numbers.", bad)
        try:
            for which in ("train", "test") if subject.test is not None else ("train",):
                subject.losses(which)
        except NotFiniteError:
            return self._found("The model's outputs are not finite numbers.", 1)
        return None

    def _found(self, sentence: str, count: int) -> Finding:
        return self.finding(
            sentence,
            evidence=(Evidence(name="values that are no numbers", value=count),),
            advice=(
                Advice(
                    text="Retrain with a learning rate ten times smaller and gradients clipped.",
                    code="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
                ),
            ),
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:  # noqa: ARG003
        """Make one weight NaN."""
        subject = fit(recipe, seed=seed).subject()
        with torch.no_grad():
            next(subject.model.parameters()).view(-1)[0] = float("nan")
        return subject
