"""Where to evaluate an expensive function next: Taylor Based Sampling in bounded domains."""

from mindgap._lazy import lazy

lazy(
    __name__,
    {
        "acquisition": "Acquisition",
        "domain": "Box Domain Product Simplex Where",
        "initial_design": "initial_design",
        "proposal": "Proposal",
        "taylor_sampler": "Sampled TaylorSampler",
        "trail": "Asked",
    },
)
