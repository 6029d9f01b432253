"""Weigh samples by the variance of the labels around them, and show the heaviest ones."""
