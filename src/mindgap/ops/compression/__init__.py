"""Cushions of layers, and the compression of dense ReLU networks by random projections."""
