"""Data sets, each one file that registers itself: readers and generators; splits and noise."""

from mindgap._lazy import lazy

lazy(
    __name__,
    {
        "bateman": "bateman bateman_system",
        "boston_housing": "boston",
        "california_housing": "california",
        "catalog": "available load",
        "cifar": "cifar10 cifar100",
        "dataset": "DataSet dataset",
        "digits": "digits",
        "gaussian_mixture": "gaussian_mixture",
        "generators": "heteroscedastic teacher two_moons",
        "glue": "mrpc rte stsb",
        "mnist": "mnist",
        "modular": "modular_arithmetic",
        "noise": "gaussian_noise label_noise with_label_noise",
        "splits": "standardize stratified_folds stratified_split",
        "text.encode": "encode",
        "text.vocabulary": "Vocabulary",
        "tiny_imagenet": "tiny_imagenet",
        "uci_tables": "uci",
    },
)
