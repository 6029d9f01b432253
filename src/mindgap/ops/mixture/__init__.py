"""Gaussian mixtures fitted to weighted points by expectation-maximization."""
