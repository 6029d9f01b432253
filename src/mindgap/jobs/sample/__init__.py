"""Evaluate an expensive function where it changes most, in parallel and resumable."""
