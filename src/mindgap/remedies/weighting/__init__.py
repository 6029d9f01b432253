"""Weights of the training samples: which of them count, and how much."""
