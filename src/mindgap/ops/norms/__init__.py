"""Operator norms, path norms and the folding of batch normalization, for any module."""
