# Written by `make generate`; do not edit.
from mindgap.sampling.acquisition import Acquisition as Acquisition
from mindgap.sampling.box import Box as Box
from mindgap.sampling.box import Domain as Domain
from mindgap.sampling.domain import Product as Product
from mindgap.sampling.domain import Simplex as Simplex
from mindgap.sampling.domain import Where as Where
from mindgap.sampling.initial_design import initial_design as initial_design
from mindgap.sampling.proposal import Proposal as Proposal
from mindgap.sampling.taylor_sampler import Sampled as Sampled
from mindgap.sampling.taylor_sampler import TaylorSampler as TaylorSampler
from mindgap.sampling.trail import Asked as Asked

__all__: list[str]
