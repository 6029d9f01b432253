# Written by `make generate`; do not edit.
from mindgap.data.bateman import bateman as bateman
from mindgap.data.bateman import bateman_system as bateman_system
from mindgap.data.boston_housing import boston as boston
from mindgap.data.california_housing import california as california
from mindgap.data.catalog import available as available
from mindgap.data.catalog import load as load
from mindgap.data.cifar import cifar10 as cifar10
from mindgap.data.cifar import cifar100 as cifar100
from mindgap.data.dataset import DataSet as DataSet
from mindgap.data.dataset import dataset as dataset
from mindgap.data.digits import digits as digits
from mindgap.data.gaussian_mixture import gaussian_mixture as gaussian_mixture
from mindgap.data.generators import heteroscedastic as heteroscedastic
from mindgap.data.generators import teacher as teacher
from mindgap.data.generators import two_moons as two_moons
from mindgap.data.glue import mrpc as mrpc
from mindgap.data.glue import rte as rte
from mindgap.data.glue import stsb as stsb
from mindgap.data.mnist import mnist as mnist
from mindgap.data.modular import modular_arithmetic as modular_arithmetic
from mindgap.data.noise import gaussian_noise as gaussian_noise
from mindgap.data.noise import label_noise as label_noise
from mindgap.data.noise import with_label_noise as with_label_noise
from mindgap.data.splits import standardize as standardize
from mindgap.data.splits import stratified_folds as stratified_folds
from mindgap.data.splits import stratified_split as stratified_split
from mindgap.data.text.encode import encode as encode
from mindgap.data.text.vocabulary import Vocabulary as Vocabulary
from mindgap.data.tiny_imagenet import tiny_imagenet as tiny_imagenet
from mindgap.data.uci_tables import uci as uci

__all__: list[str]
