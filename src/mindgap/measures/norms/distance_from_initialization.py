"""How far training moved the weights."""

from mindgap.core import Bar, Estimate, Measure, Subject
from mindgap.ops.models.parameters import displacement, norms, total


class DistanceFromInitialization(Measure):
    r"""Euclidean distance of the weights from where training began.

    Formula: $\lVert w - w_0 \rVert_2$

    Reading: Large means that training had to go far to fit the data, as it does with random labels.
    Only models of one architecture and initialization can be compared.

    Assumes: The weights from before training are given.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> initial = {"weight": model.weight.detach() - torch.tensor([[3.0, 4.0]])}
    >>> data = torch.ones(1, 2), torch.ones(1, 1)
    >>> round(float(DistanceFromInitialization()(Subject(model, "mse", data, initial=initial))), 4)
    5.0
    """

    method = ("E10",)
    cites = ("nagarajan2019generalization", "jiang2020fantastic")
    direction = "lower"
    needs = frozenset({"initial"})
    invariant_to = frozenset({"sample-order", "duplication"})

    def compute(self, subject: Subject) -> Estimate:
        """Return the distance, in total, by tensor and relative to the initial norm."""
        assert subject.initial is not None
        parts = norms(displacement(subject.model, subject.initial))
        start = total(
            norms({name: subject.initial[name] for name, _ in subject.model.named_parameters()})
        )
        relative = {"relative": total(parts) / start} if start > 0 else {}
        chart = Bar.of(
            parts,
            title="Distance from initialization by tensor",
            y_label="distance",
            horizontal=True,
            wide=False,
        )
        return Estimate(
            value=total(parts), terms=relative, details={"by_tensor": parts}, charts=(chart,)
        )
