"""Statistics: intervals, comparisons of arms, corrections for many tests, inverses of tails."""

from mindgap._lazy import lazy

lazy(
    __name__,
    {
        "comparisons": "Nested Paired binary_kl binomial_tail_inverse bootstrap holm kendall_tau "
        "kl_inverse mean_interval paired paired_nested proportion_interval spearman standard_error",
        "two_way": "TwoWay minimum_detectable stratified two_way",
    },
)
