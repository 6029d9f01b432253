# Written by `make generate`; do not edit.
from mindgap.remedies.active_bias import ActiveBias as ActiveBias
from mindgap.remedies.adversarial_training import AdversarialTraining as AdversarialTraining
from mindgap.remedies.annealing import Annealing as Annealing
from mindgap.remedies.asam import ASAM as ASAM
from mindgap.remedies.class_balance import ClassBalance as ClassBalance
from mindgap.remedies.dropout import Dropout as Dropout
from mindgap.remedies.early_stopping import EarlyStopping as EarlyStopping
from mindgap.remedies.gradient_clipping import GradientClipping as GradientClipping
from mindgap.remedies.hard_examples import HardExamples as HardExamples
from mindgap.remedies.input_noise import InputNoise as InputNoise
from mindgap.remedies.label_smoothing import LabelSmoothing as LabelSmoothing
from mindgap.remedies.logit_penalty import LogitPenalty as LogitPenalty
from mindgap.remedies.mixup import Mixup as Mixup
from mindgap.remedies.perturbed import Perturbed as Perturbed
from mindgap.remedies.plateau_annealing import PlateauAnnealing as PlateauAnnealing
from mindgap.remedies.random_flips import RandomFlips as RandomFlips
from mindgap.remedies.random_shifts import RandomShifts as RandomShifts
from mindgap.remedies.sam import SAM as SAM
from mindgap.remedies.self_paced import SelfPaced as SelfPaced
from mindgap.remedies.two_phase import TwoPhase as TwoPhase
from mindgap.remedies.variance_weighting import VarianceWeighting as VarianceWeighting
from mindgap.remedies.weight_averaging import WeightAveraging as WeightAveraging
from mindgap.remedies.weight_decay import WeightDecay as WeightDecay

__all__: list[str]
