"""Noise stability and compression of layers (Arora et al. 2018)."""
