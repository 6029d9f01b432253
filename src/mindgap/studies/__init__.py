"""Studies: one file, one table, figure or experiment."""

from mindgap.core.registry import publish

__all__ = publish(__name__)
