"""Measures: quantities that say something about generalization; one file, one measure."""

from mindgap.core.registry import publish

__all__ = publish(__name__)
