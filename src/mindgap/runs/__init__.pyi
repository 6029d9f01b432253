# Written by `make generate`; do not edit.
from mindgap.runs.executors import DaskExecutor as DaskExecutor
from mindgap.runs.executors import LocalExecutor as LocalExecutor
from mindgap.runs.executors import RayExecutor as RayExecutor
from mindgap.runs.executors import SerialExecutor as SerialExecutor
from mindgap.runs.results import load_results as load_results
from mindgap.runs.results import results_page as results_page
from mindgap.runs.results import save_results as save_results
from mindgap.runs.store import Store as Store
from mindgap.runs.sweep import Sweep as Sweep
from mindgap.runs.sweep import sweep as sweep
from mindgap.runs.trial_id import trial_id as trial_id
from mindgap.runs.tried import tried as tried

__all__: list[str]
