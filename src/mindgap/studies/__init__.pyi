# Written by mindgap.core.stubs; do not edit.
from mindgap.studies.batch_size_gap import BatchSizeGap as BatchSizeGap
from mindgap.studies.vbsw_figure5 import VbswFigure5 as VbswFigure5
from mindgap.studies.vbsw_table1 import VbswTable1 as VbswTable1
from mindgap.studies.when_vbsw_helps import WhenVbswHelps as WhenVbswHelps

__all__: list[str]
