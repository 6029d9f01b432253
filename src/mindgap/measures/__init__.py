"""Measures: quantities that say something about generalization; one file is one measure."""

from mindgap._lazy import lazy
from mindgap.core.registry import own_specs

lazy(__name__, lambda: own_specs("measure"))
