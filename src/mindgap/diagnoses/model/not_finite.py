"""Weights, outputs or losses that are NaN or infinite."""

from collections.abc import Callable

import torch
from torch import Tensor

from mindgap.core import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    NotFiniteError,
    Recipe,
    Results,
    Subject,
    Suspects,
    Which,
    evaluating,
)
from mindgap.training.fit import fit


class NotFinite(Diagnosis):
    r"""Look for weights, outputs and losses that are NaN or infinite, and name the layer.

    Formula: $\exists\, l, i : w_{l,i} \notin \mathbb{R} \;\text{or}\; f(x_i) \notin \mathbb{R}
    \;\text{or}\; \ell_i \notin \mathbb{R}$

    Reading: No number of the model can be trusted. Training diverged, the checkpoint is damaged, or
    a layer overflows or divides by zero. All other checks are left out.

    Assumes: Nothing.

    >>> recipe = Recipe(
    ...     model=lambda: torch.nn.Linear(1, 1), train=(torch.ones(4, 1), torch.ones(4, 1))
    ... )
    >>> finding = NotFinite()(NotFinite.plant(recipe.replace(loss="mse", epochs=1)), {})
    >>> finding.severity, finding.sentence
    ('wrong', "The weights of 'weight' are not finite numbers.")
    """

    stage = "values"
    voids = True
    symptom = "divergence"
    exact = True
    method = ("S1",)
    cites = ("goodfellow2016deep",)

    def look(self, subject: Subject, results: Results) -> Finding | None:  # noqa: ARG002
        """Name the first tensor, or the first layer, that holds a value that is no number."""
        for name, tensor in subject.model.state_dict().items():
            bad = int((~torch.isfinite(tensor)).sum()) if tensor.is_floating_point() else 0
            if bad:
                return self._told(f"The weights of {name!r} are not finite numbers.", bad)
        splits: tuple[Which, ...] = ("train",) if subject.test is None else ("train", "test")
        for which in splits:
            found = self._values(subject, which)
            if found is not None:
                return found
        return None

    def _values(self, subject: Subject, which: Which) -> Finding | None:
        data = "training" if which == "train" else "test"
        try:
            losses = subject.losses(which)
        except NotFiniteError:
            places, layer = _overflow(subject, which)
            return self._told(
                f"The outputs of layer {layer!r} are not finite numbers for "
                f"{100 * len(places) / len(subject.split(which)):.1f} % of the {data} samples.",
                max(1, len(places)),
                Suspects(split=which, index=places.tolist()),
            )
        bad = ~torch.isfinite(losses)
        if not bool(bad.any()):
            return None
        places = bad.cpu().nonzero().flatten()
        return self._told(
            f"The loss of {100 * len(places) / len(losses):.1f} % of the {data} samples is not a finite "
            "number, although the outputs are.",
            len(places),
            Suspects(split=which, index=places.tolist()),
        )

    def _told(self, sentence: str, count: int, suspects: Suspects | None = None) -> Finding:
        return self.finding(
            sentence,
            evidence=(Evidence(name="values that are NaN or infinite", value=count),),
            advice=(
                Advice(
                    text="Retrain with a learning rate ten times smaller and gradients clipped.",
                    code="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
                ),
                Advice(
                    text="Find the first operation that makes them.",
                    code="torch.autograd.set_detect_anomaly(True)",
                ),
            ),
            suspects=suspects,
        )

    @classmethod
    def plant(cls, recipe: Recipe, seed: int = 0, strength: float = 1.0) -> Subject:  # noqa: ARG003
        """Make one weight NaN."""
        subject = fit(recipe, seed=seed).subject()
        with torch.no_grad():
            next(subject.model.parameters()).view(-1)[0] = float("nan")
        return subject


def _overflow(subject: Subject, which: Which) -> tuple[Tensor, str]:
    """Return the samples whose outputs are no numbers, and the first layer that makes them."""
    layers = list[str]()

    def watch(name: str) -> Callable[..., None]:
        def look(_: object, __: object, made: object) -> None:
            if isinstance(made, Tensor) and not bool(torch.isfinite(made).all()):
                layers.append(name)

        return look

    handles = [
        module.register_forward_hook(watch(name or type(module).__name__))
        for name, module in subject.model.named_modules()
    ]
    places = list[Tensor]()
    try:
        with evaluating(subject.model):
            for batch in subject.batches(which):
                outputs = subject.forward(batch.inputs)
                bad = ~torch.isfinite(outputs).reshape(len(outputs), -1).all(1)
                places.append(batch.index[bad.cpu()])
    finally:
        for handle in handles:
            handle.remove()
    # Hooks of inner modules run first, so the first name is that of the innermost layer.
    return torch.cat(places), layers[0] if layers else type(subject.model).__name__
