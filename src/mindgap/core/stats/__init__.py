"""Statistics: intervals, comparisons of arms, corrections for many tests, inverses of tails."""

from mindgap._lazy import lazy

lazy(
    __name__,
    {
        "comparisons": "Nested Paired bootstrap holm kendall_tau mean_interval paired paired_nested "
        "spearman standard_error",
        "proportions": "binary_kl binomial_tail_inverse kl_inverse proportion_interval",
        "two_way": "TwoWay minimum_detectable stratified two_way",
    },
)
