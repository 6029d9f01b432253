# Written by `make generate`; do not edit.
from mindgap.measures.basic.area_under_roc import AreaUnderRoc as AreaUnderRoc
from mindgap.measures.basic.balanced_error import BalancedError as BalancedError
from mindgap.measures.basic.gap import Gap as Gap
from mindgap.measures.basic.gate_flips import GateFlips as GateFlips
from mindgap.measures.basic.hardest_samples import HardestSamples as HardestSamples
from mindgap.measures.basic.parameter_count import ParameterCount as ParameterCount
from mindgap.measures.basic.r_squared import RSquared as RSquared
from mindgap.measures.basic.root_mean_squared_error import RootMeanSquaredError as RootMeanSquaredError
from mindgap.measures.basic.training_loss import TrainingLoss as TrainingLoss
from mindgap.measures.basic.vc_as_published import VcAsPublished as VcAsPublished
from mindgap.measures.basic.worst_class_error import WorstClassError as WorstClassError
from mindgap.measures.basic.worst_label_error import WorstLabelError as WorstLabelError
from mindgap.measures.curvature.pacgen import Pacgen as Pacgen
from mindgap.measures.curvature.pacgen_null import PacgenNull as PacgenNull
from mindgap.measures.data.data_set_quality import DataSetQuality as DataSetQuality
from mindgap.measures.data.local_label_variance import LocalLabelVariance as LocalLabelVariance
from mindgap.measures.data.path_space_limit import PathSpaceLimit as PathSpaceLimit
from mindgap.measures.data.slope_in_cells import SlopeInCells as SlopeInCells
from mindgap.measures.data.train_test_overlap import TrainTestOverlap as TrainTestOverlap
from mindgap.measures.margins.margin import Margin as Margin
from mindgap.measures.norms.distance_from_initialization import DistanceFromInitialization as DistanceFromInitialization
from mindgap.measures.norms.parameter_norm import ParameterNorm as ParameterNorm
from mindgap.measures.robustness.loss_variation_in_cells import LossVariationInCells as LossVariationInCells
from mindgap.measures.robustness.robust_accuracy import RobustAccuracy as RobustAccuracy
from mindgap.measures.stability.fitted_signs import FittedSigns as FittedSigns
from mindgap.measures.stability.leave_one_out_stability import LeaveOneOutStability as LeaveOneOutStability
from mindgap.measures.stability.rademacher_complexity import RademacherComplexity as RademacherComplexity
from mindgap.measures.stability.self_influence import SelfInfluence as SelfInfluence

__all__: list[str]
