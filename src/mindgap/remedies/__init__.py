"""Remedies: changes of training; one file, one remedy."""

from mindgap.core.registry import publish

__all__ = publish(__name__)
