"""The vocabulary: what is examined, what examines it, and what comes out; no algorithm.

Outside this folder its names are imported from here: ``from mindgap.core import Measure, Subject,
option``.
"""

from mindgap._lazy import lazy

lazy(
    __name__,
    {
        "bound": "Bound Terms",
        "certificate": "Certificate",
        "chart": "Bar Chart Contour Gallery Heatmap Histogram Line Mark Points Sample Scatter Series "
        "Surface",
        "checks": "choice generator integer number rate",
        "errors": "CheckpointError DataUnavailableError InputError MindgapError MissingExtraError "
        "UnknownNameError require unknown_name",
        "files": "write_whole",
        "loss": "Loss Task align as_loss",
        "measure": "Cost Direction Estimate Measure Undefined",
        "plain": "canonical ordered plain restored",
        "progress": "Progress",
        "purity": "evaluating seeded",
        "recipe": "Recipe",
        "references": "citation reference",
        "registry": "FAMILIES catalog find functions",
        "remedy": "Remedy Stack Symptom TrainingState",
        "result": "Interval Result",
        "spec": "Spec implements option",
        "split": "Batch Inputs Split as_split as_tensor check_finite part",
        "stats": "Nested Paired binomial_tail_inverse holm kl_inverse mean_interval paired "
        "paired_nested proportion_interval spearman standard_error",
        "study": "Record Study Trial",
        "subject": "Subject Which call check_classes typed",
        "table": "Table",
    },
)
