"""Samples that occur twice, classes that are missing or rare, test data that are too few."""
