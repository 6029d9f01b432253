"""Noise stability of layers, and the number of parameters that a network could be compressed to."""
