"""Probabilities that mislead, and predictions on the edge."""
