"""Sharpness: how much noise on the weights a model stands."""
