# Written by `make generate`; do not edit.
from mindgap.studies.batch_size.gap import BatchSizeGap as BatchSizeGap
from mindgap.studies.batch_size.large_batch import LargeBatch as LargeBatch
from mindgap.studies.certificates.certificates import Certificates as Certificates
from mindgap.studies.certificates.coverage import CertificateCoverage as CertificateCoverage
from mindgap.studies.darc.by_epoch import DARCByEpoch as DARCByEpoch
from mindgap.studies.darc.darc1 import DARC1 as DARC1
from mindgap.studies.darc.good_data import GoodDataSet as GoodDataSet
from mindgap.studies.darc.linear_failure import LinearFailure as LinearFailure
from mindgap.studies.darc.paradox import Paradox as Paradox
from mindgap.studies.darc.random_labels import RandomLabels as RandomLabels
from mindgap.studies.darc.two_phase import TwoPhaseRatio as TwoPhaseRatio
from mindgap.studies.diagnoses.false_alarms import FalseAlarms as FalseAlarms
from mindgap.studies.diagnoses.planted import PlantedProblems as PlantedProblems
from mindgap.studies.improve.coverage import IntervalCoverage as IntervalCoverage
from mindgap.studies.improve.real import DoesImproveHelp as DoesImproveHelp
from mindgap.studies.improve.simulated import SimulatedRaces as SimulatedRaces
from mindgap.studies.pacgen.figure1 import PacgenFigure1 as PacgenFigure1
from mindgap.studies.pacgen.figure2 import PacgenFigure2 as PacgenFigure2
from mindgap.studies.pacgen.rescaling import PacgenRescaling as PacgenRescaling
from mindgap.studies.perturbed.figure6 import PerturbedFigure6 as PerturbedFigure6
from mindgap.studies.perturbed.mnist import PerturbedMnist as PerturbedMnist
from mindgap.studies.perturbed.variants import PerturbedVariants as PerturbedVariants
from mindgap.studies.stability.leave_one_out import LeaveOneOut as LeaveOneOut
from mindgap.studies.tbs.figure3 import TbsFigure3 as TbsFigure3
from mindgap.studies.tbs.figure4 import TbsFigure4 as TbsFigure4
from mindgap.studies.tbs.table4 import TbsTable4 as TbsTable4
from mindgap.studies.tbs.table5 import TbsTable5 as TbsTable5
from mindgap.studies.vbsw.figure1 import VbswFigure1 as VbswFigure1
from mindgap.studies.vbsw.figure2 import VbswFigure2 as VbswFigure2
from mindgap.studies.vbsw.figure5 import VbswFigure5 as VbswFigure5
from mindgap.studies.vbsw.table1 import VbswTable1 as VbswTable1
from mindgap.studies.vbsw.table2 import VbswTable2 as VbswTable2
from mindgap.studies.vbsw.table3 import VbswTable3 as VbswTable3
from mindgap.studies.vbsw.variance_and_derivatives import VarianceAndDerivatives as VarianceAndDerivatives
from mindgap.studies.vbsw.when_it_helps import WhenVbswHelps as WhenVbswHelps

__all__: list[str]
