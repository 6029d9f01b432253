"""Gradients at perturbed weights, units or inputs."""
