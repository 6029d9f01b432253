"""Healthy networks that many diagnoses must not accuse, each trained once per process."""

from __future__ import annotations

import functools

from mindgap.core import Kind, Subject
from mindgap.studies.diagnoses.healthy import healthy_recipe
from mindgap.training.fit import fit


@functools.cache  # no diagnosis changes what it looks at, as the contracts prove
def healthy(kind: Kind, task: str = "classification") -> Subject:
    """A network trained on the data of seed 1, with its losses after every epoch."""
    return fit(healthy_recipe(kind, task, seed=1), seed=1).subject()
