# Written by `make generate`; do not edit.
from mindgap.diagnoses.not_finite import NotFinite as NotFinite

__all__: list[str]
