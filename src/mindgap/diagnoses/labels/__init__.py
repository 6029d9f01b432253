"""Targets that are wrong, in the training or in the test data."""
