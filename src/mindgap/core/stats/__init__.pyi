# Written by `make generate`; do not edit.
from mindgap.core.stats.comparisons import Nested as Nested
from mindgap.core.stats.comparisons import Paired as Paired
from mindgap.core.stats.comparisons import bootstrap as bootstrap
from mindgap.core.stats.comparisons import holm as holm
from mindgap.core.stats.comparisons import kendall_tau as kendall_tau
from mindgap.core.stats.comparisons import mean_interval as mean_interval
from mindgap.core.stats.comparisons import paired as paired
from mindgap.core.stats.comparisons import paired_nested as paired_nested
from mindgap.core.stats.comparisons import spearman as spearman
from mindgap.core.stats.comparisons import standard_error as standard_error
from mindgap.core.stats.proportions import binary_kl as binary_kl
from mindgap.core.stats.proportions import binomial_tail_inverse as binomial_tail_inverse
from mindgap.core.stats.proportions import kl_inverse as kl_inverse
from mindgap.core.stats.proportions import proportion_interval as proportion_interval
from mindgap.core.stats.two_way import TwoWay as TwoWay
from mindgap.core.stats.two_way import minimum_detectable as minimum_detectable
from mindgap.core.stats.two_way import stratified as stratified
from mindgap.core.stats.two_way import two_way as two_way

__all__: list[str]
