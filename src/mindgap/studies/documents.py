"""Documents: the sources of the methods, with every table, figure and claim that can be tested.

The lists are facts of the documents, not of the code. A study says in ``reproduces`` which entries
it is about, and ``mindgap reproduce --list`` shows what is left.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from mindgap.core import unknown_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """A paper or a lecture.

    Args:
        name: A short name for the command line.
        letters: The letters of its methods' ids.
        title: Its title.
        cites: Keys of references.bib.
        items: Its tables, figures and claims in order, each with what it shows.
    """

    name: str
    letters: str
    title: str
    cites: tuple[str, ...]
    items: Mapping[str, str]


DOCUMENTS: Sequence[Document] = (
    Document(
        name="vbsw",
        letters="VT",
        title="Variance based samples weighting for supervised deep learning",
        cites=("novello2020variance",),
        items={
            "Equation 4": "the variance of f(x + noise) tends to the Taylor metric",
            "Figure 1": "double moon: weights and decision boundaries",
            "Table 1": "double moon and Boston housing",
            "Table 2": "MNIST with LeNet-5 and CIFAR-10 with ResNet-20",
            "Figure 2": "images with large weights",
            "Table 3": "RTE, STS-B and MRPC on text features",
            "Figure 3": "Taylor based sampling of Runge and tanh",
            "Table 4": "error on Runge and tanh by sampling",
            "Figure 4": "Bateman equations: where sampling helps",
            "Table 5": "error on the Bateman equations by sampling",
            "Figure 5": "Boston housing: error over m and k",
        },
    ),
    Document(
        name="pacgen",
        letters="P",
        title="Identifying generalization properties in neural networks",
        cites=("wang2018identifying",),
        items={
            "Figure 1": "a sharp and a flat optimum of a network with two weights",
            "Figure 2": "MNIST: gap and Ψ by batch size",
            "Figure 3": "CIFAR-10: gap and Ψ by batch size",
            "Figure 4": "MNIST: gap and Ψ by learning rate",
            "Figure 5": "CIFAR-10: gap and Ψ by learning rate",
            "Section 5": "rescaling ReLU layers moves the bound by a logarithm only",
            "Figure 6": "PerturbedOPT on CIFAR-10, CIFAR-100 and Tiny ImageNet",
            "Figure 7": "PerturbedOPT and dropout on CIFAR-10",
            "Figure 8": "PerturbedOPT and dropout on CIFAR-100 (perturbed-figure-6 --data cifar100)",
            "Figure 9": "PerturbedOPT and dropout on Tiny ImageNet (perturbed-figure-6 --data tiny-imagenet)",
        },
    ),
    Document(
        name="darc",
        letters="K",
        title="Understanding generalization in deep learning",
        cites=("ou2018understanding", "kawaguchi2017generalization"),
        items={
            "Worked examples": "bounds of 6.94 %, 24 % and 1.4 %",
            "Random labels": "traditional bounds cannot explain why networks generalize",
            "Good data set": "the gap depends on the quality of the data set",
            "Two-phase training": "error relative to plain training over α (figure)",
            "DARC1": "test error relative to the plain loss (table)",
            "DARC1 on ILSVRC 2012": "error by epoch with and without DARC1 (figure)",
            "Linear models": "weights of any size fit and generalize (theorem)",
            "Paradox": "sharp, unstable and non-robust, with a small gap (proposition)",
        },
    ),
    Document(
        name="expressivity",
        letters="E",
        title="Learning with deep networks: expressivity, optimization and generalization",
        cites=("ollion2018learning",),
        items={
            "Error decomposition": "approximation, estimation and optimization error",
            "Rectangles": "functions made of ReLU rectangles (2 figures)",
            "Oscillations": "one layer more doubles the oscillations (4 figures)",
            "Shallow and deep": "20 hidden units against two layers of 10 (figure)",
            "Loss of an MLP": "all samples and mini-batches, two weights (2 figures)",
            "Saddles": "seeds end in similar losses, SGD leaves saddles (figure)",
            "Deeper ConvNets": "plain networks of 56 layers train worse than of 20 (figure)",
            "Optimizers": "preconditioners repair bad conditioning",
            "Rare words": "rare words need larger learning rates",
            "Normalization": "batch, layer and weight normalization",
            "Copied data": "copies double the cost of full-batch training, not of SGD",
            "Remedies": "weight decay, early stopping, augmentation, dropout, snapshots",
            "Too much noise": "strong noise can prevent training",
            "Capacity": "trees, polynomials and MLPs on one curve (18 figures)",
            "Random labels": "loss curves, time to fit, test error by corruption (figure)",
            "What generalizes": "activation, depth, batch size or initial scale (question)",
            "Batch size": "large batches end in sharp minima (figure)",
            "Good and bad minima": "training that ends in a bad minimum (6 figures)",
            "Widths": "training and test accuracy of widths 4 to 512 (figure)",
            "Geometry of the loss": "surfaces with and without skip connections (figure)",
            "Lipschitz constant": "a measure of capacity (4 figures)",
            "Compression": "compressible networks resist noise",
            "Stronger optimizer": "a stronger optimizer is not a stronger learner",
        },
    ),
    Document(
        name="stability",
        letters="S",
        title="Mathematics of deep learning: stability and robustness",
        cites=("scaman_stability",),
        items={
            "Elman network": "large gradients, drops in accuracy, random results (figure)",
            "Initialization": "variances over layers of Kaiming and Xavier",
            "Batch normalization": "training and evaluation differ",
            "Adversarial examples": "small noise changes predictions (3 figures)",
            "Interpolation": "the Lipschitz constant is below that of the target",
            "Depth": "the product of layer norms grows exponentially",
            "Good and poor": "regular models generalize better (2 figures)",
            "Error decomposition": "generalization, optimization, statistical, approximation",
            "Double descent": "test error falls again beyond the threshold (3 figures)",
            "Grokking": "generalization long after fitting (figure and table)",
        },
    ),
)


def document_of(word: str) -> Document:
    """Find a document by its name or by a letter of its methods.

    Args:
        word: For example ``"vbsw"`` or ``"V"``.

    >>> document_of("E").name
    'expressivity'
    """
    for document in DOCUMENTS:
        if word == document.name or (len(word) == 1 and word.upper() in document.letters):
            return document
    raise unknown_name("document", word, [document.name for document in DOCUMENTS])
