"""How undecided the outputs are."""

import torch

from mindgap.core import Estimate, Histogram, Measure, Subject


class OutputEntropy(Measure):
    r"""Mean entropy of the predicted class probabilities on the training data.

    Formula: $\frac{1}{n} \sum_{i=1}^{n} \sum_{k} -p_k(x_i) \ln p_k(x_i), \quad p = \mathrm{softmax}(f)$

    Reading: Near zero means that the model is sure of every training sample, near ln of the number
    of classes that it knows nothing. Jiang et al. take its negative as a measure of complexity:
    confident models are claimed to generalize worse.

    Assumes: A classification with one logit per class.

    >>> data = torch.zeros(2, 4), torch.tensor([0, 1])
    >>> round(float(OutputEntropy()(Subject(torch.nn.Identity(), "cross_entropy", data))), 4)
    1.3863
    """

    method = ("E10",)
    cites = ("jiang2020fantastic",)
    direction = "higher"
    needs = frozenset({"classification"})
    invariant_to = frozenset({"sample-order", "unit-permutation", "relu-rescaling", "duplication"})

    def compute(self, subject: Subject) -> Estimate:
        """Return the mean, and the entropies of all samples."""
        entropies = {"training data": _entropies(subject.outputs("train"))}
        if subject.test is not None:
            entropies["test data"] = _entropies(subject.outputs("test"))
        chart = Histogram.of(
            entropies,
            clip_low=False,
            title="Entropy of the outputs",
            caption="The last bin also counts what lies beyond it.",
            x_label="entropy of a sample's class probabilities (nats)",
            y_label="share of samples (± 1 s.e.)",
            shares=True,
        )
        return Estimate(value=float(entropies["training data"].mean()), charts=(chart,))


def _entropies(outputs: torch.Tensor) -> torch.Tensor:
    logs = outputs.double().log_softmax(1)
    return -(logs.exp() * logs).sum(1)
