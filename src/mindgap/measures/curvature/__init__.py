"""Curvature of the training loss around the weights."""
