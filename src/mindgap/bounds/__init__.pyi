# Written by mindgap.core.stubs; do not edit.
from mindgap.bounds.binomial_tail import BinomialTail as BinomialTail
from mindgap.bounds.kl_inverse import KlInverse as KlInverse
from mindgap.bounds.statistical_error import StatisticalError as StatisticalError
from mindgap.bounds.validation_set_guarantee import ValidationSetGuarantee as ValidationSetGuarantee

__all__: list[str]
