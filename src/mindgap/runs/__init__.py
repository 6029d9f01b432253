"""Runs: the trials of a study, run anywhere, kept in one file, and never run twice."""

from mindgap._lazy import lazy

lazy(
    __name__,
    {
        "executors": "DaskExecutor LocalExecutor RayExecutor SerialExecutor",
        "results": "load_results results_page save_results",
        "store": "Store",
        "sweep": "Sweep sweep",
        "trial_id": "trial_id",
        "tried": "tried",
    },
)
