"""Bounds: theorems with all their constants; one file is one theorem."""

from mindgap._lazy import lazy
from mindgap.core.registry import own_specs

lazy(__name__, lambda: own_specs("bound"))
