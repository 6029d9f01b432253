"""Random labels: what networks fit that has no pattern, how fast, and what that costs on test data."""
