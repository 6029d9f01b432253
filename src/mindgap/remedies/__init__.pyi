# Written by `make generate`; do not edit.
from mindgap.remedies.asam import ASAM as ASAM
from mindgap.remedies.dropout import Dropout as Dropout
from mindgap.remedies.early_stopping import EarlyStopping as EarlyStopping
from mindgap.remedies.gradient_clipping import GradientClipping as GradientClipping
from mindgap.remedies.perturbed import Perturbed as Perturbed
from mindgap.remedies.sam import SAM as SAM
from mindgap.remedies.variance_weighting import VarianceWeighting as VarianceWeighting
from mindgap.remedies.weight_decay import WeightDecay as WeightDecay

__all__: list[str]
