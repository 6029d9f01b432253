"""Modules taken apart: flat parameters, the last layer and its features, rescaling of ReLU layers."""
