"""The vocabulary: what is examined, what examines it, and what comes out; no algorithm.

Outside this folder its names are imported from here: ``from mindgap.core import Measure, Subject,
option``.
"""

from mindgap._lazy import lazy

lazy(
    __name__,
    {
        "bound": "Bound Terms",
        "calls": "call checked_call copied instability mapped values with_weights",
        "certificate": "Certificate",
        "chart": "Bar Chart Contour Gallery Heatmap Histogram Line Mark Points Sample Scatter Series "
        "Surface Ticks",
        "checks": "check_type choice generator integer number rate validated",
        "diagnosis": "Advice Diagnosis Evidence Finding Kind Results Suspects",
        "errors": "CheckpointError DataUnavailableError InputError MindgapError MissingExtraError "
        "NotFiniteError UnknownNameError require shown unknown_name",
        "estimator": "EstimatorModule kind_of",
        "files": "expanded write_as write_whole",
        "loss": "Loss Task align as_loss",
        "measure": "Cost Direction Estimate Measure Undefined",
        "plain": "canonical check_types ordered parsed plain restored unworded",
        "progress": "Progress",
        "purity": "evaluating same_environment seeded",
        "recipe": "Recipe",
        "references": "citation reference",
        "registry": "FAMILIES catalog find functions",
        "remedy": "Losses Remedy Stack StackState Symptom TrainingState",
        "result": "Interval Result",
        "special": "binomial_upper_tail chi_square_tail hypergeometric_tail normal_tail",
        "spec": "Spec implements option",
        "split": "Batch Inputs Split as_split as_tensor check_finite part",
        "stats.comparisons": "Nested Paired holm mean_interval paired paired_nested spearman standard_error",
        "stats.jackknife": "grouped_jackknife jackknife_error jackknife_groups",
        "stats.proportions": "binomial_tail_inverse kl_inverse proportion_interval",
        "stats.two_way": "TwoWay minimum_detectable stratified two_way",
        "study": "Record Study Trial",
        "subject": "Subject Which check_classes typed",
        "table": "Claim Table",
    },
)
