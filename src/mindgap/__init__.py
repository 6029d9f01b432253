"""mindgap: will your PyTorch network generalize, why not, and what helps?

The names below are all that most users need; everything else is in the packages
(``mindgap.measures``, ``mindgap.bounds``, ``mindgap.remedies``, ``mindgap.studies``,
``mindgap.data``, ``mindgap.nets``, ``mindgap.sampling``, ``mindgap.integrations``,
``mindgap.runs``). Names are imported when they are first used, so that ``import mindgap`` costs
nothing.
"""

from mindgap._lazy import lazy
from mindgap._version import __version__ as __version__

lazy(
    __name__,
    {
        "core.certificate": "Certificate",
        "core.errors": "MindgapError",
        "core.recipe": "Recipe",
        "core.registry": "catalog find",
        "core.result": "Result",
        "core.subject": "Subject",
        "jobs.examine": "examine",
        "jobs.head.choose": "choose_head retrain_head",
        "ops.variance.estimator": "VarianceWeights",
        "report.report": "Report",
        "runs.sweep": "sweep",
        "training.certify.job": "certify",
        "training.ensemble": "ensemble",
        "training.fit": "fit",
        "training.perturbed_optimizer": "PerturbedOptimizer",
        "training.probe": "Probe",
        **dict.fromkeys(
            (
                "bounds",
                "data",
                "integrations",
                "measures",
                "nets",
                "remedies",
                "runs",
                "sampling",
                "studies",
            ),
            "",
        ),
    },
)
