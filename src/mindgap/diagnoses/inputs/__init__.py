"""Inputs that differ between the splits, or that no network can take as they are."""
