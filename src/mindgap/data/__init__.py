"""Data sets: official files with checksums, generators, label noise, splits."""

from mindgap.data.bateman import bateman, bateman_system
from mindgap.data.boston_housing import boston
from mindgap.data.california_housing import california
from mindgap.data.catalogue import available, load
from mindgap.data.cifar import cifar10
from mindgap.data.dataset import DataSet
from mindgap.data.encoders import encode
from mindgap.data.generators import heteroscedastic, teacher, two_moons
from mindgap.data.glue import mrpc, rte, stsb
from mindgap.data.mixture import gaussian_mixture
from mindgap.data.mnist_idx import mnist
from mindgap.data.modular import modular_arithmetic
from mindgap.data.noise import gaussian_noise, label_noise, with_label_noise
from mindgap.data.optical_digits import digits
from mindgap.data.scaling import standardize
from mindgap.data.splits import stratified_folds, stratified_split
from mindgap.data.uci_tables import uci
from mindgap.data.vocabulary import Vocabulary

__all__ = [
    "DataSet",
    "Vocabulary",
    "available",
    "bateman",
    "bateman_system",
    "boston",
    "california",
    "cifar10",
    "digits",
    "encode",
    "gaussian_mixture",
    "gaussian_noise",
    "heteroscedastic",
    "label_noise",
    "load",
    "mnist",
    "modular_arithmetic",
    "mrpc",
    "rte",
    "standardize",
    "stratified_folds",
    "stratified_split",
    "stsb",
    "teacher",
    "two_moons",
    "uci",
    "with_label_noise",
]
