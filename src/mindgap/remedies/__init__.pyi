# Written by `make generate`; do not edit.
from mindgap.remedies.augmentation.input_noise import InputNoise as InputNoise
from mindgap.remedies.augmentation.mixup import Mixup as Mixup
from mindgap.remedies.augmentation.random_flips import RandomFlips as RandomFlips
from mindgap.remedies.augmentation.random_shifts import RandomShifts as RandomShifts
from mindgap.remedies.penalties.label_smoothing import LabelSmoothing as LabelSmoothing
from mindgap.remedies.penalties.logit_penalty import LogitPenalty as LogitPenalty
from mindgap.remedies.penalties.weight_decay import WeightDecay as WeightDecay
from mindgap.remedies.perturbation.adversarial_training import AdversarialTraining as AdversarialTraining
from mindgap.remedies.perturbation.asam import ASAM as ASAM
from mindgap.remedies.perturbation.dropout import Dropout as Dropout
from mindgap.remedies.perturbation.perturbed import Perturbed as Perturbed
from mindgap.remedies.perturbation.sam import SAM as SAM
from mindgap.remedies.schedules.annealing import Annealing as Annealing
from mindgap.remedies.schedules.early_stopping import EarlyStopping as EarlyStopping
from mindgap.remedies.schedules.gradient_clipping import GradientClipping as GradientClipping
from mindgap.remedies.schedules.plateau_annealing import PlateauAnnealing as PlateauAnnealing
from mindgap.remedies.schedules.snapshot_ensemble import SnapshotEnsemble as SnapshotEnsemble
from mindgap.remedies.schedules.two_phase import TwoPhase as TwoPhase
from mindgap.remedies.schedules.weight_averaging import WeightAveraging as WeightAveraging
from mindgap.remedies.smoothness.gradient_penalty import GradientPenalty as GradientPenalty
from mindgap.remedies.smoothness.jacobian_penalty import JacobianPenalty as JacobianPenalty
from mindgap.remedies.smoothness.orthogonal_regularization import OrthogonalRegularization as OrthogonalRegularization
from mindgap.remedies.smoothness.spectral_normalization import SpectralNormalization as SpectralNormalization
from mindgap.remedies.weighting.active_bias import ActiveBias as ActiveBias
from mindgap.remedies.weighting.class_balance import ClassBalance as ClassBalance
from mindgap.remedies.weighting.hard_examples import HardExamples as HardExamples
from mindgap.remedies.weighting.self_paced import SelfPaced as SelfPaced
from mindgap.remedies.weighting.variance_weighting import VarianceWeighting as VarianceWeighting

__all__: list[str]
