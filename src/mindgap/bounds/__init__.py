"""Bounds: theorems with all their constants; one file, one theorem."""

from mindgap.core.registry import publish

__all__ = publish(__name__)
