# Written by mindgap.core.stubs; do not edit.
from mindgap.studies.batch_size_gap import BatchSizeGap as BatchSizeGap
from mindgap.studies.certificate_coverage import CertificateCoverage as CertificateCoverage
from mindgap.studies.certificates import Certificates as Certificates
from mindgap.studies.pacgen_figure1 import PacgenFigure1 as PacgenFigure1
from mindgap.studies.pacgen_figure2 import PacgenFigure2 as PacgenFigure2
from mindgap.studies.pacgen_rescaling import PacgenRescaling as PacgenRescaling
from mindgap.studies.perturbed_figure6 import PerturbedFigure6 as PerturbedFigure6
from mindgap.studies.perturbed_mnist import PerturbedMnist as PerturbedMnist
from mindgap.studies.perturbed_variants import PerturbedVariants as PerturbedVariants
from mindgap.studies.tbs_figure3 import TbsFigure3 as TbsFigure3
from mindgap.studies.tbs_figure4 import TbsFigure4 as TbsFigure4
from mindgap.studies.tbs_table4 import TbsTable4 as TbsTable4
from mindgap.studies.tbs_table5 import TbsTable5 as TbsTable5
from mindgap.studies.variance_and_derivatives import VarianceAndDerivatives as VarianceAndDerivatives
from mindgap.studies.vbsw_figure1 import VbswFigure1 as VbswFigure1
from mindgap.studies.vbsw_figure2 import VbswFigure2 as VbswFigure2
from mindgap.studies.vbsw_figure5 import VbswFigure5 as VbswFigure5
from mindgap.studies.vbsw_table1 import VbswTable1 as VbswTable1
from mindgap.studies.vbsw_table2 import VbswTable2 as VbswTable2
from mindgap.studies.vbsw_table3 import VbswTable3 as VbswTable3
from mindgap.studies.when_vbsw_helps import WhenVbswHelps as WhenVbswHelps

__all__: list[str]
