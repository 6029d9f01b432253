"""Where to evaluate an expensive function next: Taylor Based Sampling in boxes, simplices and other domains."""

from mindgap._lazy import lazy

lazy(
    __name__,
    {
        "acquisition": "Interest",
        "domain": "Box Domain Product Simplex Where",
        "initial_design": "start_points",
        "proposal": "Draw",
        "taylor_sampler": "Sampled TaylorSampler",
        "trail": "Asked",
    },
)
