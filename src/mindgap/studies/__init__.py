"""Studies: tables, figures and experiments, one folder per source; one file is one study."""

from mindgap._lazy import lazy
from mindgap.core.registry import own_specs

lazy(__name__, lambda: own_specs("study"))
