# Written by mindgap.core.stubs; do not edit.
from mindgap.studies.batch_size_gap import BatchSizeGap as BatchSizeGap

__all__: list[str]
