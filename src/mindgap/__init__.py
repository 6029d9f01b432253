"""mindgap: will your PyTorch network generalize, why not, and what helps?

The names below are all that most users need: a noun such as ``Subject`` or ``Recipe``, or a verb
such as ``examine`` or ``fit``. Everything else is in the packages ``mindgap.measures``, ``bounds``,
``remedies``, ``studies``, ``data``, ``nets``, ``sampling``, ``integrations`` and ``runs``. Names
are imported when they are first used, so that ``import mindgap`` costs nothing.
"""

from mindgap._lazy import lazy
from mindgap._version import __version__ as __version__

lazy(
    __name__,
    {
        "bounds": "",
        "core.certificate": "Certificate",
        "core.errors": "MindgapError",
        "core.recipe": "Recipe",
        "core.registry": "catalog find",
        "core.result": "Result",
        "core.subject": "Subject",
        "core.diagnosis": "Finding",
        "data": "",
        "diagnoses": "",
        "diagnoses.diagnose": "diagnose",
        "integrations": "",
        "jobs.attack.job": "attack",
        "jobs.compare": "compare",
        "jobs.decompose.job": "decompose",
        "jobs.examine": "examine",
        "jobs.explain": "explain",
        "jobs.head.choose": "choose_head retrain_head",
        "jobs.improve.job": "improve",
        "jobs.initialize.job": "initialize",
        "jobs.landscape.job": "landscape",
        "jobs.lipschitz.job": "lipschitz",
        "jobs.monitor.job": "monitor",
        "jobs.reproduce": "reproduce",
        "jobs.sample.job": "sample",
        "jobs.weigh.job": "weigh",
        "measures": "",
        "nets": "",
        "ops.initialization.propagation": "propagation",
        "ops.initialization.reinitialize": "reinitialized",
        "ops.variance.estimator": "VarianceWeights",
        "remedies": "",
        "report.report": "Report",
        "runs": "",
        "runs.sweep": "sweep",
        "sampling": "",
        "studies": "",
        "training.certify.job": "certify",
        "training.ensemble": "ensemble",
        "training.fit": "fit",
        "training.monitor.monitor": "Monitor",
        "training.perturbed_optimizer": "PerturbedOptimizer",
        "training.probe": "Probe",
    },
)
