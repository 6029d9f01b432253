# Written by `make generate`; do not edit.
from mindgap.bounds.binomial_tail import BinomialTail as BinomialTail
from mindgap.bounds.compressed_network import CompressedNetwork as CompressedNetwork
from mindgap.bounds.data_independent import DataIndependent as DataIndependent
from mindgap.bounds.kl_inverse import KlInverse as KlInverse
from mindgap.bounds.koltchinskii_panchenko import KoltchinskiiPanchenko as KoltchinskiiPanchenko
from mindgap.bounds.pac_bayes_catoni import PacBayesCatoni as PacBayesCatoni
from mindgap.bounds.pac_bayes_hessian import PacBayesHessian as PacBayesHessian
from mindgap.bounds.pac_bayes_hoeffding import PacBayesHoeffding as PacBayesHoeffding
from mindgap.bounds.pac_bayes_kl import PacBayesKl as PacBayesKl
from mindgap.bounds.pac_bayes_mixture import PacBayesMixture as PacBayesMixture
from mindgap.bounds.pac_bayes_quadratic import PacBayesQuadratic as PacBayesQuadratic
from mindgap.bounds.rademacher import Rademacher as Rademacher
from mindgap.bounds.robustness_over_partition import RobustnessOverPartition as RobustnessOverPartition
from mindgap.bounds.spectral_margin import SpectralMargin as SpectralMargin
from mindgap.bounds.statistical_error import StatisticalError as StatisticalError
from mindgap.bounds.validation_set_guarantee import ValidationSetGuarantee as ValidationSetGuarantee
from mindgap.bounds.vc_dimension import VcDimension as VcDimension

__all__: list[str]
