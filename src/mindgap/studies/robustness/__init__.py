"""Robustness: what small changes of the inputs do to predictions, and what training on them gains."""
