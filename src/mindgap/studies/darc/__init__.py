"""Generalization in Deep Learning: what its claims give when they are measured."""
