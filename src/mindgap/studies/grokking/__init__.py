"""Grokking: networks that generalize long after they have learned their training data by heart."""
