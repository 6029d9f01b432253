"""Remedies: changes of training, one per file."""

from mindgap._lazy import lazy
from mindgap.core.registry import own_specs

lazy(__name__, lambda: own_specs("remedy"))
