"""Diagnoses: one file is one thing that can be wrong, with the test that finds it."""

from mindgap._lazy import lazy
from mindgap.core.registry import own_specs

lazy(__name__, lambda: own_specs("diagnosis"))
