"""Taylor Based Sampling: choose where to evaluate an expensive function next."""

from mindgap.sampling.domain import Box, Domain, Product, Simplex, Where
from mindgap.sampling.draw import Draw
from mindgap.sampling.interest import Interest
from mindgap.sampling.starts import start_points
from mindgap.sampling.taylor_sampler import Sampled, TaylorSampler
from mindgap.sampling.trail import Asked

__all__ = [
    "Asked",
    "Box",
    "Domain",
    "Draw",
    "Interest",
    "Product",
    "Sampled",
    "Simplex",
    "TaylorSampler",
    "Where",
    "start_points",
]
