"""How many gates training flips."""

import contextlib
from typing import Literal

import torch
from torch import Tensor

from mindgap.core import Bar, Estimate, InputError, Inputs, Measure, Subject, Undefined, option
from mindgap.core.calls import call
from mindgap.core.purity import evaluating
from mindgap.core.stats.comparisons import standard_error
from mindgap.ops.evidence.passes import affordable, limited, some_places
from mindgap.ops.models.gates import recorded
from mindgap.ops.models.phases import Gated, gates_of
from mindgap.training.vectorized.engine import Weighted

SAMPLES = 2_000  # more take longer than they tell
BATCH = 100  # samples per batch, so that there are enough batches to tell the standard error


class GateFlips(Measure):
    r"""Share of gates that training has flipped: ReLU, leaky ReLU and max-pool, over all samples.

    Formula: $\frac{1}{n \lvert\sigma\rvert} \sum_{i=1}^{n} \lVert \sigma(x_i, w) - \sigma(x_i,
    w_0) \rVert_0$

    Reading: With no flip the network is linear in the weight of every path, and only those weights
    were learned. A unit's gate flips for a sample when its input changes sign, that of a max-pool
    when another entry becomes the largest. ``since="phase 1"`` asks a two-phase network what its
    trained weights would have flipped if its gates were free. A probe with ``since="reading"``
    gives the share per step.

    Assumes: Gates are those of ReLU, leaky ReLU or max-pool; other activations have none. Of more
    than 2,000 samples so many are drawn, and the standard error is that of batches of them.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> with torch.no_grad():
    ...     _ = net[0].weight.copy_(torch.tensor([[1.0], [1.0]])), net[0].bias.zero_()
    >>> initial = {name: value.clone() for name, value in net.state_dict().items()}
    >>> with torch.no_grad():
    ...     _ = net[0].weight[1].neg_()
    >>> data = torch.tensor([[1.0], [-1.0]]), torch.zeros(2, 1)
    >>> float(GateFlips()(Subject(net, "mse", data, initial=initial)))
    0.5
    """

    method = ("K5",)
    cites = ("kawaguchi2017generalization",)
    invariant_to = frozenset({"sample-order", "relu-rescaling", "output-scaling", "duplication"})

    since: Literal["initial", "phase 1"] = option(
        "initial", help="the weights to compare with: those before training, or of phase 1"
    )
    work: float = limited()

    def missing(self, subject: Subject) -> str:
        """Say which weights there are none of to compare with."""
        if self.since == "initial":
            known = subject.initial is not None
            return "" if known else "needs the weights from before training (initial=state_dict)"
        gated = subject.model.forward
        frozen = isinstance(gated, Gated) and gated.frozen
        return "" if frozen else "needs a two-phase network whose phase 2 has begun"

    def compute(self, subject: Subject) -> Estimate:
        """Return the share, in total and by gate."""
        before = self._reference(subject)
        most = affordable(subject, SAMPLES, passes=2, work=self.work)
        places = some_places(subject, "train", most)
        batches = subject.train.subset(places).batches(min(subject.batch_size, BATCH))
        try:
            parts = [_flips(subject, batch.inputs, before) for batch in batches]
        except InputError as error:
            raise Undefined(f"needs gates that are known ({error})") from error
        if not len(parts[0]):
            raise Undefined("needs a ReLU, a leaky ReLU or a max-pool in the model")
        counts = torch.stack(parts).sum(0)
        shares = (counts[:, 0] / counts[:, 1]).tolist()
        named = {f"gate {number}": share for number, share in enumerate(shares, 1)}
        flips, gates = counts.sum(0).tolist()
        chart = Bar.of(named, title="Gates that flipped, by layer", y_label="share of gates")
        whole = len(places) == len(subject.train)
        return Estimate(
            value=flips / gates,
            status="exact" if whole else "estimate",
            standard_error=None if whole else _spread(parts),
            terms={"flipped": flips, "gates": gates},
            details={"by_gate": named},
            charts=(chart,),
        )

    def _reference(self, subject: Subject) -> dict[str, Tensor]:
        if self.since == "phase 1":
            return gates_of(subject.model).first()
        assert subject.initial is not None
        return subject.initial


def _spread(parts: list[Tensor]) -> float | None:
    """The standard error of the share, from its spread over batches of equal size."""
    shares = [float(part[:, 0].sum() / part[:, 1].sum()) for part in parts]
    return standard_error(shares) if len(shares) > 1 else None


def _flips(subject: Subject, inputs: Inputs, before: dict[str, Tensor]) -> Tensor:
    """Count the flipped gates and all gates of a batch, one row per call of an activation."""
    model, like = subject.model, next(subject.model.parameters())
    gated = model.forward
    free = gated.released() if isinstance(gated, Gated) else contextlib.nullcontext()
    with evaluating(model), free:
        _, now = recorded(lambda: call(model, inputs, like))
        _, then = recorded(lambda: call(Weighted(model, before), inputs, like))
    pairs = zip(now, then, strict=True)
    rows = [(int((one != other).sum()), one.numel()) for one, other in pairs]
    return torch.tensor(rows, dtype=torch.float64)
