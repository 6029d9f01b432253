"""How many epochs training took to reach a loss."""

from collections.abc import Mapping, Sequence

from mindgap.core import Estimate, Line, Mark, Measure, Series, Subject, Undefined, option

NAMES = ("train_loss", "running_loss")  # after the epoch, or else the mean over its batches


class StepsToLoss(Measure):
    r"""Epochs until the training loss was at most 0.1, and further epochs until it was 0.01.

    Formula: $T(a) = \min \{ t : \hat L(w_t) \le a \}$

    Reading: Networks that are trained fast are claimed to generalize better. ``further`` is T(b) −
    T(a), the epochs from the first loss to the second; it is missing if the second was never
    reached. ``steps`` counts steps of the optimizer, if the recipe is known. Jiang and others
    count steps, and found little in the second number.

    Assumes: A recorded history, of which one entry is one epoch; what happens within an epoch is
    not recorded. Models are compared that share optimizer, learning rate and batch size.

    >>> import torch
    >>> history = [{"epoch": k, "train_loss": 1 / 4**k} for k in (1, 2, 3, 4)]
    >>> data = (torch.ones(2, 1), torch.ones(2, 1))
    >>> found = StepsToLoss()(Subject(torch.nn.Linear(1, 1), "mse", data, history=history))
    >>> float(found), dict(found.terms)
    (2.0, {'further': 2.0})
    """

    method = ("E4",)
    cites = ("jiang2020fantastic",)
    direction = "lower"
    needs = frozenset({"history"})
    invariant_to = frozenset(
        {"sample-order", "unit-permutation", "relu-rescaling", "output-scaling", "duplication"}
    )

    first: float = option(0.1, help="a, the first loss", above=0)
    second: float = option(0.01, help="b, the second loss", above=0)

    def compute(self, subject: Subject) -> Estimate:
        """Return the epochs to the first loss, and from there to the second."""
        name = next((name for name in NAMES if name in subject.history[0]), "")
        if not name:
            raise Undefined("needs a history with the training loss (train_loss) of every epoch")
        losses = [row.get(name, float("nan")) for row in subject.history]
        found = _epoch(subject.history, losses, self.first)
        if found is None:
            raise Undefined(
                f"the training loss never reached {self.first:g}; the lowest was {_lowest(losses)}"
            )
        later = _epoch(subject.history, losses, self.second)
        terms = {} if later is None else {"further": later - found}
        if subject.recipe is not None:
            terms["steps"] = found * -(-len(subject.train) // subject.recipe.batch_size)
        return Estimate(value=found, terms=terms, charts=(self._chart(subject.history, losses),))

    def _chart(self, history: Sequence[Mapping[str, float]], losses: list[float]) -> Line:
        epochs = [_number(row, place) for place, row in enumerate(history)]
        return Line(
            title="Training loss by epoch",
            x_label="epoch",
            y_label="training loss",
            y_scale="log",
            series=[Series(name="training loss", x=epochs, y=losses, mode="lines")],
            marks=[Mark(name=f"{loss:g}", y=loss) for loss in (self.first, self.second)],
        )


def _epoch(
    history: Sequence[Mapping[str, float]], losses: list[float], wanted: float
) -> float | None:
    reached = (place for place, loss in enumerate(losses) if loss <= wanted)
    place = next(reached, None)
    return None if place is None else _number(history[place], place)


def _number(row: Mapping[str, float], place: int) -> float:
    return float(row.get("epoch", place + 1))


def _lowest(losses: list[float]) -> str:
    finite = [loss for loss in losses if loss == loss]
    return f"{min(finite):.3g}" if finite else "not a number"
