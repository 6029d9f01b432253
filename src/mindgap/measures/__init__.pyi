# Written by mindgap.core.stubs; do not edit.
from mindgap.measures.distance_from_initialisation import DistanceFromInitialisation as DistanceFromInitialisation
from mindgap.measures.gap import Gap as Gap
from mindgap.measures.margin import Margin as Margin
from mindgap.measures.pacgen import Pacgen as Pacgen
from mindgap.measures.pacgen_null import PacgenNull as PacgenNull
from mindgap.measures.parameter_count import ParameterCount as ParameterCount
from mindgap.measures.parameter_norm import ParameterNorm as ParameterNorm
from mindgap.measures.slope_in_cells import SlopeInCells as SlopeInCells
from mindgap.measures.train_loss import TrainLoss as TrainLoss

__all__: list[str]
